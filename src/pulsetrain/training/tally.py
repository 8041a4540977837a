"""What a stretch of training adds up to: seconds, batches, losses, gradient norms."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any, Callable

from pulsetrain.training.amounts import Amounts
from pulsetrain.training.values import ComputedValue, Pending


class StepTally:
    """Sums over the events of a step, or of a part of one."""

    # Defaults of the class, so that making one costs next to nothing.
    data_wait = forward = backward = optimizer = 0.0
    asides: dict[str, float] = {}  # noqa: RUF012 - replaced, never changed
    """Seconds of spans inside the step that are parts of their own: copy, communication, logging, gc."""
    backwards = updates = batches = losses = skipped = 0
    samples: int | None = None
    tokens: int | None = None
    padding: int | None = None
    loss: Any = None
    """Of the backward passes so far: their sum, or the last one where not all of them are known."""
    divided_by = 1.0
    closure_loss: Any = None
    """What an optimizer that evaluates a closure gives back."""
    epoch: float | None = None
    learning_rate: Any = None
    gradient_norm: Any = None
    normed: frozenset[Hashable] = frozenset()
    """The optimizers whose gradients the norm covers, where we computed it."""
    extra: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def add_batch(self, amounts: Amounts) -> None:
        samples, tokens, padding = amounts
        self.batches += 1
        self.samples = _sum(self.samples, samples)
        self.tokens = _sum(self.tokens, tokens)
        self.padding = _sum(self.padding, padding)

    def add_loss(self, value: Any, divided_by: float) -> None:
        """The loss that the backward pass counted last began with.

        `divided_by` is what the program seems to have divided it by. When that is the number of backward passes of
        the update, it was done for the accumulation and is undone; otherwise it is part of the loss.
        """
        if self.losses == 0 or (isinstance(value, Pending) and self.losses < self.backwards - 1):
            self.loss, self.losses = value, 1  # those from a device are read now and then
        else:
            self.loss = _computed(operator.add, self.loss, value)
            self.losses += 1
        self.divided_by = divided_by

    def loss_of_update(self) -> Any:
        """The mean over micro batches; the sum of backward passes on the same batch, whose gradients add up."""
        if self.closure_loss is not None:
            return self.closure_loss
        if not self.losses:
            return None
        if self.divided_by == self.backwards:
            factor = self.backwards / self.losses
        elif not 0 < self.batches < self.backwards:
            factor = 1 / self.losses
        elif self.losses == self.backwards:
            factor = 1.0
        else:
            return None
        return self.loss if factor == 1.0 else _computed(operator.mul, self.loss, factor)

    def add_gradient_norm(self, value: Any) -> None:
        """The norm of some of the gradients, beside those known."""
        known = self.gradient_norm
        if known is None or value is None:
            self.gradient_norm = value if known is None else known
        else:
            self.gradient_norm = _computed(_hypotenuse, known, value)

    def add_aside(self, name: str, seconds: float) -> None:
        """Seconds of a span that are no part of what it lies in."""
        self.asides = {**self.asides, name: self.asides.get(name, 0.0) + seconds}

    def add_fields(self, fields: dict[str, Any]) -> None:
        self.extra = {**self.extra, **fields}

    def absorb(self, later: StepTally) -> None:
        for name in ("data_wait", "forward", "backward", "optimizer", "backwards", "updates", "batches"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name, seconds in later.asides.items():
            self.add_aside(name, seconds)
        self.samples = _sum(self.samples, later.samples)
        self.tokens = _sum(self.tokens, later.tokens)
        self.padding = _sum(self.padding, later.padding)
        self.skipped = self.skipped or later.skipped
        self.epoch = self.epoch if later.epoch is None else later.epoch
        if later.learning_rate is not None:
            self.learning_rate = later.learning_rate
        self.add_gradient_norm(later.gradient_norm)
        self.normed |= later.normed
        self.extra = {**self.extra, **later.extra}


def _computed(function: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if isinstance(one, Pending) or isinstance(other, Pending):
        return ComputedValue(function, one, other)
    return function(one, other)


def _hypotenuse(one: float, other: float) -> float:
    return float((one * one + other * other) ** 0.5)


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other

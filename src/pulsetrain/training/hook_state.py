"""What the hooks into PyTorch share, and how they stay out of the way of what they wrap."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any, Callable

from pulsetrain.training import loop as loops

ALL_LOSSES_UPDATES = 1000
"""So long the loss of every step is read."""
LOSS_SECONDS = 0.02
"""From then on, one so often."""


class HookState:
    """What the hooks share."""

    def __init__(self, torch: Any) -> None:
        self.compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)
        """Whether torch.compile is tracing; it knows the answer without looking into the function."""
        self.optimizers: set[Any] = set()
        """Weak references to all there are."""
        self.backward_depth = 0
        self.passes = 0
        """Backward passes since the last update."""
        self.updates = 0
        self.running: Hashable = None
        """The optimizer inside its update, which may run others."""
        self.loads = False
        """Whether a batch has come from a data loader, which shows what is in it, since the last update."""
        self.counts = True
        """Whether samples and tokens are still asked for."""
        self.samples = 0
        """Of all batches so far."""
        self.tokens: int | None = None
        """Of the last batch."""
        self.clipped = False
        """Whether the program computed the norm of its gradients, or changed them, since the last update."""
        self.compiled_norm: Any = None
        """What a compiled part of the program computed as their norm. torch.compile keeps this assignment."""
        self.wants_losses = True
        """Whether losses are read. In a fast training, that costs more than all else that we do in a step."""
        self.reads_losses = False
        """Whether the loss of the last backward pass was read."""
        self.scaled: Callable[[], Any] | None = None
        """Gives what a gradient scaler last made of a loss, while that lives."""
        self.loss: Any = None
        """What it made it of."""
        self.divided_by = 1.0
        self._next_loss = 0.0
        self.only: Hashable = None
        """The optimizer that updated last, when it did so without others in between."""
        self._first: Any = None
        """A weak reference to the optimizer whose update begins a step: when it dies, its id may become another's."""
        self._first_key: Hashable = None
        self._others: set[Hashable] = set()
        """Those that updated since."""

    def add_optimizer(self, optimizer: Any) -> None:
        self.optimizers.add(weakref.ref(optimizer, self.optimizers.discard))

    def begins_step(self, key: Hashable, optimizer: Any, now: float) -> bool:
        """Whether the update of this optimizer is the first of a step: since the last such came only others.

        If it is, this decides which of the losses that follow are read.
        """
        if key != self.only and not self._is_first(key, optimizer):
            return False
        self.wants_losses = self.updates < ALL_LOSSES_UPDATES or self._next_loss <= now
        if self.wants_losses:
            self._next_loss = now + LOSS_SECONDS
        return True

    def _is_first(self, key: Hashable, optimizer: Any) -> bool:
        if key == self._first_key or key in self._others:
            self.only = None if self._others else key
            self._others.clear()
            if key != self._first_key:
                self._first_key, self._first = key, weakref.ref(optimizer, self._forget)
            return True
        self.only = None
        self._others.add(key)
        return False

    def begin_by_hand(self, loop: loops.Loop) -> Callable[[float, Any, float], None]:
        """What to note for a backward pass without an optimizer, which is a step of its own."""
        self.passes, self.loads = 0, False
        return loop.updates.by_hand_begin

    def _forget(self, first: Any) -> None:
        if first is self._first:
            self._first = self._first_key = self.only = None
            self._others.clear()


def untraced(torch: Any, function: Any, *, all_ours: bool = True) -> Any:
    """Keep torch.compile from tracing a function: what it notes must be noted at every call, not once.

    With `all_ours` neither what it calls, which is nothing of the program's.
    """
    function._torchdynamo_disable = True
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):
        frames.skip_code(function.__code__)
    elif hasattr(frames, "set_code_exec_strategy"):  # from PyTorch 2.7 on
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(skip, skip if all_ours else default)
        frames.set_code_exec_strategy(function.__code__, strategy)
    return function


def unseen_by_warnings(function: Any) -> Any:
    """Let a warning of what it wraps name the line of the program, as without us: such frames do not count for it."""
    code = function.__code__
    function.__code__ = code.replace(co_filename=code.co_filename + " (left out as importlib._bootstrap is)")
    return function

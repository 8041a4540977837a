"""What the callbacks of the frameworks have in common.

A framework counts its steps itself, so its callback says when a step is done; where the torch hooks are at work too,
they tell what the step was made of. So no step is counted twice, and the callbacks work with and without the hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pulsetrain.training import loop as loops

OWN_FIELDS = frozenset(
    {
        "accumulation",
        "backward_seconds",
        "data_wait_seconds",
        "elapsed_seconds",
        "event",
        "flops",
        "forward_seconds",
        "learning_rate",
        "loss",
        "memory_allocated_mb",
        "memory_reserved_mb",
        "mfu_ratio",
        "nonfinite",
        "optimizer_seconds",
        "optimizers",
        "other_seconds",
        "phase",
        "phase_seconds",
        "rank",
        "samples",
        "skipped",
        "step_seconds",
        "throughput_samples_per_sec",
        "throughput_tokens_per_sec",
        "timestamp",
        "tokens",
        "total_steps",
        "training",
    }
)
"""What a framework logs under one of these names is something else: a mean over many steps, or over the ranks."""


def torch_is_watched() -> bool:
    """Whether the torch hooks tell the loop about batches, backward passes, losses and updates."""
    return bool(getattr(sys.modules.get("torch"), "_pulsetrain_watches", False))


def begin_training(step: int, total_steps: int | None) -> None:
    """A framework begins to train after `step` steps; from now on it says when a step is done."""
    loop = loops.current()
    if loop is not None:
        loop.finish()
        loop.at_step(step)
        loop.set_total_steps(total_steps)
        loop.steps_are_told()
        loop.batch_requested()


def end_training() -> None:
    loop = loops.current()
    if loop is not None:
        loop.finish()
        loop.set_total_steps(None)


def record_metrics(step: int, epoch: float | None, metrics: Mapping[str, Any]) -> None:
    """A line of what a framework logs beside the steps. What is not a number stays out."""
    loop = loops.current()
    if loop is None:
        return
    fields = {
        "logged_" + name if name in OWN_FIELDS else name: value
        for name, value in metrics.items()
        if name not in ("step", "epoch") and _is_number(value)
    }
    if fields:
        loop.recorder.add({"step": step, "epoch": epoch, **fields})


def _is_number(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return True
    if isinstance(value, str):
        return False
    size = getattr(value, "numel", None) or getattr(value, "size", None)
    return (size() if callable(size) else size) == 1


class StepLoss:
    """The loss of a step from those of its micro batches, as a framework knows it and the torch hooks cannot.

    The hooks see what backward passes begin from: divided by a number that is not always that of the passes.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._sum: Any = 0.0
        self._count = 0

    def add(self, value: Any) -> None:
        """A micro batch's loss, a number or a tensor."""
        value = loops.without_waiting(value)
        if value is not None:
            self._sum = self._sum + value
            self._count += 1

    def end_of_step(self, *, shares: bool = False) -> None:
        """Tell the loop, before the update of the weights. `shares` were divided such that they add up to the loss."""
        loop = loops.current()
        if loop is not None and self._count:
            loop.report(loss=loop.readable("loss", self._sum if shares else self._sum / self._count))
        self._forget()


class Phases:
    """The phases that a framework is in, of which an error may have left some open."""

    def __init__(self) -> None:
        self._open = 0

    def begin(self, name: str) -> None:
        loop = loops.current()
        if loop is not None:
            loop.begin_phase(name)
            self._open += 1

    def end(self) -> None:
        if self._open:
            self._open -= 1
            loop = loops.current()
            if loop is not None:
                loop.end_phase()

    def end_all(self) -> None:
        while self._open:
            self.end()

    def __bool__(self) -> bool:
        return self._open > 0

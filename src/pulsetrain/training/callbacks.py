"""What the callbacks of the frameworks have in common.

A framework counts its steps itself, so its callback says when a step is done; where the torch hooks are at work too,
they report what the step was made of. So no step is counted twice, and the callbacks work with and without the hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training import metric_sources
from pulsetrain.training.encoder import RESERVED_FIELDS
from pulsetrain.training.values import without_waiting

OWN_FIELDS = RESERVED_FIELDS | frozenset(
    {
        "accumulation",
        "backward_seconds",
        "communication_seconds",
        "copy_seconds",
        "data_wait_seconds",
        "flops",
        "forward_seconds",
        "gc_seconds",
        "learning_rate",
        "logging_seconds",
        "loss",
        "memory_allocated_mb",
        "memory_reserved_mb",
        "mfu_ratio",
        "optimizer_seconds",
        "optimizers",
        "other_seconds",
        "padding_tokens",
        "phase",
        "phase_seconds",
        "samples",
        "skipped",
        "step_seconds",
        "throughput_samples_per_sec",
        "throughput_tokens_per_sec",
        "tokens",
        "total_steps",
        "training",
    }
)
"""What a framework logs under one of these names is something else: a mean over many steps, or over the ranks."""


def torch_is_watched() -> bool:
    """Whether the torch hooks report batches, backward passes, losses and updates to the loop."""
    return bool(getattr(sys.modules.get("torch"), "_pulsetrain_watches", False))


def begin_training(step: int, total_steps: int | None) -> None:
    """A framework begins to train after `step` steps; from now on it says when a step is done."""
    loop = loops.current()
    if loop is not None:
        loop.finish()
        loop.handle(loop.updates.at_step, step)
        loop.handle(loop.lines.set_total_steps, total_steps)
        loop.handle(loop.updates.expect_step_done)
        loop.handle(loop.batches.requested)


def end_training() -> None:
    loop = loops.current()
    if loop is not None:
        loop.finish()
        loop.handle(loop.lines.set_total_steps, None)


def record_metrics(step: int, epoch: float | None, metrics: Mapping[str, Any]) -> None:
    """A line of what a framework logs beside the steps. What is not a number stays out, or what a tracker had first."""
    loop = loops.current()
    if loop is None:
        return
    fields = {
        "logged_" + name if name in OWN_FIELDS else name: value
        for name, value in metrics.items()
        if name not in ("step", "epoch")
        and is_number(value)
        and metric_sources.sources.counts(metric_sources.FRAMEWORK, name, step)
    }
    if fields:
        loop.recorder.add({"step": step, "epoch": epoch, **fields})


def is_number(value: Any) -> bool:
    """Whether it is one number, wherever that is. No device is asked."""
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
        value = without_waiting(value)
        if value is not None:
            self._sum = self._sum + value
            self._count += 1

    def end_of_step(self, *, shares: bool = False) -> None:
        """Report it before the update of the weights. `shares` were divided such that they add up to the loss."""
        loop = loops.current()
        if loop is not None and self._count:
            loss = loop.values.read("loss", self._sum if shares else self._sum / self._count)
            loop.handle(loop.lines.report, {"loss": loss})
        self._forget()


class OpenPhases:
    """The phases that a framework is in, of which an error may have left some open."""

    def __init__(self) -> None:
        self._open = 0

    def begin(self, name: str) -> None:
        loop = loops.current()
        if loop is not None:
            loop.handle(loop.phases.begin, name)
            self._open += 1

    def end(self) -> None:
        if self._open:
            self._open -= 1
            loop = loops.current()
            if loop is not None:
                loop.handle(loop.phases.end)

    def end_all(self) -> None:
        while self._open:
            self.end()

    def __bool__(self) -> bool:
        return self._open > 0

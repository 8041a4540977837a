"""Phases of a training program, such as validation: stretches of time in which it does not train."""

from __future__ import annotations

from typing import NamedTuple

from pulsetrain.training.batches import BatchTracker
from pulsetrain.training.step_lines import StepLines
from pulsetrain.training.timing import StepTiming


class _OpenPhase(NamedTuple):
    name: str
    began: float
    batches: int


class PhaseTracker:
    """Records a line for each phase. Phases may be nested; steps inside carry the name of the innermost."""

    def __init__(self, timing: StepTiming, batches: BatchTracker, lines: StepLines) -> None:
        self._timing = timing
        self._batches = batches
        self._lines = lines
        self._open: list[_OpenPhase] = []
        self.begun = 0
        """How many."""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def begin(self, now: float, name: str) -> None:
        """Until `end` the program does something of its own."""
        self._timing.skip_to(now)
        self._open.append(_OpenPhase(name, now, self._batches.count))
        self._lines.phase = name
        self.begun += 1

    def end(self, now: float) -> None:
        if not self._open:
            return
        phase = self._open.pop()
        self._lines.phase = self._open[-1].name if self._open else None
        self._timing.skip_to(now)
        self._batches.forget(phase.batches)
        self._add(phase.name, phase.began, now)

    def record(self, name: str, began: float, ended: float) -> None:
        """A phase that shows only now. No step lies in it; there may be others around it."""
        timing = self._timing
        if timing.since is None or (began <= timing.since and not self._lines.recorded):
            timing.since = ended  # nothing of a step came before it
        timing.last_event = max(timing.last_event, ended)
        self._add(name, began, ended)

    def _add(self, name: str, began: float, ended: float) -> None:
        self._lines.add(ended, {"step": self._lines.step, "phase": name, "phase_seconds": ended - began})

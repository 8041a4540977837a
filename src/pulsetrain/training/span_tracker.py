"""What becomes of spans: parts of a step's line, or lines of their own."""

from __future__ import annotations

from pulsetrain.training.step_lines import StepLines
from pulsetrain.training.timing import StepTiming


class SpanTracker:
    """Takes the time of spans out of what they lie in."""

    def __init__(self, timing: StepTiming, lines: StepLines) -> None:
        self._timing = timing
        self._lines = lines

    def part(self, now: float, name: str, began: float) -> None:
        """A part of the step that is under way; in a phase, it is the phase's."""
        seconds = self._timing.set_aside(began, now)
        if self._timing.since is not None and self._lines.phase is None:
            self._timing.tally.add_aside(name, seconds)

    def phase(self, now: float, name: str, began: float) -> None:
        """A phase that is over; inside one of the same name, which a framework told, it is part of that."""
        self._timing.set_aside(began, now)
        if self._lines.phase == name:
            return
        self._lines.add(now, {"step": self._lines.step, "phase": name, "phase_seconds": now - began})

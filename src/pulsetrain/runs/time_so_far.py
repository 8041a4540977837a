"""What the time of a rank in progress went into, as far as its reports tell by now. The report of a run knows more."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pulsetrain.catalog.time_classes import PART_CLASSES, class_of_phase
from pulsetrain.runs.codec import elapsed_of


class TimeSoFar:
    """Adds up the lines of one rank, in order of time. What it says of a class only rises."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        """By class."""
        self._began = 0.0
        self._steps = False
        self._phases: list[tuple[float, float]] = []
        """Begin and length of those since the last step, outermost."""

    def begin(self, head: Mapping[str, Any]) -> None:
        """The process of the rank says when it began."""
        if isinstance(began := head.get("began_seconds"), int | float) and not self._steps:
            self._began = max(0.0, began)  # a kernel may be older than the run

    def add(self, line: Mapping[str, Any]) -> None:
        """A report, if it is about a step or a phase."""
        end = elapsed_of(line)
        if end is None:
            return
        if (seconds := _seconds(line, "phase")) is not None:
            self._add_phase(str(line.get("phase") or ""), end - seconds, seconds)
        elif (seconds := _seconds(line, "step")) is not None:
            self._add_step(line, end - seconds, seconds)

    def _add_phase(self, name: str, begin: float, seconds: float) -> None:
        inside = sum(length for since, length in self._phases if since >= begin)
        self.seconds[class_of_phase(name)] += max(0.0, seconds - inside)
        self._phases = [phase for phase in self._phases if phase[0] < begin] + [(begin, seconds)]

    def _add_step(self, line: Mapping[str, Any], begin: float, seconds: float) -> None:
        before = sum(length for since, length in self._phases if since < begin)
        if not self._steps:
            self._steps = True
            self.seconds["startup"] += max(0.0, begin - self._began - before)
        rest = max(0.0, seconds - sum(length for _, length in self._phases) + before)
        self._phases.clear()
        for part, name in PART_CLASSES.items():
            taken = min(rest, _seconds(line, part) or 0.0)
            if taken:
                self.seconds[name] += taken
                rest -= taken
        whole = all(_seconds(line, part) is None for part in ("forward", "backward", "optimizer"))
        self.seconds["compute" if whole else "unknown"] += rest


def _seconds(line: Mapping[str, Any], what: str) -> float | None:
    value = line.get(f"{what}_seconds")
    return value if isinstance(value, int | float) and 0 <= value < float("inf") else None

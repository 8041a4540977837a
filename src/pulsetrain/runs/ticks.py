"""Lines of one host in, the snapshots of its ticks out.

Lines of one tick have the same elapsed time. What a training reported since the tick before joins it, merged as it is
live.
"""

import math
from collections import deque
from collections.abc import Iterator

from pulsetrain.catalog import EVENT_TABLE, TABLES
from pulsetrain.runs.codec import Line, elapsed_of, event_of, is_report, sample_of, time_of
from pulsetrain.runs.reports import MergedReports
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject

MOST_REPORTS = 50_000
"""So many wait for the tick after them, which may never come; older ones are merged and join whatever comes next."""


class Tick:
    """What was read at one moment."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.samples: dict[Subject, Sample] = {}
        self.events: list[Event] = []

    def add(self, sample: Sample) -> None:
        """Of two lines about one subject, one was late: they belong together."""
        self.samples.setdefault(sample.subject, sample).values.update(sample.values)


class Ticks:
    """Takes lines in any order, and gives the ticks that are complete in order of time."""

    def __init__(self) -> None:
        self._ticks: dict[float, Tick] = {}
        self._waiting: deque[Line] = deque()
        self._reports = MergedReports()
        self._origin: float | None = None
        """Seconds since the epoch at which elapsed time began."""

    @property
    def newest(self) -> float:
        """Elapsed time of the newest tick that has not been taken."""
        return max(self._ticks, default=-math.inf)

    @property
    def times(self) -> list[float]:
        """Elapsed times of the ticks that have not been taken."""
        return sorted(self._ticks)

    def add(self, table: str, line: Line) -> None:
        """A line of a table. One that is damaged, or a note of a training's recorder, is left out."""
        time, elapsed = time_of(line), elapsed_of(line)
        if time is None:
            return
        if TABLES[table].from_training:
            if is_report(line):
                self._waiting.append(line)
            return
        if elapsed is None:  # the run's writer does not know that of its own events
            elapsed = time - (time if self._origin is None else self._origin)
        elif self._origin is None:
            self._origin = time - elapsed
        if table == EVENT_TABLE.name:
            self.at(elapsed, time).events.append(event_of(line))
        else:
            self.at(elapsed, time).add(sample_of(table, line))

    def at(self, elapsed: float, time: float) -> Tick:
        """The tick of this moment, which may be new."""
        return self._ticks.setdefault(elapsed, Tick(time))

    def take(self, until: float) -> Iterator[Snapshot]:
        """The ticks up to a moment, once all lines up to then have been added."""
        self._waiting = deque(sorted(self._waiting, key=_elapsed))  # each process has its own order
        for elapsed in sorted(elapsed for elapsed in self._ticks if elapsed <= until):
            tick = self._ticks.pop(elapsed)
            self._merge(elapsed)
            samples = (*tick.samples.values(), *self._reports.take())
            yield Snapshot(tick.time, elapsed, samples, tuple(tick.events))
        self._merge(until)
        while len(self._waiting) > MOST_REPORTS:
            self._reports.add(self._waiting.popleft())

    def rest(self) -> Iterator[Snapshot]:
        """All that is left, when no more lines come; what was reported after the last tick is one more snapshot."""
        yield from self.take(math.inf)
        if samples := self._reports.take():
            yield Snapshot(self._reports.time, self._reports.elapsed, tuple(samples))

    def _merge(self, until: float) -> None:
        while self._waiting and _elapsed(self._waiting[0]) <= until:
            self._reports.add(self._waiting.popleft())


def _elapsed(line: Line) -> float:
    return float(line["elapsed_seconds"])

"""A recorded run once more, as the snapshots of its ticks: what live views and exporters saw, at any speed.

Lines of one tick have the same time, and make one snapshot. What the training reported since the tick before is merged
as `sources.training` does it live.
"""

import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from pulsetrain.errors import UsageError
from pulsetrain.runs.database import Database
from pulsetrain.runs.follow import event_of, sample_of
from pulsetrain.sampler import Clock, Consumer
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.sources import training

WINDOW_LINES = 10_000
"""About so many lines are in memory at a time, however long the run is."""
SAMPLED = ("gpu", "mig", "host", "process", "account")

_Row = dict[str, Any]


class _Tick:
    """What was read at one moment."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.samples: dict[Subject, Sample] = {}
        self.events: list[Event] = []

    def add(self, sample: Sample) -> None:
        """Of two lines about one subject, one was late: they belong together."""
        known = self.samples.setdefault(sample.subject, sample)
        known.values.update(sample.values)


class _Extent(NamedTuple):
    """Which stretch of elapsed time there are lines for."""

    lines: int
    first: float
    last: float
    origin: float
    """Seconds since the epoch at which elapsed time began."""


class Replay:
    """The snapshots of one host of a run, from `start` seconds after it began. The run may still go on."""

    def __init__(
        self, database: Database, host: str, *, speed: float = 1.0, start: float = 0.0, clock: Clock | None = None
    ) -> None:
        """`database` holds the one run. A speed of 1 is as it was; infinity does not wait at all."""
        if not speed > 0:
            raise UsageError(
                f"a run cannot be replayed at speed {speed:g}.",
                hint="1 is as it was, 20 is twenty times as fast, and inf as fast as it can be read.",
            )
        self._database = database
        self._host = host
        self._speed = speed
        self._start = start
        self._clock = clock or Clock()

    def run(self, consumers: Sequence[Consumer], stop: threading.Event) -> int:
        """Give each snapshot to every consumer when its time has come, until stopped. How many there were."""
        shown = 0
        began = 0.0
        for snapshot in self:
            elapsed = snapshot.elapsed / self._speed
            if not shown:
                began = self._clock.monotonic() - elapsed
            if self._clock.wait(stop, max(0.0, began + elapsed - self._clock.monotonic())):
                break
            for consumer in consumers:
                consumer(snapshot)
            shown += 1
        return shown

    def __iter__(self) -> Iterator[Snapshot]:
        """All snapshots in the order of their times, without waiting."""
        extent = self._extent()
        if extent is None:
            return
        reports = _Reports()
        for start, end in _windows(extent):
            lines = deque(self._rows("training", start, end, "ORDER BY elapsed_seconds"))
            for elapsed, tick in sorted(self._ticks(extent.origin, start, end).items()):
                while lines and lines[0]["elapsed_seconds"] <= elapsed:
                    reports.add(lines.popleft())
                yield Snapshot(tick.time, elapsed, (*tick.samples.values(), *reports.take()), tuple(tick.events))
            for line in lines:
                reports.add(line)
        if rest := tuple(reports.take()):  # what was reported after the last tick
            yield Snapshot(reports.time, reports.elapsed, rest)

    def _extent(self) -> _Extent | None:
        """None when there is no line at all."""
        each = " UNION ALL ".join(
            f"SELECT elapsed_seconds AS elapsed, epoch(timestamp) AS time FROM {table} "
            "WHERE host = $1 AND elapsed_seconds >= $2"
            for table in (*SAMPLED, "training", "events")
        )
        (found,) = self._database.rows(
            "SELECT count(*) AS lines, min(elapsed) AS first, max(elapsed) AS last, min(time - elapsed) AS origin "
            f"FROM ({each})",
            (self._host, self._start),
        )
        return _Extent(**found) if found["lines"] else None

    def _ticks(self, origin: float, start: float, end: float) -> dict[float, _Tick]:
        """What was read between two moments, by elapsed time."""
        ticks: dict[float, _Tick] = {}

        def tick(row: _Row) -> _Tick:
            return ticks.setdefault(row["elapsed_seconds"], _Tick(_time(row)))

        for table in SAMPLED:
            for row in self._rows(table, start, end):
                tick(row).add(sample_of(table, row))
        for row in self._events(origin, start, end):
            tick(row).events.append(_event(row))
        return ticks

    def _rows(self, table: str, start: float, end: float, order: str = "") -> list[_Row]:
        return self._database.rows(
            f"SELECT * FROM {table} WHERE host = $1 AND elapsed_seconds >= $2 AND elapsed_seconds < $3 {order}",
            (self._host, start, end),
        )

    def _events(self, origin: float, start: float, end: float) -> list[_Row]:
        """The writer of a run knows no elapsed time: its own events have the clock's alone."""
        return self._database.rows(
            "SELECT * FROM (SELECT * REPLACE (coalesce(elapsed_seconds, epoch(timestamp) - $4) AS elapsed_seconds) "
            "FROM events WHERE host = $1) WHERE elapsed_seconds >= $2 AND elapsed_seconds < $3",
            (self._host, start, end, origin),
        )


class _Reports:
    """What the training reported since the last tick, merged for each rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, dict[str, Value]] = {}
        self.time = self.elapsed = 0.0
        """Of the latest."""

    def add(self, row: _Row) -> None:
        line = {name: value for name, value in row.items() if name not in ("run", "host", "other")}
        line |= msgspec.json.decode(row.get("other") or "{}")  # what the program logs under names of its own
        training.merge(self._ranks.setdefault(int(row["rank"] or 0), {}), line)
        self.time, self.elapsed = _time(row), row["elapsed_seconds"]

    def take(self) -> Iterator[Sample]:
        ranks, self._ranks = self._ranks, {}
        for rank, values in ranks.items():
            yield Sample(training.subject(rank), values)


def _windows(extent: _Extent) -> Iterator[tuple[float, float]]:
    """Stretches of time with about as many lines as may be in memory; the last one holds the last line."""
    count = math.ceil(extent.lines / WINDOW_LINES)
    width = (extent.last - extent.first) / count
    edges = [extent.first + number * width for number in range(count)]
    yield from zip(edges, [*edges[1:], math.inf], strict=True)


def _time(row: _Row) -> float:
    time: datetime = row["timestamp"]
    return time.replace(tzinfo=UTC).timestamp()


def _event(row: _Row) -> Event:
    """What has no column of its own stands in `other`."""
    return event_of(row | msgspec.json.decode(row.get("other") or "{}"))

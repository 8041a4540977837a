"""What is sent: series with their samples, how a batch of them is gathered, and how it is taken apart."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pulsetrain.outputs.points import Family, Labels

LOOKBACK_MS = 300_000
"""A series that has shown nothing for so long is over for Prometheus without a marker."""

Halves = tuple["list[PushSeries]", "list[PushSeries]"]
Key = tuple[str, str, Labels]
"""Name, kind and labels."""


class PushSeries(NamedTuple):
    """One series, and its samples in the order in which they were read."""

    name: str
    """With the suffix of a histogram's part."""
    kind: str
    """Of its family: gauge, counter, histogram, info."""
    labels: Labels
    """Sorted by name."""
    times: list[int]
    """Milliseconds since the epoch."""
    values: list[float | None]
    """None is the stale marker: from here on the series has no value."""


class Batch:
    """Gathers samples until they are taken. Knows which series there are, to mark those that end."""

    def __init__(self) -> None:
        self._gathered: dict[Key, PushSeries] = {}
        self._newest: dict[Key, int] = {}
        self._time = 0

    def __bool__(self) -> bool:
        return bool(self._gathered)

    def add(self, time: int, families: Collection[Family], *, late: bool = False) -> None:
        """All points of families, as they were at this time. A `late` reading adds to no series that has gone on."""
        if not late:
            self._time = time
        for family in families:
            for labels, value, suffix in family.points:
                key = (family.name + suffix, family.kind, labels)
                if not late or self._newest.get(key, -1) < time:
                    self._append(key, time, value)
        up = (point for family in families if family.name == "gpu_up" for point in family.points)
        for uuid in [dict(labels).get("uuid") for labels, value, _ in up if value == 0]:
            self._lost(uuid, time)

    def end(self) -> None:
        """Mark all series as ended, just after their last sample."""
        for key in list(self._newest):
            self._mark(key, self._time + 1)

    def take(self) -> list[PushSeries]:
        """What has been gathered since the last time."""
        taken, self._gathered = list(self._gathered.values()), {}
        self._newest = {key: time for key, time in self._newest.items() if time > self._time - LOOKBACK_MS}
        return taken

    def _lost(self, uuid: str | None, time: int) -> None:
        """What was said of a GPU is no longer true once it is lost."""
        for key in [key for key, newest in self._newest.items() if newest < time and uuid in dict(key[2]).values()]:
            self._mark(key, time)

    def _mark(self, key: Key, time: int) -> None:
        self._append(key, time, None)
        del self._newest[key]

    def _append(self, key: Key, time: int, value: float | None) -> None:
        series = self._gathered.get(key)
        if series is None:
            series = self._gathered[key] = PushSeries(*key, [], [])
        series.times.append(time)
        series.values.append(value)
        self._newest[key] = time


def milliseconds(seconds: float) -> int:
    """A time as the run's files have it, cut off after the millisecond: what is sent again from them is the same."""
    return round(seconds * 1e6) // 1000


def count(series: Iterable[PushSeries]) -> int:
    """How many samples these are."""
    return sum(len(one.times) for one in series)


def halves(series: Sequence[PushSeries]) -> Halves | None:
    """Two parts of a batch; None when it is a single sample."""
    if len(series) > 1:
        middle = len(series) // 2
        return list(series[:middle]), list(series[middle:])
    (one,) = series
    middle = len(one.times) // 2
    if middle == 0:
        return None
    return (
        [one._replace(times=one.times[:middle], values=one.values[:middle])],
        [one._replace(times=one.times[middle:], values=one.values[middle:])],
    )


def until(series: Iterable[PushSeries], limit: int) -> list[PushSeries]:
    """What is not later than this time."""
    kept = []
    for one in series:
        if max(one.times) <= limit:
            kept.append(one)
        elif early := [index for index, time in enumerate(one.times) if time <= limit]:
            kept.append(one._replace(times=[one.times[i] for i in early], values=[one.values[i] for i in early]))
    return kept

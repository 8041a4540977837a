"""Which series have a value, and the stale markers of those that lost it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pulsetrain.live import HOLD_SECONDS
from pulsetrain.outputs.backfill.subject_lines import TickTimes, ValidPoints
from pulsetrain.outputs.points import Labels
from pulsetrain.runs.database import Array

NOTHING: Array = np.empty(0)


class SeriesColumn(NamedTuple):
    """One series over a stretch of time."""

    name: str
    labels: Labels
    """Sorted by name."""
    times: Array
    """Milliseconds since the epoch."""
    values: Array
    ends: Array
    """Times of stale markers: from there on the series has no value."""


class Staleness:
    """Which series have a value now, and when those that had one lost it."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, Labels], float] = {}
        """Elapsed time of the last value."""
        self._held: set[tuple[str, Labels]] = set()
        self._seen: set[tuple[str, Labels]] = set()
        self._ticks = TickTimes(NOTHING, NOTHING, NOTHING)

    def begin(self, ticks: TickTimes) -> None:
        """Of a new stretch."""
        self._ticks = ticks
        self._seen = set()

    def column(
        self, name: str, labels: Labels, known: ValidPoints, cuts: Array = NOTHING, *, held: bool = False
    ) -> Iterator[SeriesColumn]:
        """A series in this stretch, if there is anything of it.

        As live, a value is valid for HOLD_SECONDS, or until one of the `cuts`; what is `held` is valid to the end.
        """
        key = (name, labels)
        last = self._last.get(key)
        if last is None and not len(known.elapsed):
            return
        self._seen.add(key)
        if held:
            self._held.add(key)
        times = known.elapsed if last is None else np.concatenate([[last], known.elapsed])
        ends = NOTHING if held else self._ends(times, cuts)
        if len(ends) and ends[-1] > times[-1]:
            self._last.pop(key, None)
        else:
            self._last[key] = float(times[-1])
        if len(known.elapsed) or len(ends):
            yield SeriesColumn(name, labels, known.times, known.values, self._times(ends))

    def lapsed(self) -> Iterator[SeriesColumn]:
        """Series that stood, and of which there is nothing in this stretch."""
        nothing = ValidPoints(NOTHING, NOTHING, NOTHING)
        for name, labels in self._last.keys() - self._seen - self._held:
            yield from self.column(name, labels, nothing)

    def end(self) -> Iterator[SeriesColumn]:
        """A moment after the last one."""
        for name, labels in self._last:
            yield SeriesColumn(name, labels, NOTHING, NOTHING, self._ticks.times[-1:] + 1)

    def _ends(self, times: Array, cuts: Array) -> Array:
        """The ticks at which values were gone before another one came."""
        ticks = self._ticks.elapsed
        following = np.append(times[1:], np.inf)
        if not len(cuts) and ticks[-1] - HOLD_SECONDS <= times[-1] and np.diff(times).max(initial=0) <= HOLD_SECONDS:
            return NOTHING
        gone = np.append(ticks, np.inf)[np.searchsorted(ticks - HOLD_SECONDS, times, "right")]
        cut = np.append(cuts, np.inf)[np.searchsorted(cuts, times, "right")]
        gone = np.minimum(gone, cut)
        return np.asarray(gone[gone < following])

    def _times(self, elapsed: Array) -> Array:
        return np.asarray(self._ticks.times[np.searchsorted(self._ticks.elapsed, elapsed)])

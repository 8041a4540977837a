"""The past of series, as far back as windows of rules need it and no further."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence

from pulsetrain.rules.expression import WindowFunction
from pulsetrain.rules.labels import NOBODY, LabelSet, Vector
from pulsetrain.rules.vectors import highest, lowest

MOST_SAMPLES = 120
"""So many samples of a window are enough: of faster ones, some are left out."""
LOOKBACK_SECONDS = 300.0
"""What was shown counts as that of a moment in the past if it is at most so much older, as in Prometheus."""
SPARE_SAMPLES = 64
"""How many old samples are removed at a time."""


class SampleHistory:
    """The samples of one series. The newest may be provisional: it makes way for the next."""

    __slots__ = ("_dropped", "_provisional", "times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")
        self._provisional = False
        self._dropped = -math.inf
        """When the value last fell: a counter was reset."""

    def add(self, time: float, value: float, keep: bool) -> None:
        times, values = self.times, self.values
        if self._provisional:
            times.pop()
            values.pop()
        if values and value < values[-1]:
            self._dropped = time
        times.append(time)
        values.append(value)
        self._provisional = not keep

    def forget(self, before: float) -> None:
        """Remove old samples, but never the newest."""
        if len(self.times) > SPARE_SAMPLES and self.times[SPARE_SAMPLES] <= before:
            old = min(bisect_right(self.times, before), len(self.times) - 1)
            del self.times[:old], self.values[:old]

    def at(self, moment: float) -> float | None:
        """The value at exactly this moment."""
        place = bisect_right(self.times, moment) - 1
        return self.values[place] if place >= 0 and self.times[place] == moment else None

    def over(self, function: WindowFunction, start: float, end: float) -> float | None:
        """A figure of the samples after `start` and up to `end`; None where there are too few."""
        first = bisect_right(self.times, start)
        last = len(self.times) if self.times[-1] <= end else bisect_right(self.times, end)
        match function:
            case _ if first == last:
                return None
            case "count":
                return last - first
            case "increase":
                return self._increase(first, last, start, end)
            case "rate":
                rise = self._increase(first, last, start, end)
                return None if rise is None else rise / (end - start)
        return _figure(function, self.values[first:last])

    def _increase(self, first: int, last: int, start: float, end: float) -> float | None:
        """How much a counter rose, as Prometheus extrapolates it to the whole window."""
        if last - first < 2:
            return None
        began, ended = self.times[first], self.times[last - 1]
        low = self.values[first]
        rise = self.values[last - 1] - low
        if self._dropped > began:
            before = low
            for value in self.values[first:last]:
                if value < before:
                    rise += before
                before = value
        covered = ended - began
        spacing = covered / (last - first - 1)
        to_start, to_end = began - start, end - ended
        if rise > 0 and low >= 0:
            to_start = min(to_start, covered * (low / rise))  # a counter was never below 0
        reached = covered + sum(gap if gap < 1.1 * spacing else spacing / 2 for gap in (to_start, to_end))
        return rise * (reached / covered)


def _figure(function: WindowFunction, values: Sequence[float]) -> float:
    match function:
        case "min":
            return lowest(values)
        case "max":
            return highest(values)
        case "sum":
            return sum(values)
        case _:
            return sum(values) / len(values)


class SeriesHistory:
    """The past of all series of one expression."""

    def __init__(self) -> None:
        self._series: dict[LabelSet, SampleHistory] = {}
        self._seconds = 0.0
        self._spacing = math.inf
        self._place = -1
        self._moments = SampleHistory()
        """When it was looked at: a series without a sample at such a moment was not there."""

    def need(self, window_seconds: float, offset_seconds: float) -> None:
        """Keep enough for this window."""
        self._seconds = max(self._seconds, window_seconds + offset_seconds)
        self._spacing = min(self._spacing, (window_seconds or offset_seconds) / MOST_SAMPLES)

    @property
    def kept_samples(self) -> int:
        return sum(len(samples.times) for samples in self._series.values())

    def add(self, time: float, vector: Vector) -> None:
        """Take in what the expression shows now."""
        place = int(time // self._spacing)
        keep, self._place = place != self._place, place
        self._moments.add(time, 0.0, keep)
        series = self._series
        for labels, value in vector.items():
            samples = series.get(labels)
            if samples is None:  # its first sample stays: what changes right after it is seen
                series[labels] = first = SampleHistory()
                first.add(time, value, True)
            else:
                samples.add(time, value, keep)
        if keep:
            self._forget(time - self._seconds - LOOKBACK_SECONDS)

    def _forget(self, before: float) -> None:
        self._moments.forget(before)
        for samples in self._series.values():
            samples.forget(before)
        for labels in [labels for labels, samples in self._series.items() if samples.times[-1] <= before]:
            del self._series[labels]

    def at(self, time: float) -> Vector:
        """What it showed at a moment in the past."""
        moments = self._moments.times
        place = bisect_right(moments, time) - 1
        if place < 0 or moments[place] < time - LOOKBACK_SECONDS:
            return NOBODY
        moment = moments[place]
        return {labels: value for labels, samples in self._series.items() if (value := samples.at(moment)) is not None}

    def over(self, function: WindowFunction, start: float, end: float) -> Vector:
        """A figure of the samples of each series after `start` and up to `end`."""
        return {
            labels: value
            for labels, samples in self._series.items()
            if (value := samples.over(function, start, end)) is not None
        }

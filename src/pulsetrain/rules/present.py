"""What an evaluator reads: the values that metrics show at one moment, live or in a record."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from pulsetrain.rules.labels import LabelSet, Vector
from pulsetrain.snapshot import Metric


class Present(Protocol):
    """What the metrics show at one moment."""

    def read(self, metric: Metric) -> Vector:
        """The values of a metric, with the labels that exporters give them; amounts, added up so far."""


class RecordedSeries:
    """What recorded series showed at a moment: the newest value of each, if it is recent enough."""

    def __init__(self, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._series: dict[Metric, list[tuple[LabelSet, Sequence[float], Sequence[float]]]] = defaultdict(list)
        self._time = 0.0

    def add(self, metric: Metric, labels: Mapping[str, str], times: Sequence[float], values: Sequence[float]) -> None:
        """A series; times rise."""
        self._series[metric].append((LabelSet.of(labels), times, values))

    def at(self, time: float) -> "RecordedSeries":
        """The same, at this moment."""
        self._time = time
        return self

    def read(self, metric: Metric) -> Vector:
        found = {}
        for labels, times, values in self._series.get(metric, ()):
            place = bisect_right(times, self._time) - 1
            if place >= 0 and times[place] >= self._time - self._hold_seconds:
                found[labels] = values[place]
        return found

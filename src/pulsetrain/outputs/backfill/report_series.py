"""The reports of a training at ticks, as `runs.reports` brings them there live."""

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from pulsetrain import catalog
from pulsetrain.catalog import STEP_BUCKETS
from pulsetrain.outputs.backfill.staleness import NOTHING
from pulsetrain.outputs.backfill.subject_lines import SubjectLines, TickTimes, ValidPoints
from pulsetrain.outputs.points import Labels, make_labels
from pulsetrain.runs.database import Array
from pulsetrain.runs.reports import BUCKETS


class ReportSeries:
    """Reports, brought to ticks as `runs.reports` does it live."""

    def __init__(self, declared: dict[str, str], named: dict[str, str], nonfinite: dict[str, str]) -> None:
        """SQL of fields, by their names: those of the catalog, and those of the program itself.

        `nonfinite` is by the value that was NaN or infinite: 1 in such a report, 0 in others that could have been.
        """
        self.declared = declared
        self.named = named
        self.nonfinite = nonfinite
        self.read_to = -np.inf
        """Elapsed time of the last tick whose reports have been read."""
        self.reported = NOTHING
        """Elapsed time of the ticks of this stretch that had reports, and of the last one before them."""
        self._totals: dict[tuple[str, Labels], float] = {}

    def series(
        self, reports: SubjectLines, ticks: TickTimes, own: Mapping[str, str]
    ) -> Iterator[tuple[str, Labels, ValidPoints]]:
        """The series of one rank, at the ticks that had reports of it."""
        labels = make_labels(own)
        index = np.searchsorted(ticks.elapsed, reports.elapsed)
        reported = np.unique(index)
        self.reported = np.union1d(self.reported, ticks.elapsed[reported])
        for field in self.declared:
            metric = catalog.metric("training", field)
            at, values = _placed(reports, index, field)
            if metric.kind != "amount":
                yield metric.name, labels, _last(ticks, at, values)
                continue
            sums = [(metric.name, labels, values)]
            if field == "step_seconds":
                sums = list(_histogram(values, own, labels))
            for name, its_labels, amounts in sums:
                yield name, its_labels, self._total((name, its_labels), ticks, reported, at, amounts)
        for value in self.nonfinite:
            at, counts = _placed(reports, index, nonfinite_field(value))
            its_labels = make_labels(own, {"value": value})
            key = (catalog.NONFINITE.name, its_labels)
            yield *key, self._total(key, ticks, reported, at, counts)
        for field in self.named:
            its_labels = make_labels(own, {"name": field})
            yield catalog.TRAINING_VALUE.name, its_labels, _last(ticks, *_placed(reports, index, field))

    @property
    def fields(self) -> dict[str, str]:
        """SQL of all that is read."""
        return self.declared | self.named | {nonfinite_field(value): sql for value, sql in self.nonfinite.items()}

    def _total(
        self, key: tuple[str, Labels], ticks: TickTimes, reported: Array, at: Array, amounts: Array
    ) -> ValidPoints:
        """What all reports add up to, at each tick that had one."""
        before = self._totals.get(key)
        if before is None:
            if not len(at):
                return _at(ticks, at, amounts)
            reported = reported[reported >= at[0]]
        sums = np.concatenate([[before or 0.0], amounts]).cumsum()
        self._totals[key] = float(sums[-1])
        return _at(ticks, reported, sums[np.searchsorted(at, reported, "right")])


def nonfinite_field(value: str) -> str:
    return f"{catalog.NONFINITE.field}:{value}"


def _placed(reports: SubjectLines, index: Array, field: str) -> tuple[Array, Array]:
    """The values of a field in reports, and the indices of the ticks they belong to."""
    column = reports.fields[field]
    there = ~np.ma.getmaskarray(column)
    return index[there], np.asarray(np.ma.getdata(column), np.float64)[there]


def _last(ticks: TickTimes, at: Array, values: Array) -> ValidPoints:
    """The last value of each tick."""
    kept = np.append(at[1:] != at[:-1], True) if len(at) else np.zeros(0, bool)
    return _at(ticks, at[kept], values[kept])


def _at(ticks: TickTimes, index: Array, values: Array) -> ValidPoints:
    return ValidPoints(ticks.elapsed[index], ticks.times[index], values)


def _histogram(seconds: Array, own: Mapping[str, str], labels: Labels) -> Iterator[tuple[str, Labels, Array]]:
    """How many of these steps are in each bucket, how long they took together, how many they are."""
    name = catalog.STEP_COUNTS.name
    for bound, upper in zip(BUCKETS, chain(STEP_BUCKETS, [np.inf]), strict=True):
        yield f"{name}_bucket", make_labels(own, {"le": bound}), (seconds <= upper).astype(np.float64)
    yield f"{name}_sum", labels, seconds
    yield f"{name}_count", labels, np.ones(len(seconds))

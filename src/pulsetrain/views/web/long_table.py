"""One table of a long run: its course from stretches of readings, and the readings themselves of a part in view."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulsetrain.insight.own_metrics import made_up
from pulsetrain.runs.pyramid import Array
from pulsetrain.views.web.chart_columns import (
    ChartColumn,
    InView,
    KnownSubject,
    SubjectKey,
    Tails,
    read_columns,
    subject_label,
)
from pulsetrain.views.web.coarse import CoarseTable

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

_LEAST_MARGIN_SECONDS = 5.0
_MARGIN = 0.05
"""Of what is in view, to find the reading before it and the one after."""


class LongTable:
    """It keeps stretches in memory, and reads no more lines than a view needs."""

    def __init__(self, table: str, coarse: CoarseTable, database: "Callable[[], Database]", tails: Tails) -> None:
        self._table = table
        self._coarse = coarse
        self._open = database
        self._tails = tails
        self._columns: dict[str, list[ChartColumn]] = {}
        several = len({subject.host for subject in coarse.subjects}) > 1
        self._subjects = [
            KnownSubject(
                SubjectKey(subject.host, subject.name or ""),
                subject_label(table, subject.host, subject.number, several=several),
                subject.until,
                subject.number if table == "gpu" else None,
            )
            for subject in coarse.subjects
        ]

    @property
    def nbytes(self) -> int:
        return self._coarse.nbytes

    def own_names(self) -> list[str]:
        return made_up(self._coarse.names) if self._table == "training" else []

    def seen(self, names: Sequence[str]) -> set[str]:
        return self._coarse.names.intersection(names)

    def usual(self, name: str) -> float | None:
        columns = [subject.column(name) for subject in self._coarse.subjects if subject.has(name)]
        return float(np.nanmedian(np.concatenate([column.mean for column in columns]))) if columns else None

    def subjects(self) -> list[KnownSubject]:
        return self._subjects

    def columns(self, names: Sequence[str], view: InView) -> dict[str, list[ChartColumn]]:
        """In stretches, if these are fine enough for what is in view."""
        coarse = {name: self._in_stretches(name) for name in names}
        if view.points is not None and self._coarse.count(view.start, view.end) >= view.points:
            return coarse
        margin = max(_LEAST_MARGIN_SECONDS, _MARGIN * (view.end - view.start), view.margin)
        source = f"(SELECT *, {self._subject()} AS subject FROM {self._table} WHERE {self._counts()} "
        source += f"AND elapsed_seconds BETWEEN {view.start - margin!r}::DOUBLE AND {view.end + margin!r}::DOUBLE)"
        found = read_columns(self._open(), self._table, source, self._subjects, names)
        until = {subject.key: subject.until for subject in self._subjects}
        nothing = np.empty(0), np.empty(0)
        columns: dict[str, list[ChartColumn]] = {}
        for name in names:
            columns[name] = []
            for line in coarse[name]:
                times, values = found[name].get(line.key, nothing)
                count = int(np.searchsorted(times, until[line.key], "right"))  # what came since is in the tail
                readings = _reaching(line, times[:count], values[:count], view)
                columns[name].append(ChartColumn(line.key, line.label, *readings, line.newer))
        return columns

    def latest(self, names: Sequence[str]) -> dict[str, list[ChartColumn]] | None:
        return {name: self._columns[name] for name in names} if set(names) <= self._columns.keys() else None

    def _in_stretches(self, name: str) -> list[ChartColumn]:
        if name not in self._columns:
            self._columns[name] = [
                ChartColumn(
                    known.key, known.label, *_last(subject.ends, subject.column(name).last), tail, name, subject
                )
                for known, subject in zip(self._subjects, self._coarse.subjects, strict=True)
                for tail in [self._tails.of(self._table, name, known.key)]
                if subject.has(name) or tail[0]
            ]
        return self._columns[name]

    def _subject(self) -> str:
        return "uuid" if self._table == "gpu" else "''"

    def _counts(self) -> str:
        if self._table == "training":
            return f"coalesce(rank, 0) = {self._coarse.subjects[0].number or 0:d}"
        return "up IS NOT NULL" if self._table == "gpu" else "true"


def _reaching(line: ChartColumn, times: Array, values: Array, view: InView) -> tuple[Array, Array]:
    """What is read so seldom that no reading is near has the stretches before and after, so that its line is drawn."""
    assert line.coarse
    last, starts, ends = line.coarse.column(line.name).last, line.coarse.starts, line.coarse.ends
    unread = np.searchsorted(times, starts) == np.searchsorted(times, ends, "right")
    beside = unread & ~np.isnan(last)
    before = np.flatnonzero(beside & (starts < view.start) & (not (times < view.start).any()))[-1:]
    after = np.flatnonzero(beside & (ends > view.end) & (not (times > view.end).any()))[:1]
    return (
        np.concatenate((starts[before], times, ends[after])),
        np.concatenate((last[before], values, last[after])),
    )


def _last(times: Array, values: Array) -> tuple[Array, Array]:
    """The last reading there is."""
    places = np.flatnonzero(~np.isnan(values))[-1:]
    return times[places], values[places]

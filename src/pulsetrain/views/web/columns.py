"""The readings of one run, chart by chart: read from its files when asked for, and kept up while it is in progress."""

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsetrain.catalog import METRICS, STEP_COUNTS
from pulsetrain.insight.robust import Floats
from pulsetrain.runs.folder import RunFolder
from pulsetrain.snapshot import Snapshot, Subject, Value
from pulsetrain.views.chart_list import CHARTS, GROUPS, STEP_TIME, WHOLE_STEP_TIME, DeclaredChart, own_chart
from pulsetrain.views.web.chart_columns import ChartColumn, InView, SubjectKey, Tails
from pulsetrain.views.web.coarse import open_coarse
from pulsetrain.views.web.long_table import LongTable
from pulsetrain.views.web.whole_table import SOURCES, WholeTable

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

MOST_NEWER = 3_000_000
"""Values that came since the files were read; then they are read again, which takes less memory."""
MOST_OWN_CHARTS = 2000
"""A program can make up names without end."""
_CHARTED = {(chart.table, name) for chart in CHARTS for name in chart.fields} - {("training", "step_seconds")}
_AMOUNTS = {metric.field for metric in METRICS if metric.table == "training" and metric.kind == "amount"}
_COARSE = InView(0.0, math.inf, points=0)
"""All of the run, in as few points as it is kept in."""


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart: its label, and where its values come from."""

    label: str
    column: ChartColumn


class RunColumns:
    """All charts of one run. Callers are in several threads; the files are read by one at a time."""

    def __init__(self, folder: RunFolder) -> None:
        self._lock = threading.RLock()
        self._folder = folder
        self._run = folder.load()
        self._ended = self._run.status != "running"
        self._opened: Database | None = None
        self._tables: dict[str, WholeTable | LongTable] = {}
        self._tails = Tails()
        self._newer = 0
        self._charts: list[DeclaredChart] | None = None
        self._charted: set[tuple[str, str]] = set()
        self.outdated = False
        """Whether a run in progress has shown fields or subjects that the files did not have when they were read."""

    def close(self) -> None:
        with self._lock:
            if self._opened:
                self._opened.close()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(table.nbytes for table in self._tables.values())

    def query(self, ask: "Callable[[Database], Any]") -> Any:
        """Whatever else is read of the run's tables."""
        with self._lock:
            return ask(self._database())

    def charts(self) -> list[DeclaredChart]:
        """Those for which the run has values, as far as the files were written when they were read."""
        with self._lock:
            if self._charts is None:
                self._charts = self._find_charts()
                self._charted = {(chart.table, name) for chart in self._charts for name in chart.fields}
            return self._charts

    def chart(self, key: str) -> DeclaredChart | None:
        return next((chart for chart in self.charts() if chart.key == key), None)

    def lines(self, charts: Sequence[DeclaredChart], view: InView) -> list[list[ChartLine]]:
        """The lines of each chart, with what a view of it needs."""
        with self._lock:
            found: dict[str, Mapping[str, list[ChartColumn]]] = {}
            for table in {chart.table for chart in charts}:
                wanted = [name for chart in charts if chart.table == table for name in chart.fields]
                found[table] = self._table(table).columns(list(dict.fromkeys(wanted)), view)
            return [list(_lines(chart, found[chart.table])) for chart in charts]

    def lines_read(self, charts: Sequence[DeclaredChart]) -> list[tuple[DeclaredChart, list[ChartLine]]]:
        """For what came since: those charts alone that somebody has asked for."""
        with self._lock:
            read = [(chart, self._table(chart.table).latest(list(chart.fields))) for chart in charts]
            return [(chart, list(_lines(chart, columns))) for chart, columns in read if columns is not None]

    def take(self, host: str, snapshot: Snapshot) -> None:
        """Readings of a run in progress. What the files had is not taken twice."""
        with self._lock:
            for sample in snapshot.samples:
                if sample.subject.table in SOURCES:
                    self._take(host, sample.subject, sample.values, snapshot.elapsed)

    def steps(self) -> tuple[Floats, Floats]:
        """Elapsed time and the number of the step that ended there."""
        with self._lock:
            columns = self._table("training").columns(["step"], _COARSE)["step"]
            if not columns:
                return np.empty(0), np.empty(0)
            stretches = columns[0].stretches()
            return (stretches.times, stretches.last) if stretches else columns[0].read()

    def _database(self) -> "Database":
        """Opened when it is first needed: what pyramids tell needs none."""
        if self._opened is None:
            from pulsetrain.insight.host_clocks import align_hosts
            from pulsetrain.runs.database import Database

            self._opened = Database([self._folder])
            if self._ended:  # what comes later of one in progress is on the time of its own host
                align_hosts(self._opened, self._run)
        return self._opened

    def _table(self, name: str) -> WholeTable | LongTable:
        if name not in self._tables:
            several = self._ended and len(self._run.hosts) > 1  # pyramids are on the time of their own host
            coarse = None if several else open_coarse(self._folder, name)
            self._tables[name] = (
                LongTable(name, coarse, self._database, self._tails)
                if coarse
                else WholeTable(name, self._database, self._tails)
            )
        return self._tables[name]

    def _find_charts(self) -> list[DeclaredChart]:
        found: list[DeclaredChart] = []
        for name in SOURCES:
            if self._ended and not self._folder.files(name):
                continue
            table = self._table(name)
            declared = [chart for chart in CHARTS if chart.table == name]
            declared += [own_chart(own) for own in table.own_names()[:MOST_OWN_CHARTS]]
            seen = table.seen(list(dict.fromkeys(field for chart in declared for field in chart.fields)))
            found += [chart for chart in declared if seen.intersection(chart.fields)]
        keys = {chart.key for chart in found}
        if STEP_TIME.key in keys:
            found = [chart for chart in found if chart.key != WHOLE_STEP_TIME.key]
        found.sort(key=lambda chart: GROUPS.index(chart.group))
        return [self._in_fitting_unit(chart) for chart in found]

    def _in_fitting_unit(self, chart: DeclaredChart) -> DeclaredChart:
        """Short steps are shown in milliseconds, as in reports."""
        if chart.key not in (STEP_TIME.key, WHOLE_STEP_TIME.key):
            return chart
        median = self._table("training").usual("step_seconds")
        return chart if median is None or median >= 1 else replace(chart, unit="ms", scale=1000.0)

    def _take(self, host: str, subject: Subject, values: dict[str, Value], elapsed: float) -> None:
        table, key = subject.table, SubjectKey(host, _subject_of(subject))
        if table == "training" and subject.labels.get("rank") not in (None, 0):
            return
        until = next((known.until for known in self._table(table).subjects() if known.key == key), None)
        if until is None:
            self.outdated = True
            return
        if elapsed <= until:
            return
        steps = _as_number(values.get(STEP_COUNTS.field)) if table == "training" else None
        for name, value in values.items():
            number = _as_number(value)
            if number is not None and table == "training" and name in _AMOUNTS:
                number = number / steps if steps else None  # a tick has the sum over its steps, a line has one
            if number is None or not (table == "training" or (table, name) in _CHARTED):
                continue
            times, numbers = self._tails.of(table, name, key)
            if not times or elapsed > times[-1]:
                times.append(elapsed)
                numbers.append(number)
                self._newer += 1
            if (table, name) not in self._charted and (table, name) in _CHARTED:
                self.outdated = True
        self.outdated = self.outdated or self._newer > MOST_NEWER


def _lines(chart: DeclaredChart, columns: Mapping[str, Sequence[ChartColumn]]) -> Iterable[ChartLine]:
    for name, label in chart.fields.items():
        for column in columns[name]:
            yield ChartLine(" ".join(filter(None, (column.label, label))) or chart.title, column)


def _subject_of(subject: Subject) -> str:
    if subject.table != "gpu":
        return ""
    return str(subject.labels.get("uuid") or subject.labels.get("gpu_index"))


def _as_number(value: Value | None) -> float | None:
    if isinstance(value, dict):
        return sum(value.values())
    return float(value) if isinstance(value, int | float) else None

"""A recorded run as series of arrays: the names, labels and values that `--push` sends, read column by column.

A value has the time of its own line. What the training reported since the tick before has the time of the tick, as it
does live: the last of everything, amounts added up. A stretch of time is in memory at once, however long the run is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from pulsetrain import catalog
from pulsetrain.catalog import METRICS, SAMPLE_TABLES, TABLES
from pulsetrain.catalog.labels import subject_labels
from pulsetrain.live import HOLD_SECONDS, WATCHED_VALUES
from pulsetrain.outputs import families
from pulsetrain.outputs.backfill import subject_lines
from pulsetrain.outputs.backfill.report_series import ReportSeries
from pulsetrain.outputs.backfill.staleness import NOTHING, SeriesColumn, Staleness
from pulsetrain.outputs.backfill.subject_lines import SubjectLines, TickTimes, ValidPoints
from pulsetrain.outputs.families import RunInfo
from pulsetrain.outputs.points import Labels, make_labels
from pulsetrain.runs.database import Array, Database
from pulsetrain.runs.extent import Window, event_elapsed, find_extent
from pulsetrain.runs.line_columns import identifier, quoted
from pulsetrain.runs.reports import DECLARED, NOT_FINITE, OTHER_VALUES
from pulsetrain.runs.tables import LINE_TABLES, columns
from pulsetrain.snapshot import Metric, Subject, severity_of

WINDOW_LINES = 40_000
"""About how many lines are in memory at once, however long the run is."""

_LABELS = {
    table.name: [label.name for label in table.labels if label.exported or label.of_info] for table in SAMPLE_TABLES
}
"""What tells the subjects of a table apart, as far as their series do."""


class HostSeries:
    """One host of a run. The stretches in `windows` are to be read once, in their order."""

    def __init__(
        self,
        database: Database,
        host: str,
        scope: Mapping[str, str],
        run_info: RunInfo | None = None,
        version: str = "",
        tables: Collection[str] = LINE_TABLES,
    ) -> None:
        """`scope` are labels of every series; `version` is that of the pulsetrain that watched."""
        self._database = database
        self._host = host
        self._scope = scope
        self._run_info = run_info
        self._version = version
        self._tables = tables
        self._extent = find_extent(database, host)
        self.windows = self._extent.windows(WINDOW_LINES) if self._extent else []
        self._staleness = Staleness()
        self._words: dict[str, set[str]] = {}
        self._job = {str(pid) for (pid,) in self._ask("SELECT DISTINCT pid FROM process WHERE gpu_index IS NULL AND")}
        self._training = ReportSeries(*self._training_fields())
        self._events = self._read_events()
        self._read = NOTHING
        """Elapsed time of readings of the machine in this stretch, and of the last one before them."""

    def columns(self, window: Window) -> Iterator[SeriesColumn]:
        """All series that have a sample in this stretch."""
        assert self._extent is not None
        ticks = subject_lines.ticks(self._database, self._host, window, self._extent)
        if not len(ticks.elapsed):
            return
        self._staleness.begin(ticks)
        for table in filter(self._tables.__contains__, LINE_TABLES):
            if table == "training":
                yield from self._of_training(ticks)
            elif table == "events":
                yield from self._of_pulsetrain(ticks)
            else:
                yield from self._of_table(table, window)
        yield from self._staleness.lapsed()

    def end(self) -> Iterator[SeriesColumn]:
        """The stale markers of all series that stood to the end."""
        return self._staleness.end()

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._database.execute(f"{sql} host = $1", [self._host]).fetchall()

    def _of_table(self, table: str, window: Window) -> Iterator[SeriesColumn]:
        metrics = catalog.metrics_of(table)
        plain = [metric for metric in metrics if metric.by is None and metric.kind in ("gauge", "counter")]
        words = [metric for metric in metrics if metric.kind == "words"]
        fields = {metric.field: identifier(metric.field) for metric in plain}
        for metric in words:
            fields |= self._word_fields(metric, window)
        for subject in subject_lines.read(self._database, self._host, window, table, _LABELS[table], fields):
            yield from self._of_subject(table, subject, plain, words)
        for metric in metrics:
            if metric.by:
                yield from self._of_each(metric, window)

    def _of_subject(
        self, table: str, read: SubjectLines, plain: list[Metric], words: list[Metric]
    ) -> Iterator[SeriesColumn]:
        about = Subject(table, "", read.labels)
        own = subject_labels(about, self._scope, self._job)
        labels = make_labels(own)
        held = TABLES[table].held
        lost = _lost(read) if table == "gpu" else NOTHING
        for metric in plain:
            cuts = NOTHING if metric.field == "up" else lost
            yield from self._staleness.column(metric.name, labels, read.known(metric.field), cuts, held=held)
        for metric in words:
            for word in self._words.get(metric.field, ()):
                known = read.known(_word_field(metric, word))
                on = known.values == 1
                cuts = np.union1d(lost, known.elapsed[~on])
                yield from self._staleness.column(
                    metric.name, make_labels(own, {"reason": word}), ValidPoints(*(array[on] for array in known)), cuts
                )
        if info := catalog.DEVICE_INFO.get(table):
            there = ~np.isin(read.elapsed, lost)
            known = ValidPoints(read.elapsed[there], read.times[there], np.ones(there.sum()))
            yield from self._staleness.column(info.name, families.info_labels(about, own), known, lost)

    def _of_each(self, metric: Metric, window: Window) -> Iterator[SeriesColumn]:
        """A series for each core, device or source."""
        own = _LABELS[metric.table]
        source = f"""(
            SELECT timestamp, elapsed_seconds, host, {"".join(f"{label}, " for label in own)}
                entry.key AS key, entry.value AS value
            FROM (SELECT *, unnest(map_entries({identifier(metric.field)})) AS entry FROM {metric.table}))"""
        assert metric.by is not None
        names = [*own, "key"]
        for subject in subject_lines.read(self._database, self._host, window, source, names, {"value": "value"}):
            key = subject.labels.pop("key")
            about = Subject(metric.table, "", subject.labels)
            labels = make_labels(subject_labels(about, self._scope, self._job), {metric.by: key})
            yield from self._staleness.column(
                metric.name, labels, subject.known("value"), held=TABLES[metric.table].held
            )

    def _word_fields(self, metric: Metric, window: Window) -> dict[str, str]:
        """For each word that has come so far, whether a line has it."""
        field = identifier(metric.field)
        found = self._database.execute(
            f"SELECT DISTINCT unnest({field}) FROM {metric.table} "
            "WHERE host = $1 AND elapsed_seconds >= $2 AND elapsed_seconds < $3",
            (self._host, *window),
        ).fetchall()
        known = self._words.setdefault(metric.field, set())
        known |= {word for (word,) in found}
        return {_word_field(metric, word): f"list_contains({field}, {quoted(word)})::INTEGER" for word in known}

    def _training_fields(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """SQL of the declared fields of reports, of those that the program named itself, and of what was not finite.

        A value that is not a finite number is a word in `nonfinite`.
        """
        declared = [metric.field for metric in catalog.metrics_of("training") if metric.kind != "text"]
        others = {column.name for column in columns("training")}
        types = self._database.columns("training")
        named = [name for name, type in types.items() if type in ("DOUBLE", "BOOLEAN") and name not in others]
        odd = {name for (name,) in self._ask("SELECT DISTINCT unnest(map_keys(nonfinite)) FROM training WHERE")}
        counted = (*sorted(WATCHED_VALUES | odd & DECLARED), OTHER_VALUES)
        nonfinite = {value: _nonfinite(value, odd) for value in counted}
        odd -= {metric.field for metric in METRICS if metric.kind == "amount"}

        def expression(field: str) -> str:
            plain = f"{identifier(field)}::DOUBLE"
            return f"coalesce(TRY_CAST(nonfinite[{quoted(field)}] AS DOUBLE), {plain})" if field in odd else plain

        return (
            {field: expression(field) for field in declared},
            {field: expression(field) for field in named[: families.MOST_NAMES]},
            nonfinite,
        )

    def _of_training(self, ticks: TickTimes) -> Iterator[SeriesColumn]:
        training = self._training
        after = np.nextafter(training.read_to, np.inf)
        window = Window(after, float(np.nextafter(ticks.elapsed[-1], np.inf)))
        training.read_to = float(ticks.elapsed[-1])
        training.reported = training.reported[-1:]
        source = "(SELECT * REPLACE (coalesce(rank, 0) AS rank) FROM training)"
        for reports in subject_lines.read(self._database, self._host, window, source, ["rank"], training.fields):
            own = subject_labels(Subject("training", "", reports.labels), self._scope, ())
            for name, labels, known in training.series(reports, ticks, own):
                yield from self._staleness.column(name, labels, known, held=True)

    def _read_events(self) -> dict[tuple[str, str], Array]:
        """When each kind of event came, with each severity."""
        origin = self._extent.origin if self._extent else 0.0
        rows = self._database.execute(
            f"SELECT kind, severity, {event_elapsed('$2')} FROM events WHERE host = $1 ORDER BY 3", (self._host, origin)
        ).fetchall()
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for kind, severity, elapsed in rows:
            found[kind or "", severity_of(severity)].append(elapsed)
        return {key: np.array(elapsed) for key, elapsed in found.items()}

    def _of_pulsetrain(self, ticks: TickTimes) -> Iterator[SeriesColumn]:
        """What every tick has: the run's facts, how old the data are, events so far."""
        constant: list[tuple[str, Labels, float]] = []
        if self._version:
            constant.append((catalog.BUILD_INFO.name, make_labels(self._scope, {"version": self._version}), 1.0))
        if self._run_info:
            constant.append((catalog.RUN_INFO.name, make_labels(self._run_info.labels, self._scope), 1.0))
            constant.append((catalog.RUN_START.name, make_labels(self._scope), self._run_info.start))
        for name, labels, value in constant:
            known = ValidPoints(ticks.elapsed, ticks.times, np.full(len(ticks.elapsed), value))
            yield from self._staleness.column(name, labels, known, held=True)
        self._read = np.append(self._read[-1:], ticks.elapsed[ticks.machine])
        for data, seen, most in (("machine", self._read, HOLD_SECONDS), ("training", self._training.reported, np.inf)):
            labels = make_labels(self._scope, {"data": data})
            yield from self._staleness.column(catalog.DATA_AGE.name, labels, _ages(ticks, seen, most), held=True)
        for (kind, severity), elapsed in self._events.items():
            counts = np.searchsorted(elapsed, ticks.elapsed, "right").astype(np.float64)
            begun = counts > 0
            known = ValidPoints(ticks.elapsed[begun], ticks.times[begun], counts[begun])
            labels = make_labels(self._scope, {"kind": kind, "severity": severity})
            yield from self._staleness.column(catalog.EVENTS.name, labels, known, held=True)


def _lost(read: SubjectLines) -> Array:
    """When a GPU did not answer."""
    up = read.known("up")
    return np.asarray(up.elapsed[up.values == 0])


def _word_field(metric: Metric, word: str) -> str:
    return f"{metric.field}:{word}"


def _nonfinite(value: str, odd: Collection[str]) -> str:
    """1 where this value of a report was NaN or infinite, 0 where it could have been, else nothing."""
    those = [value] if value != OTHER_VALUES else [name for name in odd if name not in DECLARED]
    words = ", ".join(map(quoted, NOT_FINITE))
    was = " OR ".join(f"nonfinite[{quoted(name)}] IN ({words})" for name in those) or "false"
    none = f"WHEN {identifier(value)} IS NOT NULL THEN 0.0 " if value in WATCHED_VALUES else ""
    return f"CASE WHEN {was} THEN 1.0 {none}END::DOUBLE"


def _ages(ticks: TickTimes, seen: Array, most: float) -> ValidPoints:
    """How long ago the last of these moments was, at each tick; nothing where it is longer ago than `most`."""
    ages = ticks.elapsed - np.append(seen, -np.inf)[np.searchsorted(seen, ticks.elapsed, "right") - 1]
    known = ages <= min(most, np.finfo(float).max)
    return ValidPoints(ticks.elapsed[known], ticks.times[known], ages[known])

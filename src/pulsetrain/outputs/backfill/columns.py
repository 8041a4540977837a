"""A recorded run as series of arrays: the names, labels and values that `--push` sends, read column by column.

A value stands at the time of its own line. What the training reported since the tick before stands at the tick, as it
does live: the last of everything, amounts added up. A stretch of time is in memory at once, however long the run is.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from pulsetrain import catalog
from pulsetrain.catalog import METRICS
from pulsetrain.live import HELD_TABLES, HOLD_SECONDS
from pulsetrain.outputs import families
from pulsetrain.outputs.backfill import lines
from pulsetrain.outputs.backfill.lines import Known, Lines, Ticks, Window
from pulsetrain.outputs.backfill.standing import NOTHING, Column, Standing
from pulsetrain.outputs.backfill.training import Training
from pulsetrain.outputs.families import Facts
from pulsetrain.outputs.points import Labels, make_labels
from pulsetrain.runs.database import Array, Database
from pulsetrain.runs.lines import identifier, quoted
from pulsetrain.runs.tables import LINE_TABLES, columns
from pulsetrain.snapshot import Metric, Subject

_MORE_LABELS = {"gpu": ("name", "simulated"), "mig": ("name",), "process": ("container",)}
_LABELS = {table: (*names, *_MORE_LABELS.get(table, ())) for table, names in families.LABELS.items()}
"""What tells the subjects of a table apart, as far as their series do."""


class Recorded:
    """One host of a run. The stretches in `windows` are to be read once, in their order."""

    def __init__(
        self,
        database: Database,
        host: str,
        scope: Mapping[str, str],
        facts: Facts | None = None,
        version: str = "",
        tables: Collection[str] = LINE_TABLES,
    ) -> None:
        """`scope` are labels of every series; `version` is that of the pulsetrain that watched."""
        self._database = database
        self._host = host
        self._scope = scope
        self._facts = facts
        self._version = version
        self._tables = tables
        self._extent = lines.extent(database, host)
        self.windows = self._extent.windows() if self._extent else []
        self._standing = Standing()
        self._words: dict[str, set[str]] = {}
        self._job = {str(pid) for (pid,) in self._ask("SELECT DISTINCT pid FROM process WHERE gpu_index IS NULL AND")}
        self._training = Training(*self._training_fields())
        self._events = self._read_events()
        self._read = NOTHING
        """Elapsed time of readings of the machine in this stretch, and of the last one before them."""

    def columns(self, window: Window) -> Iterator[Column]:
        """All series that have a sample in this stretch."""
        assert self._extent is not None
        ticks = lines.ticks(self._database, self._host, window, self._extent)
        if not len(ticks.elapsed):
            return
        self._standing.begin(ticks)
        for table in filter(self._tables.__contains__, LINE_TABLES):
            if table == "training":
                yield from self._of_training(ticks)
            elif table == "events":
                yield from self._of_pulsetrain(ticks)
            else:
                yield from self._of_table(table, window)
        yield from self._standing.lapsed()

    def end(self) -> Iterator[Column]:
        """The stale markers of all series that stood to the end."""
        return self._standing.end()

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._database.execute(f"{sql} host = $1", [self._host]).fetchall()

    def _of_table(self, table: str, window: Window) -> Iterator[Column]:
        metrics = [metric for metric in METRICS if metric.table == table]
        plain = [metric for metric in metrics if metric.by is None and metric.kind in ("gauge", "counter")]
        words = [metric for metric in metrics if metric.kind == "words"]
        fields = {metric.field: identifier(metric.field) for metric in plain}
        for metric in words:
            fields |= self._word_fields(metric, window)
        for subject in lines.read(self._database, self._host, window, table, _LABELS[table], fields):
            yield from self._of_subject(table, subject, plain, words)
        for metric in metrics:
            if metric.by:
                yield from self._of_each(metric, window)

    def _of_subject(self, table: str, read: Lines, plain: list[Metric], words: list[Metric]) -> Iterator[Column]:
        about = Subject(table, "", read.labels)
        own = families.subject_labels(about, self._scope, self._job)
        labels = make_labels(own)
        held = table in HELD_TABLES
        lost = _lost(read) if table == "gpu" else NOTHING
        for metric in plain:
            cuts = NOTHING if metric.field == "up" else lost
            yield from self._standing.column(metric.name, labels, read.known(metric.field), cuts, held=held)
        for metric in words:
            for word in self._words.get(metric.field, ()):
                known = read.known(_word_field(metric, word))
                on = known.values == 1
                cuts = np.union1d(lost, known.elapsed[~on])
                yield from self._standing.column(
                    metric.name, make_labels(own, {"reason": word}), Known(*(array[on] for array in known)), cuts
                )
        if table in ("gpu", "mig"):
            metric = catalog.GPU_INFO if table == "gpu" else catalog.MIG_INFO
            there = ~np.isin(read.elapsed, lost)
            known = Known(read.elapsed[there], read.times[there], np.ones(there.sum()))
            yield from self._standing.column(metric.name, families.info_labels(about, own), known, lost)

    def _of_each(self, metric: Metric, window: Window) -> Iterator[Column]:
        """A series for each core, device or source."""
        source = f"""(
            SELECT timestamp, elapsed_seconds, host, entry.key AS key, entry.value AS value
            FROM (SELECT *, unnest(map_entries({identifier(metric.field)})) AS entry FROM {metric.table}))"""
        assert metric.by is not None
        for subject in lines.read(self._database, self._host, window, source, ["key"], {"value": "value"}):
            labels = make_labels(self._scope, {metric.by: subject.labels["key"]})
            yield from self._standing.column(
                metric.name, labels, subject.known("value"), held=metric.table in HELD_TABLES
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

    def _training_fields(self) -> tuple[dict[str, str], dict[str, str]]:
        """SQL of the declared fields of reports, and of those that the program named itself.

        A value that is no finite number stands as a word in `nonfinite`.
        """
        declared = [metric.field for metric in METRICS if metric.table == "training" and metric.kind != "text"]
        others = {column.name for column in columns("training")}
        types = self._database.columns("training")
        named = [name for name, type in types.items() if type in ("DOUBLE", "BOOLEAN") and name not in others]
        odd = {name for (name,) in self._ask("SELECT DISTINCT unnest(map_keys(nonfinite)) FROM training WHERE")}
        odd -= {metric.field for metric in METRICS if metric.kind == "amount"}

        def expression(field: str) -> str:
            plain = f"{identifier(field)}::DOUBLE"
            return f"coalesce(TRY_CAST(nonfinite[{quoted(field)}] AS DOUBLE), {plain})" if field in odd else plain

        return (
            {field: expression(field) for field in declared},
            {field: expression(field) for field in named[: families.MOST_NAMES]},
        )

    def _of_training(self, ticks: Ticks) -> Iterator[Column]:
        training = self._training
        after = np.nextafter(training.read_to, np.inf)
        window = Window(after, float(np.nextafter(ticks.elapsed[-1], np.inf)))
        training.read_to = float(ticks.elapsed[-1])
        training.reported = training.reported[-1:]
        source = "(SELECT * REPLACE (coalesce(rank, 0) AS rank) FROM training)"
        fields = training.declared | training.named
        for reports in lines.read(self._database, self._host, window, source, ["rank"], fields):
            own = families.subject_labels(Subject("training", "", reports.labels), self._scope, ())
            for name, labels, known in training.series(reports, ticks, own):
                yield from self._standing.column(name, labels, known, held=True)

    def _read_events(self) -> dict[tuple[str, str], Array]:
        """When each kind of event came, with each severity."""
        origin = self._extent.origin if self._extent else 0.0
        found = self._database.rows(
            "SELECT coalesce(kind, '') AS kind, list(elapsed ORDER BY elapsed) AS elapsed, "
            "CASE WHEN severity IN ('info', 'warning', 'error') THEN severity ELSE 'info' END AS severity "
            f"FROM (SELECT kind, severity, {lines.event_elapsed('$2')} AS elapsed FROM events WHERE host = $1) "
            "GROUP BY 1, 3",
            (self._host, origin),
        )
        return {(row["kind"], row["severity"]): np.array(row["elapsed"]) for row in found}

    def _of_pulsetrain(self, ticks: Ticks) -> Iterator[Column]:
        """What stands at every tick: the run's facts, how old the data are, events so far."""
        constant: list[tuple[str, Labels, float]] = []
        if self._version:
            constant.append((catalog.BUILD_INFO.name, make_labels(self._scope, {"version": self._version}), 1.0))
        if self._facts:
            constant.append((catalog.RUN_INFO.name, make_labels(self._facts.labels, self._scope), 1.0))
            constant.append((catalog.RUN_START.name, make_labels(self._scope), self._facts.start))
        for name, labels, value in constant:
            known = Known(ticks.elapsed, ticks.times, np.full(len(ticks.elapsed), value))
            yield from self._standing.column(name, labels, known, held=True)
        self._read = np.append(self._read[-1:], ticks.elapsed[ticks.machine])
        for data, seen, most in (("machine", self._read, HOLD_SECONDS), ("training", self._training.reported, np.inf)):
            labels = make_labels(self._scope, {"data": data})
            yield from self._standing.column(catalog.DATA_AGE.name, labels, _ages(ticks, seen, most), held=True)
        for (kind, severity), elapsed in self._events.items():
            counts = np.searchsorted(elapsed, ticks.elapsed, "right").astype(np.float64)
            begun = counts > 0
            known = Known(ticks.elapsed[begun], ticks.times[begun], counts[begun])
            labels = make_labels(self._scope, {"kind": kind, "severity": severity})
            yield from self._standing.column(catalog.EVENTS.name, labels, known, held=True)


def _lost(read: Lines) -> Array:
    """When a GPU did not answer."""
    up = read.known("up")
    return np.asarray(up.elapsed[up.values == 0])


def _word_field(metric: Metric, word: str) -> str:
    return f"{metric.field}:{word}"


def _ages(ticks: Ticks, seen: Array, most: float) -> Known:
    """How long ago the last of these moments was, at each tick; nothing where it is longer ago than `most`."""
    ages = ticks.elapsed - np.append(seen, -np.inf)[np.searchsorted(seen, ticks.elapsed, "right") - 1]
    told = ages <= min(most, np.finfo(float).max)
    return Known(ticks.elapsed[told], ticks.times[told], ages[told])

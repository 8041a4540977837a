"""What a machine's metrics show now, for rules: the same series, with the same labels, as `/metrics` has."""

from collections.abc import Iterator, Mapping

from pulsetrain import catalog
from pulsetrain.catalog.labels import subject_labels
from pulsetrain.live import Live, SubjectState
from pulsetrain.rules.labels import LabelSet, Vector
from pulsetrain.snapshot import Metric, Subject


class LiveSignals:
    """Reads a `Live` for an evaluator."""

    def __init__(self, live: Live, scope: Mapping[str, str]) -> None:
        """`scope` are labels of every series, such as host and run."""
        self._live = live
        self._scope = LabelSet.of(scope)
        self._since = 0.0
        self._read_at: dict[str, float] = {}
        self._subjects: dict[str, list[tuple[LabelSet, SubjectState]]] = {}
        self._labels: dict[str, dict[Subject, tuple[Subject, bool, LabelSet]]] = {}
        """Of each table's subjects as they were last seen, and whether they are of the watched command."""

    def at(self, now: float) -> "LiveSignals":
        """The same, with ages at this time, in seconds since the epoch; without it, at that of the last snapshot."""
        self._since = max(0.0, now - self._live.time)
        return self

    def read(self, metric: Metric) -> Vector:
        if metric is catalog.DATA_AGE:
            return dict(self._ages())
        states = self._states(metric.table)
        field = metric.field
        if metric is catalog.NONFINITE:
            return {
                labels.having("value", value): float(count)
                for labels, state in states
                for value, count in state.nonfinite_counts.items()
            }
        if metric.by and metric is not catalog.STEP_COUNTS:
            return {
                labels.having(metric.by, key): number
                for labels, state in states
                if isinstance(several := state.values.get(field), dict)
                for key, number in several.items()
            }
        if metric.kind == "words":
            return {
                labels.having("reason", word): 1.0
                for labels, state in states
                if isinstance(words := state.values.get(field), list)
                for word in words
            }
        if metric.kind == "amount":
            return {labels: amount for labels, state in states if (amount := _amount(state, field)) is not None}
        return {labels: number for labels, state in states if (number := state.number(field)) is not None}

    def _states(self, table: str) -> list[tuple[LabelSet, SubjectState]]:
        """The subjects of a table, looked up once after each snapshot."""
        if self._read_at.get(table) != self._live.elapsed:
            self._read_at[table] = self._live.elapsed
            self._subjects[table] = self._look_up(table)
        return self._subjects[table]

    def _look_up(self, table: str) -> list[tuple[LabelSet, SubjectState]]:
        states = list(self._live.table(table))
        job = {state.subject.key for state in states if table == "process" and "gpu_index" not in state.subject.labels}
        known, before = {}, self._labels.get(table, {})
        for subject in (state.subject for state in states):
            ours = str(subject.labels.get("pid")) in job
            found = before.get(subject)
            if found is None or found[0].labels != subject.labels or found[1] is not ours:
                found = (subject, ours, LabelSet.of(subject_labels(subject, self._scope.mapping, job)))
            known[subject] = found
        self._labels[table] = known
        return [(known[state.subject][2], state) for state in states]

    def _ages(self) -> Iterator[tuple[LabelSet, float]]:
        for data, tables in catalog.DATA_TABLES.items():
            seen = [state.seen for table in tables for _, state in self._states(table)]
            if seen:
                yield self._scope.having("data", data), self._since + self._live.elapsed - max(seen)


def _amount(state: SubjectState, field: str) -> float | None:
    """What all reports add up to. Steps' durations are a histogram: their sum is there once a step was counted."""
    if field == catalog.STEP_COUNTS.field:
        return sum(state.step_counts.values()) if state.step_counts else None
    if field == "step_seconds" and not state.step_counts:
        return None
    return state.totals.get(field)

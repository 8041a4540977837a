"""The present state of a machine, kept up from snapshots: what live views and exporters show between slow readings."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pulsetrain.catalog import HOST, METRICS, NONFINITE, STEP_COUNTS, TABLES
from pulsetrain.rules.alert import note_alert
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value

HOLD_SECONDS = 12.0
"""A value of a slow source is held so long after it was read; a subject that shows nothing new for so long is gone."""

_AMOUNTS = {(metric.table, metric.field) for metric in METRICS if metric.kind == "amount"}
WATCHED_VALUES = frozenset({"loss", "gradient_norm"})
"""Values whose count of NaN is shown from 0 on, so that its first rise can be seen."""
_COUNTERS = {(metric.table, metric.field) for metric in METRICS if metric.kind == "counter"}


class SubjectState:
    """One subject now: its latest values, and how fast its counters rise."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.values: dict[str, Value] = {}
        self.rates: dict[str, float] = {}
        """Per second, between the last two readings of a field."""
        self.totals: dict[str, float] = defaultdict(float)
        """What the amounts of all reports add up to."""
        self.step_counts: Counter[str] = Counter()
        """Steps by their duration: how many fell into each of the catalog's buckets."""
        self.nonfinite_counts: Counter[str] = Counter()
        """Reports with a value that was NaN or infinite, by which one; 0 for those that could have been."""
        self._first_step: int | None = None
        """0 where the program counts its steps from there, else 1."""
        self.seen = 0.0
        self._field_seen: dict[str, float] = {}

    def update(self, values: dict[str, Value], elapsed: float) -> None:
        if values.get("up") == 0:  # a lost GPU: what it last said is no longer true
            self.values, self.rates, self._field_seen = {}, {}, {}
        for field, value in values.items():
            before = self.values.get(field)
            seconds = elapsed - self._field_seen.get(field, elapsed)
            if not isinstance(value, int | float):
                self.rates.pop(field, None)
            elif seconds > 0 and isinstance(before, int | float):
                if value < before and (self.subject.table, field) in _COUNTERS:  # it was reset
                    self.rates.pop(field, None)
                else:
                    self.rates[field] = (value - before) / seconds
            self.values[field] = value
            self._field_seen[field] = elapsed
        self.seen = elapsed

    def refresh(self, values: dict[str, Value], elapsed: float) -> None:
        """The same without rates, at a fraction of the cost."""
        if values.get("up") == 0:
            self.values, self._field_seen = {}, {}
        self.values.update(values)
        self._field_seen.update(dict.fromkeys(values, elapsed))
        self.seen = elapsed

    def add_up(self, values: dict[str, Value]) -> None:
        """Take the amounts of a report into the totals. A step or the end of a phase says that the phase is over."""
        if "phase" not in values and ("step_seconds" in values or "phase_seconds" in values):
            self.values.pop("phase", None)
        for field, value in values.items():
            if (self.subject.table, field) in _AMOUNTS and isinstance(value, int | float):
                self.totals[field] += value
        if isinstance(counts := values.get(STEP_COUNTS.field), dict):
            self.step_counts.update({bucket: int(count) for bucket, count in counts.items()})
        self.nonfinite_counts.update(dict.fromkeys(WATCHED_VALUES & values.keys(), 0))
        if isinstance(odd := values.get(NONFINITE.field), dict):
            self.nonfinite_counts.update({value: int(count) for value, count in odd.items()})

    def with_steps_done(self, values: dict[str, Value]) -> dict[str, Value]:
        """A report, after it was added up, with the number of steps done, also where the program counts from 0."""
        step = values.get("step")
        if not self.step_counts or not isinstance(step, int | float):
            return values
        if self._first_step is None:
            self._first_step = 0 if step + 1 == self.step_counts.total() else 1
        return values if self._first_step else {**values, "step": step + 1}

    def forget(self, before: float) -> None:
        for field in [field for field, seen in self._field_seen.items() if seen < before]:
            del self.values[field], self._field_seen[field]
            self.rates.pop(field, None)

    def number(self, field: str) -> float | None:
        """A value, when it is there and a number."""
        value = self.values.get(field)
        return value if isinstance(value, int | float) else None


class LastXid(NamedTuple):
    """The XID error that a GPU reported last."""

    number: int
    time: float
    """When it was read, in seconds since the epoch."""


class Live:
    """A consumer of snapshots that knows the present state of every subject."""

    def __init__(self, *, rates: bool = True) -> None:
        """Without `rates`, how fast counters rise is left out."""
        self._rates = rates
        self.time = 0.0
        self.elapsed = 0.0
        self.events: Counter[tuple[str, str]] = Counter()
        """How often each kind of event has come, with each severity."""
        self.alerts: dict[str, Event] = {}
        """Those that fire now, by their keys."""
        self.xids: dict[str, LastXid] = {}
        """The last XID error of each GPU, by its UUID."""
        self.training_name = ""
        """What `set_training` has last called the training; empty where nobody has."""
        self._tables: dict[str, dict[Subject, SubjectState]] = defaultdict(dict)

    def __call__(self, snapshot: Snapshot) -> None:
        self.time, self.elapsed = snapshot.time, snapshot.elapsed
        for event in snapshot.events:
            self._note(event)
        for sample in snapshot.samples:
            self._take(sample, snapshot.elapsed)
        horizon = snapshot.elapsed - HOLD_SECONDS
        for table, states in self._tables.items():
            if not TABLES[table].held:
                self._forget(states, horizon)

    def _take(self, sample: Sample, elapsed: float) -> None:
        subject, values = sample
        states = self._tables[subject.table]
        state = states.get(subject)
        if state is None:
            state = states[subject] = SubjectState(subject)
        state.subject = subject  # what is said of it may be new
        if subject.table == "training":
            state.add_up(values)
            values = state.with_steps_done(values)
        if self._rates:
            state.update(values, elapsed)
        else:
            state.refresh(values, elapsed)

    def _forget(self, states: dict[Subject, SubjectState], horizon: float) -> None:
        for state in list(states.values()):
            if state.seen < horizon:
                del states[state.subject]
            else:
                state.forget(horizon)

    def _note(self, event: Event) -> None:
        self.events[event.kind, event.severity] += 1
        note_alert(self.alerts, event, event)
        if event.kind == "set_training":
            self.training_name = str(event.details.get("training") or "")
        uuid, xid = event.details.get("uuid"), event.details.get("xid")
        if isinstance(uuid, str) and isinstance(xid, int):
            self.xids[uuid] = LastXid(xid, self.time)

    def table(self, table: str) -> Iterator[SubjectState]:
        """The subjects of a table: GPUs by index, others in the order in which they were first seen."""
        found = self._tables.get(table, {}).values()
        return iter(sorted(found, key=lambda state: int(state.subject.labels.get("gpu_index") or 0)))

    @property
    def host(self) -> SubjectState:
        return next(self.table("host"), SubjectState(HOST))

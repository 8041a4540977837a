"""The present state of a machine, kept up from snapshots: what live views and exporters show between slow readings."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from pulsetrain.catalog import METRICS, STEP_COUNTS
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value

HOLD_SECONDS = 12.0
"""A value of a slow source stands so long after it was read; a subject that shows nothing new for so long is gone."""
HELD_TABLES = ("training", "account")
"""What a run says of itself stands until it says something else: a step may take minutes."""

_AMOUNTS = {(metric.table, metric.field) for metric in METRICS if metric.kind == "amount"}


class State:
    """One subject now: its latest values, and how fast its counters rise."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.values: dict[str, Value] = {}
        self.rates: dict[str, float] = {}
        """Per second, between the last two readings of a field."""
        self.totals: dict[str, float] = defaultdict(float)
        """What the amounts of all reports add up to."""
        self.step_counts: Counter[str] = Counter()
        """Steps by their duration: how many fell into each of the catalogue's buckets."""
        self.seen = 0.0
        self._field_seen: dict[str, float] = {}

    def update(self, values: dict[str, Value], elapsed: float) -> None:
        if values.get("up") == 0:  # a lost GPU: what it last said is no longer true
            self.values, self.rates, self._field_seen = {}, {}, {}
        for field, value in values.items():
            before = self.values.get(field)
            seconds = elapsed - self._field_seen.get(field, elapsed)
            if seconds > 0 and isinstance(value, int | float) and isinstance(before, int | float):
                self.rates[field] = (value - before) / seconds
            self.values[field] = value
            self._field_seen[field] = elapsed
        self.seen = elapsed

    def add_up(self, values: dict[str, Value]) -> None:
        """Take the amounts of a report into the totals."""
        for field, value in values.items():
            if (self.subject.table, field) in _AMOUNTS and isinstance(value, int | float):
                self.totals[field] += value
        if isinstance(counts := values.get(STEP_COUNTS.field), dict):
            self.step_counts.update({bucket: int(count) for bucket, count in counts.items()})

    def forget(self, before: float) -> None:
        for field in [field for field, seen in self._field_seen.items() if seen < before]:
            del self.values[field], self._field_seen[field]
            self.rates.pop(field, None)

    def number(self, field: str) -> float | None:
        """A value, when it is there and a number."""
        value = self.values.get(field)
        return value if isinstance(value, int | float) else None


class Live:
    """A consumer of snapshots that knows the present state of every subject."""

    def __init__(self) -> None:
        self.time = 0.0
        self.elapsed = 0.0
        self.events: Counter[tuple[str, str]] = Counter()
        """How often each kind of event has come, with each severity."""
        self.xids: dict[str, int] = {}
        """The last XID error of each GPU, by its UUID."""
        self._tables: dict[str, dict[Subject, State]] = defaultdict(dict)

    def __call__(self, snapshot: Snapshot) -> None:
        self.time, self.elapsed = snapshot.time, snapshot.elapsed
        for event in snapshot.events:
            self._note(event)
        for sample in snapshot.samples:
            self._take(sample, snapshot.elapsed)
        horizon = snapshot.elapsed - HOLD_SECONDS
        for table, states in self._tables.items():
            if table not in HELD_TABLES:
                self._forget(states, horizon)

    def _take(self, sample: Sample, elapsed: float) -> None:
        subject, values = sample
        states = self._tables[subject.table]
        state = states.get(subject)
        if state is None:
            state = states[subject] = State(subject)
        state.subject = subject  # what is said of it may be new
        state.update(values, elapsed)
        if subject.table == "training":
            state.add_up(values)

    def _forget(self, states: dict[Subject, State], horizon: float) -> None:
        for state in list(states.values()):
            if state.seen < horizon:
                del states[state.subject]
            else:
                state.forget(horizon)

    def _note(self, event: Event) -> None:
        self.events[event.kind, event.severity] += 1
        uuid, xid = event.details.get("uuid"), event.details.get("xid")
        if isinstance(uuid, str) and isinstance(xid, int):
            self.xids[uuid] = xid

    def table(self, table: str) -> Iterator[State]:
        """The subjects of a table: GPUs by index, others in the order in which they were first seen."""
        found = self._tables.get(table, {}).values()
        return iter(sorted(found, key=lambda state: int(state.subject.labels.get("gpu_index") or 0)))

    @property
    def host(self) -> State:
        return next(self.table("host"), State(Subject("host", "")))

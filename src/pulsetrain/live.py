"""The present state of a machine, kept up from snapshots: what live views and exporters show between slow readings."""

from collections.abc import Iterator

from pulsetrain.snapshot import Snapshot, Subject, Value

HOLD_SECONDS = 12.0
"""A value of a slow source stands so long after it was read; a subject that shows nothing new for so long is gone."""


class State:
    """One subject now: its latest values, and how fast its counters rise."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.values: dict[str, Value] = {}
        self.rates: dict[str, float] = {}
        """Per second, between the last two readings of a field."""
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
        self._states: dict[Subject, State] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        self.time = snapshot.time
        for sample in snapshot.samples:
            state = self._states.get(sample.subject)
            if state is None:
                state = self._states[sample.subject] = State(sample.subject)
            state.update(sample.values, snapshot.elapsed)
        horizon = snapshot.elapsed - HOLD_SECONDS
        for state in list(self._states.values()):
            if state.seen < horizon:
                del self._states[state.subject]
            else:
                state.forget(horizon)

    def table(self, table: str) -> Iterator[State]:
        """The subjects of a table: GPUs by index, others in the order in which they were first seen."""
        found = [state for state in self._states.values() if state.subject.table == table]
        return iter(sorted(found, key=lambda state: int(state.subject.labels.get("gpu_index") or 0)))

    @property
    def host(self) -> State:
        return next(self.table("host"), State(Subject("host", "")))

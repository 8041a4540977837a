"""What the last snapshot brought: for servers that keep every sample with its own time."""

from collections.abc import Iterator

from pulsetrain.live import Live, SubjectState
from pulsetrain.snapshot import Snapshot, Subject, Value


class LatestReadings(Live):
    """Knows the present state, and shows of it what was just read: a slow value once, and not again until the next."""

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[Subject, dict[str, Value]] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        super().__call__(snapshot)
        self._read = {sample.subject: sample.values for sample in snapshot.samples}

    def table(self, table: str) -> Iterator[SubjectState]:
        """All subjects, those without news too: who else is there can matter for labels."""
        for state in super().table(table):
            fresh = SubjectState(state.subject)
            fresh.seen = state.seen
            if state.subject in self._read:
                fresh.values = self._read[state.subject]
                fresh.totals, fresh.step_counts = state.totals, state.step_counts
                fresh.nonfinite_counts = state.nonfinite_counts
            yield fresh

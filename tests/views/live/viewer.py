"""A viewer for tests of feeds: it keeps what a feed brings."""

import threading
import time
from collections.abc import Callable

from pulsetrain.snapshot import Event, Sample, Snapshot, Subject
from pulsetrain.views.live.feeds import Feed
from pulsetrain.views.live.history import History

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"})


class Viewer:
    """A consumer that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.history = History()
        self.snapshots: list[Snapshot] = []
        self.lock = threading.Lock()

    def __call__(self, snapshot: Snapshot) -> None:
        with self.lock:
            self.history(snapshot)
            self.snapshots.append(snapshot)

    def events(self) -> list[Event]:
        with self.lock:
            return [event for snapshot in self.snapshots for event in snapshot.events]

    def watts(self) -> float | None:
        with self.lock:
            return next((gpu.number("power_draw_watts") for gpu in self.history.live.table("gpu")), None)

    def lost(self) -> bool:
        with self.lock:
            return any(gpu.values.get("up") == 0 for gpu in self.history.live.table("gpu"))

    def ended(self) -> bool:
        with self.lock:
            return any(snapshot.last for snapshot in self.snapshots)

    def in_order(self) -> bool:
        times = [snapshot.elapsed for snapshot in self.snapshots]
        return times == sorted(times)


Show = Callable[[Feed], Viewer]
"""Starts a feed, and gives its viewer."""


def reading(watts: float | None, elapsed: float = 0.0, *events: Event) -> Snapshot:
    values = {"up": 0} if watts is None else {"up": 1, "power_draw_watts": watts}
    return Snapshot(time.time(), elapsed, (Sample(GPU, dict(values)),), events)

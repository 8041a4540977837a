"""A consumer of snapshots that sends them to a server, from a thread of its own: no reading waits for a network."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path

from pulsetrain.live import Live
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push import KINDS
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.latest_readings import LatestReadings
from pulsetrain.outputs.push.outlet import BATCH_SECONDS, Outlet, PushLink
from pulsetrain.outputs.push.spool import Spool
from pulsetrain.outputs.push.target import PushTarget
from pulsetrain.snapshot import Snapshot
from pulsetrain.supervise import Supervisor, Worker

LOOK_SECONDS = 1.0
"""How often the thread looks whether something is to be done."""
FINAL_SECONDS = 5.0
"""So long the end of a run is held up to send what is left; twice as long, when a request hangs."""
WAITING_SNAPSHOTS = 600
"""How many readings wait in memory while a request hangs."""
STUCK_AFTER_SECONDS = 120.0
"""Requests end by themselves long before this."""

FamiliesOf = Callable[[Live], Collection[Family]]
"""What is sent of a state."""


class Pusher:
    """Sends what is read to one target."""

    def __init__(
        self,
        target: PushTarget,
        client: Client,
        labels: Mapping[str, str],
        families_of: FamiliesOf,
        spool_folder: Path,
        batch_seconds: float = BATCH_SECONDS,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`labels` are those of every series; what cannot be sent at once waits in the folder."""
        self.target = target
        self._families_of = families_of
        self._client = client
        self._part = (supervisor or Supervisor()).part(f"push-{target.name}", STUCK_AFTER_SECONDS)
        self._every = _every(target)
        self._live = Live() if self._every else LatestReadings()
        spool = Spool(spool_folder, target.name)
        link = PushLink(target, client, labels, spool, self._part, batch_seconds, lambda: self._live.training_name)
        self._outlet = open_outlet(link)
        self._greeted = False
        self._due = 0.0
        self._arrived: deque[Snapshot] = deque(maxlen=WAITING_SNAPSHOTS)
        self._missed = 0
        self._worker = Worker(
            self._part, self._send, every_seconds=LOOK_SECONDS, finish=self._finish, what=f"sending to {target.host}"
        )
        self._worker.start()

    def __call__(self, snapshot: Snapshot) -> None:
        """Take a snapshot in; the thread makes something of it."""
        if len(self._arrived) == WAITING_SNAPSHOTS:
            self._missed += 1
        self._arrived.append(snapshot)

    def end(self) -> None:
        """No more will come: send what is left. `wait` waits for it."""
        self._worker.stop(timeout_seconds=0.0)

    def wait(self) -> str | None:
        """What was not done in the end, in words."""
        ended = self._worker.stop(2 * FINAL_SECONDS)
        parts = [f"{self._missed:,} readings were not accepted"] if self._missed else []
        if not ended:
            parts.append(f"{self.target.host} did not respond in time: the last readings may be missing")
        return "; ".join(filter(None, [*parts, self._outlet.left])) or None

    def _send(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._outlet.start()
        self._take_in()
        self._outlet.flush()

    def _finish(self) -> None:
        self._take_in()
        try:
            self._outlet.finish(FINAL_SECONDS)
        finally:
            self._client.close()

    def _take_in(self) -> None:
        while self._arrived:
            snapshot = self._arrived.popleft()
            with self._part.attempt("a reading"):
                self._add(snapshot)

    def _add(self, snapshot: Snapshot) -> None:
        late = snapshot.elapsed < self._live.elapsed
        self._live(snapshot)
        if snapshot.last or snapshot.elapsed >= self._due:
            self._due = snapshot.elapsed + self._every - 0.01 if self._every else 0.0
            self._outlet.add(snapshot.time, self._families_of(self._live), late=late)


def _every(target: PushTarget) -> float:
    """Seconds between two states; 0 is every reading."""
    return KINDS[target.kind].every_seconds if target.interval is None else target.interval


def open_outlet(link: PushLink) -> Outlet:
    """How to speak to the target, by its kind."""
    module = import_module(f"pulsetrain.outputs.push.{link.target.kind.replace('-', '_')}")
    outlet: Outlet = module.open_outlet(link)
    return outlet

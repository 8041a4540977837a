"""A consumer of snapshots that sends them to a server, from a thread of its own: no reading waits for a network."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pulsetrain.live import Live
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push import otlp, remote_write, victoriametrics
from pulsetrain.outputs.push.fresh import Fresh
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.pushgateway import Pushgateway
from pulsetrain.outputs.push.sender import BATCH_SECONDS, Channel, Sender
from pulsetrain.outputs.push.spool import Spool
from pulsetrain.outputs.push.target import Target
from pulsetrain.snapshot import Snapshot

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the thread looks whether something is to be done."""
STATE_SECONDS = 15.0
"""Between two states, for servers that do not get every reading."""
FINAL_SECONDS = 5.0
"""So long the end of a run is held up to send what is left; twice as long, when a request hangs."""
WAITING_SNAPSHOTS = 600
"""While a request hangs, so many readings wait in memory."""

View = Callable[[Live], Collection[Family]]
"""What is sent of a state."""


class Outlet(Protocol):
    """One way to send families, used by the pusher's thread alone."""

    def start(self) -> None:
        """Greet the server, before there is anything to send."""

    def add(self, seconds: float, families: Collection[Family], *, late: bool) -> None:
        """Take the families of this time; `late` when those of a later one have been taken."""

    def flush(self) -> None:
        """Send what is due, if the server may be asked."""

    def finish(self, seconds: float) -> None:
        """Send the rest; try no longer than this."""

    @property
    def left(self) -> str | None:
        """What could not be done, in words."""


class Pusher:
    """Sends what is read to one target."""

    def __init__(
        self,
        target: Target,
        scope: Mapping[str, str],
        view: View,
        spool_folder: Path,
        batch_seconds: float = BATCH_SECONDS,
    ) -> None:
        """`scope` are the labels of every series; what cannot be sent at once waits in the folder."""
        self.target = target
        self._view = view
        self._client = Client(target)
        self._outlet = _outlet(target, self._client, scope, Spool(spool_folder, target.name), batch_seconds)
        self._every = _every(target)
        self._live = Live() if self._every else Fresh()
        self._due = 0.0
        self._arrived: deque[Snapshot] = deque(maxlen=WAITING_SNAPSHOTS)
        self._missed = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"push-{target.name}", daemon=True)
        self._thread.start()

    def __call__(self, snapshot: Snapshot) -> None:
        """Take a snapshot in; the thread makes something of it."""
        if len(self._arrived) == WAITING_SNAPSHOTS:
            self._missed += 1
        self._arrived.append(snapshot)

    def end(self) -> None:
        """No more will come: send what is left. `wait` waits for it."""
        self._closing.set()

    def wait(self) -> str | None:
        """What was not done in the end, in words."""
        self._thread.join(2 * FINAL_SECONDS)
        parts = [f"{self._missed:,} readings were not taken in"] if self._missed else []
        if self._thread.is_alive():
            parts.append(f"{self.target.host} did not answer in time, and has the last readings or not")
        return "; ".join(filter(None, [*parts, self._outlet.left])) or None

    def _run(self) -> None:
        self._outlet.start()
        while not self._closing.wait(LOOK_SECONDS):
            self._take_in()
            self._outlet.flush()
        self._take_in()
        self._outlet.finish(FINAL_SECONDS)
        self._client.close()

    def _take_in(self) -> None:
        while self._arrived:
            snapshot = self._arrived.popleft()
            late = snapshot.elapsed < self._live.elapsed
            self._live(snapshot)
            if snapshot.last or snapshot.elapsed >= self._due:
                self._due = snapshot.elapsed + self._every - 0.01 if self._every else 0.0
                self._outlet.add(snapshot.time, self._view(self._live), late=late)


def _every(target: Target) -> float:
    """Seconds between two states; 0 is every reading, as the servers want it that keep times."""
    if target.interval is not None:
        return target.interval
    return 0.0 if target.kind in ("remote-write", "victoriametrics") else STATE_SECONDS


def _outlet(target: Target, client: Client, scope: Mapping[str, str], spool: Spool, batch_seconds: float) -> Outlet:
    if target.kind == "pushgateway":
        return Pushgateway(target, client, scope)
    return Sender(target, client, channel(target, client), spool, batch_seconds)


def channel(target: Target, client: Client) -> Channel:
    """How to speak to a server that keeps each sample with its time."""
    if target.kind == "victoriametrics":
        return victoriametrics.VictoriaMetrics(client, target.url)
    if target.kind == "otlp":
        return otlp.Otlp(client, with_path(target.url, otlp.PATH))
    return remote_write.RemoteWrite(client, with_path(target.url, remote_write.PATH))


def with_path(url: str, path: str) -> str:
    """The URL, with the usual path when it has none."""
    return url if urlsplit(url).path else url + path

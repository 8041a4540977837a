"""The output of all `--push` targets: one pusher for each, and one end for all."""

import logging
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from pulsetrain.live import Live
from pulsetrain.outputs import Origin
from pulsetrain.outputs.families import RunInfo, families, run_info_of
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push import KINDS
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.pusher import Pusher
from pulsetrain.outputs.push.target import PushTarget
from pulsetrain.snapshot import Snapshot

log = logging.getLogger(__name__)

SPOOL_FOLDER = "push"
"""In the host's folder of a run: what waits for a server that is away."""


class PushOutput:
    """Sends snapshots to every target, each from a thread of its own."""

    notice = None

    def __init__(self, targets: Sequence[PushTarget], names: Collection[str]) -> None:
        """`names` are the metric naming schemes to send. Raises UsageError for settings that cannot work."""
        self._clients = [(target, Client(target)) for target in targets]
        self._names = names
        self._origin = Origin("")
        self._run_info: RunInfo | None = None
        self._pushers: list[Pusher] = []
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def start(self, origin: Origin) -> None:
        self._origin = origin
        self._run_info = run_info_of(origin.run) if origin.run else None
        if origin.folder:
            folder = origin.folder / SPOOL_FOLDER
        else:
            self._temporary = tempfile.TemporaryDirectory(prefix="pulsetrain-push-")
            folder = Path(self._temporary.name)
        self._pushers = [
            Pusher(target, client, origin.labels, self._families_of, folder, supervisor=origin.supervisor)
            for target, client in self._clients
        ]

    def __call__(self, snapshot: Snapshot) -> None:
        for pusher in self._pushers:
            pusher(snapshot)

    def close(self) -> None:
        """Send what is left, to all at once, and log what could not be sent."""
        for pusher in self._pushers:
            pusher.end()
        for pusher in self._pushers:
            if left := pusher.wait():
                log.warning("push to %s: %s%s", pusher.target.name, left, self._hint(pusher.target))
        if self._temporary:
            self._temporary.cleanup()

    def _families_of(self, live: Live) -> Collection[Family]:
        return families(live, self._origin.labels, self._names, run_info=self._run_info)

    def _hint(self, target: PushTarget) -> str:
        if self._origin.run is None or not KINDS[target.kind].takes_history:
            return ""
        return f"\n  hint: the run folder has all of them: pulsetrain export {self._origin.run.id} --to {target.spec}"

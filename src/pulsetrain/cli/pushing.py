"""Pushing, as a session does it: one pusher for each target, and what is said at the end."""

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pulsetrain.cli import logs
from pulsetrain.live import Live
from pulsetrain.outputs.families import facts_of, families
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push.pusher import Pusher
from pulsetrain.outputs.push.target import Target
from pulsetrain.runs.folder import host_name

if TYPE_CHECKING:
    from pulsetrain.cli.session import Recording

SPOOL_FOLDER = "push"
"""In the host's folder of a run: what waits for a server that is away."""


class Pushing:
    """Pushers for these targets, and their end."""

    def __init__(self, targets: Sequence[Target], names: Collection[str], recording: "Recording | None") -> None:
        """`names` are the spellings to send: native, dcgm, nvidia_smi."""
        self._names = names
        self._run = recording.run if recording else None
        self._facts = facts_of(self._run) if self._run else None
        self._scope = {"host": host_name()} | ({"run": self._run.id} if self._run else {})
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if recording:
            folder = recording.host_folder / SPOOL_FOLDER
        else:
            self._temporary = tempfile.TemporaryDirectory(prefix="pulsetrain-push-")
            folder = Path(self._temporary.name)
        self.consumers = [Pusher(target, self._scope, self._view, folder) for target in targets]

    def stop(self) -> None:
        """Send what is left, to all at once, and say what could not be sent."""
        for pusher in self.consumers:
            pusher.end()
        for pusher in self.consumers:
            if left := pusher.wait():
                logs.log.warning("push to %s: %s%s", pusher.target.name, left, self._hint(pusher.target))
        if self._temporary:
            self._temporary.cleanup()

    def _view(self, live: Live) -> Collection[Family]:
        return families(live, self._scope, self._names, facts=self._facts)

    def _hint(self, target: Target) -> str:
        if self._run is None or target.kind not in ("remote-write", "victoriametrics"):
            return ""
        return f"\n  hint: the run has it all: pulsetrain export {self._run.id} --to {target.spec}"

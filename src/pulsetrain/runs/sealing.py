"""Has the full segments of a run sealed, by a short-lived child process: the watching process itself stays small."""

import subprocess
import sys
import threading
from pathlib import Path

from pulsetrain.errors import PulsetrainError
from pulsetrain.supervise import Supervisor, Worker

RETRY_SECONDS = 3600.0
"""What could not be sealed is tried again so often, and whenever another segment is full."""
STUCK_AFTER_SECONDS = 1800.0
"""A child takes what time and disk nobody else wants."""


class Sealer:
    """Takes closed segments of one host's folder. One that cannot be sealed is named once, and holds up no other."""

    def __init__(self, folder: Path, supervisor: Supervisor | None = None) -> None:
        self._folder = folder.absolute()
        self._changed = threading.Condition()
        self._closed: set[str] = set()
        self._arrived = self._sealing = self._started = False
        self._skipped: set[str] = set()
        self._part = (supervisor or Supervisor()).part("sealer", STUCK_AFTER_SECONDS)
        self._worker = Worker(self._part, self._seal_all, every_seconds=RETRY_SECONDS, what="sealing")

    def add(self, segment: Path) -> None:
        """A segment is full, and nobody writes it any more. Returns at once; called from any thread."""
        if sys.platform == "win32":
            return  # a file that is being read cannot be removed there
        with self._changed:
            self._closed.add(segment.name)
            self._arrived = True
            if self._started:
                self._worker.wake()
            else:
                self._started = True
                self._worker.start()

    def wait(self) -> None:
        """Until what has been added so far is dealt with."""
        with self._changed:
            self._changed.wait_for(lambda: not self._arrived and not self._sealing)

    def _seal_all(self) -> None:
        with self._changed:
            self._arrived, self._sealing = False, True
            closed = sorted(self._closed)
        try:
            names = [name for name in closed if (self._folder / name).exists()]
            with self._changed:
                self._closed.difference_update(set(closed) - set(names))
            # All at once: a child takes longer to start than to seal. Then each by itself, to find the one that fails.
            if names and (failure := self._failure(names)):
                self._seal_each(names, failure)
        finally:
            with self._changed:
                self._sealing = False
                self._changed.notify_all()

    def _seal_each(self, names: list[str], failure: str) -> None:
        for name in names:
            if len(names) > 1:
                failure = self._failure([name])
            if not failure:
                self._part.succeed()
                continue
            what = f"{name}, which could not be sealed and stays JSON lines"
            self._part.skip(what, PulsetrainError(failure), items=int(name not in self._skipped))
            self._skipped.add(name)

    def _failure(self, names: list[str]) -> str:
        """Why a child could not seal these, or what is left of them; empty if it could."""
        # -P: the working folder may be anybody's, and its modules are none of ours.
        command = [sys.executable, "-P", "-m", "pulsetrain.runs.seal", str(self._folder), *names]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
                start_new_session=True,  # Ctrl-C is meant for the command
            )  # fmt: skip
        except OSError as error:
            return str(error)
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1] if done.returncode else ""

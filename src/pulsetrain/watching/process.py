"""A process that already runs, and the session around it."""

import threading
from collections.abc import Callable

import psutil

from pulsetrain.errors import UsageError
from pulsetrain.sources.job import Job
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import claim_run
from pulsetrain.watching.session import Session

Outcome = tuple[str, int | None]
"""Status and exit code of a run."""
DETACHED: Outcome = ("detached", None)
FINISHED: Outcome = ("finished", None)
LOOK_SECONDS = 0.5
"""How often to see whether the process still lives."""


class WatchedProcess:
    """A process to watch and record, which is not disturbed by it."""

    def __init__(self, pid: int, options: WatchOptions) -> None:
        try:
            self._process = psutil.Process(pid)
            command = self._process.cmdline()
        except psutil.Error:
            raise UsageError(f"there is no process {pid}, or you are not allowed to watch it.") from None
        job = Job(from_now=True)
        job.watch(pid)
        self.session = Session(options, [job])
        self.session.open(claim_run(options, command))

    def run(
        self,
        stop: threading.Event,
        *,
        stopped: Callable[[], Outcome] = lambda: DETACHED,
        ended: Callable[[], Outcome] = lambda: FINISHED,
    ) -> None:
        """Watch until the process has ended, or until `stop` is set.

        `ended` or `stopped` is then asked for the status and exit code of the run.
        """
        self.session.start()
        self.session.watch_process(self._process.pid)
        while (alive := lives(self._process)) and not stop.wait(LOOK_SECONDS):
            pass
        self.session.watch_process(None)
        self.session.stop()
        self.session.finish(*(stopped() if alive else ended()))


def lives(process: psutil.Process) -> bool:
    """Whether a process has not ended. It may end at any moment, between two questions too."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

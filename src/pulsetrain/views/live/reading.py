"""What is read from the files of a run in view, beside its snapshots: in a thread of its own, as often as it may."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from pulsetrain.runs.folder import Run, RunFolder

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

log = logging.getLogger(__name__)


class RunReader:
    """Reads a run again and again while it is in progress, and once at its end."""

    def __init__(self, folder: RunFolder, *, period_seconds: float, share: float) -> None:
        """Between two readings at least `period_seconds`; all of them take at most `share` of a core."""
        self._folder = folder
        self._period = period_seconds
        self._share = share
        self._stopped = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.read_once = threading.Event()
        """Set after the first reading."""

    def start(self, changed: Callable[[], None] = lambda: None) -> None:
        """Begin to read; `changed` is called after each reading. Of several calls, only the first counts."""
        if self._thread is None:
            name = f"{type(self).__name__}-{self._folder.path.name}"
            self._thread = threading.Thread(target=self._run, args=(changed,), name=name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Returns at once, whatever the thread is waiting for."""
        self._stopped = True
        self._wake.set()

    def read_soon(self) -> None:
        """Do not wait for the next time: the run has ended."""
        self._wake.set()

    def _run(self, changed: Callable[[], None]) -> None:
        over = False
        while not (over or self._stopped):
            self._wake.clear()
            began, worked = time.monotonic(), time.process_time()
            over = self._try()
            self.read_once.set()
            if not self._stopped:
                changed()
            # The database works in several threads, so that a core's time may be more than what passed.
            took = max(time.monotonic() - began, time.process_time() - worked)
            if not (over or self._stopped):
                self._wake.wait(max(self._period, took / self._share))

    def _try(self) -> bool:
        """Whether the run had ended, so that there is nothing more to come."""
        from pulsetrain.runs.database import Database

        try:
            run = self._folder.load()
            with closing(Database([self._folder])) as database:
                self._read(run, database)
        except Exception as error:  # what the last reading gave stays, and the next may succeed
            log.debug("%s cannot be read", self._folder.path, exc_info=error)
            return False
        return run.status != "running"

    def _read(self, run: Run, database: "Database") -> None:
        raise NotImplementedError

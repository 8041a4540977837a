"""Which run the hosts of a job send to a collector: the one that the first of them has begun.

Hosts that share no folder cannot know of each other's runs. Each asks before it begins, and takes the id it is given.
"""

import contextlib
import hashlib
import threading
import time
from pathlib import Path

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, RunFolder

FOLDER = ".jobs"
"""Beside the runs: a small file for each job, with the id of its run."""
BEGINNING_SECONDS = 120.0
"""So long a run of which nothing has arrived yet may be joined."""
KEPT_SECONDS = 30 * 86400.0
"""After that nobody joins: the file is removed."""


class Jobs:
    """Asked from any thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._folder = home.path / FOLDER
        self._lock = threading.Lock()

    def run_of(self, job: str, host: str, proposed: str) -> str:
        """The run that this host is to write: that of the job while it is in progress, or else the proposed one."""
        file = self._folder / hashlib.sha256(job.encode("utf-8", "replace")).hexdigest()[:32]
        with self._lock:
            with contextlib.suppress(FileNotFoundError):
                begun = file.read_text()
                if self._may_join(begun, host, time.time() - file.stat().st_mtime):
                    return begun
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            self._tidy_up()
            file.write_text(proposed)
            return proposed

    def _may_join(self, run: str, host: str, age_seconds: float) -> bool:
        """A run that has ended is joined by nobody, and neither is one that knows the host: it is started again."""
        try:
            about = RunFolder(self._home.path / run).load()
        except PulsetrainError:
            return age_seconds < BEGINNING_SECONDS
        return about.status == "running" and host not in about.hosts

    def _tidy_up(self) -> None:
        for old in self._folder.iterdir():
            if _age_seconds(old) > KEPT_SECONDS:
                old.unlink(missing_ok=True)


def _age_seconds(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return 0.0

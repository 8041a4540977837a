"""A run while it is being written: its files, followed as they grow, as the snapshots of its ticks.

The files may be written on another machine, into a folder that both share. A file that is full is continued in another,
and may be sealed and gone before we have come to its end: an open one can still be read.
"""

import math
import time

from pulsetrain.errors import PulsetrainError
from pulsetrain.regular_files import is_regular
from pulsetrain.runs.folder import RunFolder, table_of
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.ticks import Ticks
from pulsetrain.snapshot import Snapshot

STATUS_SECONDS = 1.0
"""How often it is looked whether the run has ended."""


class Follow:
    """One host of a run, from a moment on. Each `read` gives what has come since the one before, in order of time."""

    def __init__(self, run: RunFolder, host: str, start: float = -math.inf) -> None:
        """`start` in seconds since the run began. What was before is left to `outline`."""
        self._run = run
        self._folder = run.host_folder(host)
        self._files: dict[str, tuple[str, LineFile]] = {}
        """By name: whose lines a file holds, and the file."""
        self._ticks = Ticks()
        self._newest = Snapshot(time.time(), 0.0, ())
        """The time of the last one that was shown."""
        self._looked = -math.inf
        self._ended = False
        self._start = start

    def read(self) -> list[Snapshot]:
        """The snapshots of the ticks that are complete; the last one of all says so.

        Lines are written file by file. What the last look brought is complete with this one.
        """
        complete = self._ticks.newest
        self._ended = self._ended or self._has_ended()  # before the files: they then hold all that will come
        self._find()
        self._start = -math.inf  # what is begun from now on is read whole
        for name, (table, file) in list(self._files.items()):
            gone = file.gone
            for line in file.all_lines():
                self._ticks.add(table, line)
            if gone:
                del self._files[name]
                file.close()
        snapshots = list(self._ticks.rest() if self._ended else self._ticks.take(complete))
        if snapshots:
            self._newest = snapshots[-1]._replace(samples=(), events=())
        if self._ended:
            last = snapshots.pop() if snapshots else self._newest
            snapshots.append(last._replace(last=True))
        return snapshots

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def close(self) -> None:
        for _, file in self._files.values():
            file.close()
        self._files.clear()

    def _find(self) -> None:
        """Open the files that are new."""
        # Events last: some have no elapsed time of their own, and are placed by that of other lines.
        for path in sorted(self._folder.glob("*.jsonl"), key=lambda path: (path.stem == "events", path.name)):
            table = table_of(path)
            if path.name in self._files or table is None or not is_regular(path):
                continue
            try:
                file = LineFile(path)
            except FileNotFoundError:
                continue  # sealed just now
            self._files[path.name] = (table, file)
            if self._start > -math.inf:
                file.seek(self._start)

    def _has_ended(self) -> bool:
        now = time.monotonic()
        if now < self._looked + STATUS_SECONDS:
            return False
        self._looked = now
        try:
            return self._run.load().status != "running"
        except PulsetrainError:
            return True  # its folder is gone

"""The collector's part: segments that senders bring, one at a time, put together as they come.

A sender brings its segments in order, and each is applied before it is acknowledged. One that overtakes another waits
in the folder `.collected` beside the runs.
"""

import logging
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, RunFolder
from pulsetrain.supervise import Supervisor, Worker
from pulsetrain.transfer.assemble import Assembly
from pulsetrain.transfer.fetching import PATIENCE_SECONDS, Fetcher
from pulsetrain.transfer.folder import FolderStore
from pulsetrain.transfer.jobs import Jobs
from pulsetrain.transfer.segments import Segment, parse_name, read_segment
from pulsetrain.transfer.store import COLLECTOR_VARIABLE

log = logging.getLogger(__name__)

INBOX = ".collected"
LOGIN_FILE = "collector-token"
MOST_OPEN = 256
"""Runs that are kept open between two segments."""
LOOK_SECONDS = 5.0
"""How often it is looked whether what waits has waited long enough."""

Received = Literal["applied", "known", "waiting"]


class OverQuota(PulsetrainError):
    """The run is as large as it may become."""


class Receiver:
    """Takes segments from any thread. Raises BadSegment, OverQuota, NotFetched, InUse, or OSError for a full disk."""

    def __init__(self, home: Home, *, quota_bytes: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._home = home
        self.jobs = Jobs(home)
        self._quota_bytes = quota_bytes
        self._inbox = home.path / INBOX
        self._store = FolderStore(self._inbox)
        self._fetcher = Fetcher(self._store, home, patience_seconds=patience_seconds, rebuild=False)
        self._open: OrderedDict[str, Assembly] = OrderedDict()
        self._busy: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._waiting = set(self._store.list(""))
        """Runs of which something waits in the inbox."""
        part = Supervisor().part("collector")
        self._worker = Worker(part, self._look, every_seconds=LOOK_SECONDS, what="checking for waiting segments")
        self._worker.start()

    def receive(self, run: str, writer: str, name: str, data: bytes) -> Received:
        """Take a segment in: when this returns, it is in the run folder, or waits on disk for those before it."""
        segment = read_segment(data, run, writer, name)
        with self._lock:
            busy = self._busy.setdefault(run, threading.Lock())
        with busy:
            assembly = self._assembly(run)
            if segment.header.seq < assembly.progress(writer).next:
                return "known"
            self._check_quota(assembly, run, segment)
            if assembly.fits(segment):
                assembly.apply(segment)
                if run in self._waiting:
                    self._take_in(run)
                return "applied"
            self._store.put(f"{run}/{writer}/{name}", data)
            self._waiting.add(run)
            return "waiting"

    def close(self) -> None:
        self._worker.stop(LOOK_SECONDS)
        self._fetcher.close()
        with self._lock:
            for assembly in self._open.values():
                assembly.close()
            self._open.clear()

    def _assembly(self, run: str) -> Assembly:
        with self._lock:
            found = self._open.pop(run, None)
            if found and not found.folder.path.is_dir():  # removed meanwhile: it starts over
                found.close()
                found = None
            if found:
                self._open[run] = found
                return found
        made = Assembly(RunFolder(self._home.path / run))
        with self._lock:
            self._open[run] = made
            while len(self._open) > MOST_OPEN:
                for other in self._open:
                    if other != run and not self._busy[other].locked():
                        self._open.pop(other).close()
                        break
                else:
                    break
        return made

    def _check_quota(self, assembly: Assembly, run: str, segment: Segment) -> None:
        waiting = 0
        if run in self._waiting:
            waiting = sum(file.stat().st_size for file in (self._inbox / run).rglob("*.seg"))
        if assembly.bytes_here + waiting + len(segment.content) > self._quota_bytes:
            raise OverQuota(f"the run has reached this collector's quota of {self._quota_bytes / 1e9:g} GB.")

    def _look(self) -> None:
        for run in list(self._waiting):
            with self._lock:
                busy = self._busy.setdefault(run, threading.Lock())
            with busy:
                self._take_in(run)

    def _take_in(self, run: str) -> None:
        """Apply what waits of a run, as far as it follows or has waited long enough."""
        with self._lock:
            assembly = self._open.pop(run, None)
        if assembly:
            assembly.close()
        for gap in self._fetcher.fetch(run).gaps:
            log.warning("%s: %s did not arrive", run, gap)
        done = True
        with Assembly(RunFolder(self._home.path / run)) as assembly:
            for writer in self._store.list(run):
                following = assembly.progress(writer).next
                for name in self._store.list(f"{run}/{writer}"):
                    parsed = parse_name(name)
                    if parsed and parsed.seq >= following:
                        done = False
                    else:
                        (self._inbox / run / writer / name).unlink()
        if done:
            self._waiting.discard(run)
            for folder in [*(self._inbox / run).iterdir(), self._inbox / run]:
                folder.rmdir()


def collector_token(checked: Callable[[str], str]) -> tuple[str, str]:
    """The token that senders need, and where they get it from, in words. It stays the same from start to start."""
    if given := os.environ.get(COLLECTOR_VARIABLE):
        return checked(given), COLLECTOR_VARIABLE
    file = Home.find().path.parent / LOGIN_FILE
    how = f"{COLLECTOR_VARIABLE} from {file}"
    try:
        return checked(file.read_text().strip()), how
    except FileNotFoundError:
        pass
    token = secrets.token_urlsafe(24)
    file.parent.mkdir(parents=True, exist_ok=True)
    _write_private(file, f"{token}\n")
    return token, how


def _write_private(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)

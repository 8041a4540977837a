"""Writes snapshots into a run folder as JSON lines, batched, from a thread of its own.

At most 60 samples or 2 seconds are unwritten; events are written at once, for whoever follows the files. When the disk
is full or away, lines wait in bounded memory; the oldest go first, their number is reported, and writing resumes when
it can.
"""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pulsetrain.catalog import EVENT_TABLE, TABLES, Table
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.codec import FROM_TRAINING, Encoder
from pulsetrain.snapshot import Event, Snapshot
from pulsetrain.supervise import Supervisor, Worker

log = logging.getLogger(__name__)

BATCH_SAMPLES = 60
BATCH_SECONDS = 2.0
SEGMENT_BYTES = 64 * 2**20
"""A file is closed and the next one begun at this size, so that a week-long run stays in pieces that can be sealed."""
WAITING_LINES = 20_000
"""How many lines of one file may wait for a disk that does not take them, and samples for one that hangs."""
STUCK_AFTER_SECONDS = 30.0
"""A batch that takes so long is stuck: the disk hangs."""
CLOSE_SECONDS = 5.0
"""How long the end of a run waits for a disk that hangs."""


class Segments:
    """The files of one table: appended to, and continued in a new file when one is full."""

    def __init__(
        self,
        folder: Path,
        table: Table,
        start: datetime,
        segment_bytes: int = SEGMENT_BYTES,
        closed: Callable[[Path], None] | None = None,
    ) -> None:
        self._folder = folder
        self._start = start
        self._table = table
        self._segment_bytes = segment_bytes
        self._closed = closed
        self._path: Path | None = None
        self._file: int | None = None
        self._size = 0
        self._waiting: deque[bytes] = deque(maxlen=WAITING_LINES)
        self.lost_lines = 0

    def append(self, line: bytes) -> None:
        if len(self._waiting) == WAITING_LINES:
            self.lost_lines += 1
        self._waiting.append(line)

    def flush(self) -> None:
        """Write what waits. On an OSError the file counts as it was before, and the lines wait on."""
        if not self._waiting:
            return
        try:
            self._write(b"".join(self._waiting))
        except OSError:
            self._take_back()
            raise
        self._waiting.clear()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take_back(self) -> None:
        """Cut off what a failed write has left, half a line maybe, and reopen the file for the next one."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                os.ftruncate(self._file, self._size)
        self.close()

    @property
    def waiting_lines(self) -> int:
        return len(self._waiting)

    def _write(self, data: bytes) -> None:
        if self._path is None or self._size >= self._segment_bytes:
            self.close()
            full, (self._path, self._file) = self._path, self._new_segment()
            self._size = os.fstat(self._file).st_size
            if full and full != self._path and self._closed:
                self._closed(full)
        if self._file is None:  # after an error, when cutting off may have failed as well
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.ftruncate(self._file, self._size)
        written = 0
        while written < len(data):
            written += os.write(self._file, data[written:])
        self._size += written

    def _new_segment(self) -> tuple[Path, int]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        if not self._table.segmented:
            path = self._folder / f"{self._table.files}.jsonl"
            return path, os.open(path, flags, 0o644)
        begin = self._start if self._path is None else datetime.now(UTC)
        stem = self._table.files.replace("*", f"{begin:%Y%m%d_%H%M%S}")
        for count in range(1_000_000):
            path = self._folder / (f"{stem}_{count}.jsonl" if count else f"{stem}.jsonl")
            try:
                file = os.open(path, flags | os.O_EXCL, 0o644)
            except FileExistsError:
                continue
            if not path.with_suffix(".parquet").exists():
                return path, file
            os.close(file)  # the name is that of a sealed segment
            path.unlink(missing_ok=True)
        raise FileExistsError(stem)


class Writer:
    """A consumer of snapshots that keeps them in a run's folder for this host."""

    def __init__(
        self,
        folder: Path,
        start: datetime,
        segment_bytes: int = SEGMENT_BYTES,
        closed: Callable[[Path], None] | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`closed` is called with each file that is full and no longer written."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PulsetrainError(f"the run cannot be written to {folder}: {error.strerror}.") from None
        self._folder = folder
        self._start = start
        self._segment_bytes = segment_bytes
        self._closed = closed
        self._segments: dict[str, Segments] = {}
        self._encoder = Encoder()
        self._lock = threading.Lock()
        self._arrived: deque[Snapshot] = deque()
        self._arrived_samples = 0
        self._lost_samples = 0
        self._deferred: dict[Callable[[], None], None] = {}
        self._failing: OSError | None = None
        self._reported_lost = 0
        self._flushing = threading.Lock()
        self._closing = False
        self._last: Callable[[], None] | None = None
        self._part = (supervisor or Supervisor()).part("writer", STUCK_AFTER_SECONDS)
        self._worker = Worker(
            self._part, self.flush, every_seconds=BATCH_SECONDS, finish=self._finish, what=f"writing to {folder}"
        )
        self._worker.start()

    def __call__(self, snapshot: Snapshot) -> None:
        """Take a snapshot in. The writing thread makes lines of it, so that no tick waits for that."""
        with self._lock:
            self._arrived.append(snapshot)
            self._arrived_samples += _size(snapshot)
            while self._arrived_samples > WAITING_LINES:  # a write hangs
                oldest = _size(self._arrived.popleft())
                self._arrived_samples -= oldest
                self._lost_samples += oldest
            enough = self._arrived_samples >= BATCH_SAMPLES
        if enough or snapshot.events:
            self._worker.wake()

    def defer(self, write: Callable[[], None]) -> None:
        """Have the writing thread call this soon: the disk may hang, and nobody else should wait for it.

        After an OSError it is called again with the next batch.
        """
        self._deferred[write] = None
        self._worker.wake()

    @property
    def lost_samples(self) -> int:
        """Lines thrown away; at the end, also those that have not reached the disk."""
        segments = list(self._segments.values())
        lost = self._lost_samples + sum(each.lost_lines for each in segments)
        return lost + (self._arrived_samples + sum(each.waiting_lines for each in segments) if self._closing else 0)

    def close(self, last: Callable[[], None] | None = None, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """Write what is left, call `last` in the writing thread, and stop. False if the disk hangs for so long."""
        self._closing = True
        self._last = last
        if not self._worker.stop(timeout_seconds):
            return False
        for segments in self._segments.values():
            segments.close()
        return True

    def flush(self) -> None:
        """Write what waits, now."""
        with self._flushing:
            self._take_in()
            self._write()

    def _finish(self) -> None:
        self.flush()
        if self._last:
            self._last()

    def _take_in(self) -> None:
        """Make lines of what has arrived."""
        with self._lock:
            arrived, self._arrived, self._arrived_samples = self._arrived, deque(), 0
        for snapshot in arrived:
            with self._part.attempt("a reading, which cannot be written") as reading:
                for table, line in self._encoder.lines(snapshot, self._skip):
                    self._table(table).append(line)
            if reading.failed:
                self._lose(_size(snapshot))

    def _skip(self, what: str, error: Exception) -> None:
        self._lose(1)
        self._part.skip(what, error)

    def _lose(self, samples: int) -> None:
        with self._lock:
            self._lost_samples += samples

    def _table(self, table: str) -> Segments:
        found = self._segments.get(table)
        if found is None:
            found = Segments(self._folder, TABLES[table], self._start, self._segment_bytes, self._closed)
            self._segments[table] = found
        return found

    def _write(self) -> None:
        failed = None
        for write in [*(segments.flush for segments in self._segments.values()), self._write_deferred]:
            try:
                write()
            except OSError as error:
                failed = error
        if failed:
            self._part.fail(
                f"the run cannot be written to {self._folder}: {failed.strerror}. "
                "The command is not affected; recording resumes when it can."
            )
        elif self._failing:
            self._part.recover()
            self._report_recovery(self._failing)
        self._failing = failed

    def _write_deferred(self) -> None:
        for write in list(self._deferred):
            del self._deferred[write]  # first: it may be deferred again meanwhile
            try:
                write()
            except OSError:
                self._deferred[write] = None
                raise

    def _report_recovery(self, was: OSError) -> None:
        lost = self.lost_samples - self._reported_lost
        self._reported_lost = self.lost_samples
        message = f"recording resumed after an error ({was.strerror}); {lost} samples were lost"
        log.warning(message)
        event = Event("recording_resumed", message, "warning", {"lost_samples": lost})
        self._table(EVENT_TABLE.name).append(self._encoder.event_line(event, time.time()))


def _size(snapshot: Snapshot) -> int:
    """How many lines it should become."""
    return len(snapshot.events) + sum(sample.subject.table not in FROM_TRAINING for sample in snapshot.samples)

"""Writes snapshots into a run folder as JSON lines, batched, from a thread of its own.

At most 60 samples or 2 seconds are unwritten. When the disk is full or away, lines wait in bounded memory; the oldest
go first, their number is reported, and writing resumes when it can.
"""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject

log = logging.getLogger(__name__)

BATCH_SAMPLES = 60
BATCH_SECONDS = 2.0
SEGMENT_BYTES = 64 * 2**20
"""A file is closed and the next one begun at this size, so that a week-long run stays in pieces that can be sealed."""
WAITING_LINES = 20_000
"""How many lines of one file may wait for a disk that does not take them, and samples for one that hangs."""
MOST_KNOWN_LABELS = 1000

_ABSENT = dict.fromkeys(CORE_GPU_FIELDS)


class Segments:
    """The files of one table: appended to, and continued in a new file when one is full."""

    def __init__(
        self,
        folder: Path,
        table: str,
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
        """Cut off what a failed write has left, half a line maybe, and open the file anew for the next one."""
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
        if self._table == "events":
            path = self._folder / "events.jsonl"
            return path, os.open(path, flags, 0o644)
        begin = self._start if self._path is None else datetime.now(UTC)
        stem = f"{self._table}_metrics_{begin:%Y%m%d_%H%M%S}"
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
        self._encoder = msgspec.json.Encoder()
        self._known_labels: dict[Subject, tuple[object, bytes]] = {}
        self._lock = threading.Lock()
        self._arrived: deque[Snapshot] = deque()
        self._arrived_samples = 0
        self._lost_samples = 0
        self._failing: OSError | None = None
        self._reported_lost = 0
        self._wake = threading.Event()
        self._flushing = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

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
        if enough:
            self._wake.set()

    @property
    def lost_samples(self) -> int:
        """Lines thrown away, or that never reached the disk."""
        lost = self._lost_samples + sum(segments.lost_lines for segments in self._segments.values())
        return lost + (sum(s.waiting_lines for s in self._segments.values()) if self._closing else 0)

    def close(self) -> None:
        """Write what is left and stop."""
        self._closing = True
        self._wake.set()
        self._thread.join()
        for segments in self._segments.values():
            segments.close()

    def _take_in(self) -> None:
        """Make lines of what has arrived."""
        with self._lock:
            arrived, self._arrived, self._arrived_samples = self._arrived, deque(), 0
        for snapshot in arrived:
            try:
                self._make_lines(snapshot)
            except (TypeError, msgspec.MsgspecError) as error:  # a source gave what is no JSON
                self._lost_samples += _size(snapshot)
                log.warning("pulsetrain has a fault: a reading cannot be written: %s", error)

    def _make_lines(self, snapshot: Snapshot) -> None:
        time = datetime.fromtimestamp(snapshot.time, UTC).isoformat(timespec="milliseconds")[:-6]
        head = b'{"timestamp":"%sZ","elapsed_seconds":%.3f' % (time.encode(), snapshot.elapsed)
        for sample in snapshot.samples:
            if sample.subject.table == "training":
                continue  # the training process has written its own file
            self._table(sample.subject.table).append(head + self._sample(sample))
        for event in snapshot.events:
            self._table("events").append(head + self._event(event))

    def _table(self, table: str) -> Segments:
        found = self._segments.get(table)
        if found is None:
            found = Segments(self._folder, table, self._start, self._segment_bytes, self._closed)
            self._segments[table] = found
        return found

    def _sample(self, sample: Sample) -> bytes:
        values = sample.values
        if sample.subject.table == "gpu":
            values = _ABSENT | values
        return self._labels(sample.subject) + self._members(values) + b"}\n"

    def _labels(self, subject: Subject) -> bytes:
        """The front of a subject's lines, made once: its labels are the same object until they change."""
        known = self._known_labels.get(subject)
        if known is None or known[0] is not subject.labels:
            if len(self._known_labels) >= MOST_KNOWN_LABELS:  # processes come and go
                self._known_labels.clear()
            known = self._known_labels[subject] = (subject.labels, self._members(subject.labels))
        return known[1]

    def _event(self, event: Event) -> bytes:
        fields = {"kind": event.kind, "severity": event.severity, "message": event.message, **event.details}
        return self._members(fields) + b"}\n"

    def _members(self, fields: object) -> bytes:
        """The inside of a JSON object, with a comma before it."""
        text = self._encoder.encode(fields)
        return b"," + text[1:-1] if len(text) > 2 else b""

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(BATCH_SECONDS)
            self._wake.clear()
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Write what waits, now."""
        with self._flushing:
            self._take_in()
            self._flush()

    def _flush(self) -> None:
        failed = None
        for segments in self._segments.values():
            try:
                segments.flush()
            except OSError as error:
                failed = error
        if failed and not self._failing:
            log.warning(
                "the run cannot be written to %s: %s. Your command goes on; recording resumes when it can.",
                self._folder,
                failed.strerror,
            )
        elif self._failing and not failed:
            self._report_recovery(self._failing)
        self._failing = failed

    def _report_recovery(self, was: OSError) -> None:
        lost = self.lost_samples - self._reported_lost
        self._reported_lost = self.lost_samples
        message = f"recording resumed after: {was.strerror}; {lost} samples were lost"
        log.warning(message)
        event = Event("recording_resumed", message, "warning", {"lost_samples": lost})
        time = datetime.now(UTC).isoformat(timespec="milliseconds")[:-6]
        self._table("events").append(b'{"timestamp":"%sZ"' % time.encode() + self._event(event))


def _size(snapshot: Snapshot) -> int:
    return len(snapshot.samples) + len(snapshot.events)

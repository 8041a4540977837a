"""Sends a run while it is recorded: follows its folder, cuts segments, and puts them into a store.

It reads what others have written, in a thread of its own: nothing waits for it. A segment is written to the folder
`.shipping` of the run first, and noted down with what it holds; then it is sent, and removed when the store has it. A
process that was killed at any moment continues where it was, and sends the same bytes under the same name.

While the store is away, a bounded number of segments waits there. The rest is in the run's own files, and is cut later.
"""

import contextlib
import hashlib
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.regular_files import open_regular
from pulsetrain.runs.folder import Home, RunFolder, host_name, write_json
from pulsetrain.runs.locking import Taken, lock
from pulsetrain.supervise import DOWN_AFTER_FAILURES, Part, Supervisor, Worker
from pulsetrain.transfer.segments import (
    MOST_CONTENT_BYTES,
    SegmentHeader,
    SegmentPart,
    is_replaced,
    is_run_file,
    name_of,
    parse_name,
    write_segment,
)
from pulsetrain.transfer.store import Store, StoreError, StoreRejected

log = logging.getLogger(__name__)

FOLDER = ".shipping"
"""In the run folder: what waits to be sent, and the state."""
STATE_FILE = "state.json"
LOCK_FILE = ".lock"
SEGMENT_BYTES = 4 * 2**20
"""Of content: a larger one is cut in several. It compresses to a tenth, and surely to less than a segment may be."""
MOST_WAITING_BYTES = 32 * 2**20
"""Of segments that wait on disk for a store that is away."""
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
FINAL_SECONDS = 10.0
"""So long the end of a run is held up to send what is left."""
FINAL_PAUSE_SECONDS = 0.2
STUCK_AFTER_SECONDS = 300.0
"""Requests end by themselves before this."""
TAIL_BYTES = 64
"""Of what was sent of a file, so much is compared before more of it is sent."""
MOST_LEFTOVERS = 100

assert 2 * SEGMENT_BYTES < MOST_CONTENT_BYTES


class ShippedFile(msgspec.Struct):
    """What was cut of one file."""

    sent: int = 0
    tail: bytes = b""
    """The last bytes of it."""
    changed: int = 0
    """Of a file that is replaced: when it was changed, in nanoseconds."""
    done: bool = False
    """No more will come."""


class ShippingState(msgspec.Struct, kw_only=True):
    """What `.shipping/state.json` holds."""

    schema: int = 1
    to: str
    """The store, without secrets."""
    writer: str
    owner: bool
    """Whether the files of the run itself are sent too, not only those of this host."""
    next: int = 1
    previous: str = ""
    files: dict[str, ShippedFile] = {}
    complete: bool = False
    """Whether the run has ended and all of it was sent."""


class Shipment:
    """One run folder on its way to a store. All is done by the thread that calls it."""

    def __init__(self, folder: RunFolder, store: Store, to: str, *, owner: bool = True) -> None:
        """Begins, or continues where the last process stopped. Raises OSError."""
        self.folder = folder
        self._path = folder.path
        self._store = store
        self._place = self._path / FOLDER
        self._place.mkdir(0o700, exist_ok=True)
        try:
            self._lock = lock(self._place / LOCK_FILE)
        except Taken:
            raise PulsetrainError(f"{folder} is being sent by another process.") from None
        self._state = self._load(to, owner=owner)
        self._open: dict[str, BinaryIO] = {}
        """Files that are followed: one that is sealed and gone can still be read to its end."""
        for name in self._waiting():
            parsed = parse_name(name)
            if parsed is None or parsed.seq >= self._state.next:  # cut, but not noted down: never sent
                (self._place / name).unlink()

    @property
    def complete(self) -> bool:
        return self._state.complete

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def cut(self) -> bool:
        """Make segments of all that is new, as far as there is room for them to wait. Whether there was.

        After an OSError, such as a full disk, nothing counts as cut.
        """
        while self._waiting_bytes() < MOST_WAITING_BYTES:
            before = msgspec.json.encode(self._state)
            try:
                pieces = list(self._new(SEGMENT_BYTES))
                if not pieces:
                    return True
                self._keep(pieces)
            except OSError:
                self._state = msgspec.json.decode(before, type=ShippingState)
                raise
        return False

    def send(self, until: Callable[[], bool] = lambda: False) -> int:
        """Put what waits into the store, in order; how many were sent. Raises StoreError."""
        sent = 0
        for name in sorted(self._waiting()):
            if until():
                break
            data = (self._place / name).read_bytes()
            self._store.put(f"{self._path.name}/{self._state.writer}/{name}", data)
            (self._place / name).unlink()
            sent += 1
        return sent

    @property
    def waiting(self) -> int:
        return len(self._waiting())

    def finish(self) -> None:
        """The run has ended: note whether all of it was sent."""
        if not self._waiting():
            self._state.complete = True
            self._save()

    # What is new

    def _new(self, most_bytes: int) -> Iterator[tuple[SegmentPart, bytes]]:
        """What has not been cut yet, up to so many bytes; notes down that it is cut."""
        left = most_bytes
        for path in self._paths():
            if left <= 0:
                return
            file = self._state.files.setdefault(path, ShippedFile())
            with contextlib.suppress(FileNotFoundError):  # sealed, or replaced just now
                if is_replaced(path):
                    found = self._replaced(path, file)
                elif path.endswith(".parquet"):
                    found = self._sealed(path, file, left)
                else:
                    found = self._appended(path, file, left)
                if found:
                    left -= len(found[1])
                    yield found

    def _paths(self) -> list[str]:
        """Files of the run that this host sends: descriptions first, so that a reader knows what it reads."""
        host = host_name()
        names = [f"{host}/{name}" for name in _names(self._path / host)]
        if self._state.owner:
            names += _names(self._path)
        names += [path for path in self._open if path not in names]  # sealed, and not read to its end
        return sorted(filter(is_run_file, names), key=lambda path: (not is_replaced(path), path))

    def _replaced(self, path: str, file: ShippedFile) -> tuple[SegmentPart, bytes] | None:
        changed = (self._path / path).stat().st_mtime_ns
        if changed == file.changed:
            return None
        with open_regular(self._path / path) as opened:
            changed = os.fstat(opened.fileno()).st_mtime_ns
            data = opened.read(SEGMENT_BYTES)
        file.changed = changed
        return SegmentPart(path, 0, len(data), whole=True), data

    def _sealed(self, path: str, file: ShippedFile, most_bytes: int) -> tuple[SegmentPart, bytes] | None:
        """A Parquet file is sent where its lines were not."""
        lines = self._state.files.get(path.removesuffix(".parquet") + ".jsonl")
        if file.done or (lines and lines.done):
            return None
        if f"{path.removesuffix('.parquet')}.jsonl" in self._open:
            return None  # its lines are still being sent
        with open_regular(self._path / path) as opened:
            size = os.fstat(opened.fileno()).st_size
            opened.seek(file.sent)
            data = opened.read(most_bytes)
        part = SegmentPart(path, file.sent, len(data), whole=file.sent == 0, size=size)
        file.sent += len(data)
        file.done = file.sent >= size
        return (part, data) if data else None

    def _appended(self, path: str, file: ShippedFile, most_bytes: int) -> tuple[SegmentPart, bytes] | None:
        """Whole lines from the end of what was sent."""
        if file.done:
            return None
        opened = self._open.get(path)
        if opened is None:
            if not (self._path / path).stat().st_size:
                return None
            opened = self._open[path] = open_regular(self._path / path)
        status = os.fstat(opened.fileno())
        whole = False
        if status.st_size != file.sent:
            if file.tail and _read(opened, file.sent - len(file.tail), len(file.tail)) != file.tail:
                file.sent, file.tail, whole = 0, b"", True  # what was sent has been taken back: it is sent again
            data = _read(opened, file.sent, most_bytes)
            if end := data.rfind(b"\n") + 1:
                part = SegmentPart(path, file.sent, end, whole=whole)
                file.sent += end
                file.tail = data[:end][-TAIL_BYTES:]
                return part, data[:end]
            if len(data) == SEGMENT_BYTES:  # no line of ours is so long
                file.done = True
        if status.st_nlink == 0 or file.done:  # sealed: what is left of it is half a line, if anything
            file.done = True
            self._open.pop(path).close()
        return None

    # What waits

    def _keep(self, pieces: list[tuple[SegmentPart, bytes]]) -> None:
        state = self._state
        header = SegmentHeader(
            run=self._path.name,
            writer=state.writer,
            seq=state.next,
            previous=state.previous,
            created=time.time(),
            parts=[part for part, _ in pieces],
        )
        data = write_segment(header, [data for _, data in pieces])
        name = name_of(header.seq, data)
        temporary = self._place / f".{name}"
        temporary.write_bytes(data)
        temporary.replace(self._place / name)
        state.next += 1
        state.previous = hashlib.sha256(data).hexdigest()
        state.complete = False
        self._save()

    def _waiting(self) -> list[str]:
        return [name for name in _names(self._place) if name != STATE_FILE]

    def _waiting_bytes(self) -> int:
        return sum((self._place / name).stat().st_size for name in self._waiting())

    def _load(self, to: str, *, owner: bool) -> ShippingState:
        found = load_state(self.folder)
        if found and found.to == to:
            return found
        for name in self._waiting():  # for another store
            (self._place / name).unlink()
        return ShippingState(to=to, writer=f"{host_name()}-{secrets.token_hex(4)}", owner=owner)

    def _save(self) -> None:
        write_json(self._place / STATE_FILE, self._state)


class Shipper:
    """Sends one run, and what former runs have left for the same store, from a thread of its own."""

    def __init__(
        self,
        folder: RunFolder,
        store: Store,
        to: str,
        *,
        owner: bool = True,
        supervisor: Supervisor | None = None,
        every_seconds: float | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._to = to
        self._shipment = Shipment(folder, store, to, owner=owner)
        self._leftovers: list[Shipment] | None = None
        self._part: Part = (supervisor or Supervisor()).part("shipping", STUCK_AFTER_SECONDS)
        self._every_seconds = every_seconds or store.every_seconds
        self._wait = FIRST_WAIT_SECONDS
        self._failures = 0
        self._trouble: StoreError | None = None
        self._not_before = 0.0
        self._deadline = float("inf")
        self._worker = Worker(
            self._part, self._ship, every_seconds=self._every_seconds, finish=self._finish, what=f"sending to {to}"
        )

    def start(self) -> None:
        self._worker.start()

    def close(self, seconds: float = FINAL_SECONDS) -> str | None:
        """The run has ended, and all is in its folder: send what is left. Says what could not be sent, in words."""
        self._deadline = time.monotonic() + seconds
        if not self._worker.stop(2 * seconds):
            return f"{self._to} does not respond: the end of the run was not sent"
        if self._shipment.complete:
            return None
        return (
            f"the end of the run was not sent to {self._to}"
            + (f" ({self._trouble.message.rstrip('.')})" if self._trouble else "")
            + ": it will be sent with the next run to the same place"
        )

    def _ship(self) -> float | None:
        self._shipment.cut()
        if time.monotonic() < self._not_before:
            return None
        self._attempt(self._shipment)
        if self._trouble is None:
            self._send_leftovers()
        return None

    def _attempt(self, shipment: Shipment) -> bool:
        """Send what waits; whether the store took it."""
        try:
            sent = shipment.send(until=lambda: time.monotonic() > self._deadline)
        except StoreError as error:
            self._failed(error)
            return False
        if not sent and shipment.waiting:  # there was no time left to try
            return False
        if self._trouble is not None:
            log.warning("sending to %s works again", self._to)
            self._part.recover()
        self._trouble, self._failures, self._wait = None, 0, FIRST_WAIT_SECONDS
        return True

    def _failed(self, error: StoreError) -> None:
        if self._trouble is None or type(self._trouble) is not type(error):
            error.still = "The run is still recorded here, and will be sent once sending works again."
            log.warning("sending to %s: %s", self._to, error)
        self._trouble = error
        self._failures += 1
        if isinstance(error, StoreRejected) or self._failures >= DOWN_AFTER_FAILURES:
            self._part.fail(error.message, logged=True)
        self._not_before = time.monotonic() + max(self._wait * random.uniform(0.5, 1.0), error.wait_seconds)
        self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)

    def _send_leftovers(self) -> None:
        """What runs before this one could not send: the kernel was restarted, or the network was away."""
        if self._leftovers is None:
            self._leftovers = list(leftovers(self._folder, self._store, self._to))
        if self._leftovers:
            shipment = self._leftovers[0]
            all_cut = shipment.cut()
            if self._attempt(shipment) and all_cut:
                shipment.finish()
                shipment.close()
                self._leftovers.pop(0)

    def _finish(self) -> None:
        """All of the run, for as long as there is time."""
        while True:
            all_cut = self._shipment.cut()
            if self._attempt(self._shipment) and all_cut and not self._shipment.waiting:
                self._shipment.finish()
                break
            if time.monotonic() > self._deadline or isinstance(self._trouble, StoreRejected):
                break
            time.sleep(FINAL_PAUSE_SECONDS)
        self._shipment.close()
        self._store.close()


def load_state(folder: RunFolder) -> ShippingState | None:
    """How far a run was sent; None when it never was, or nobody can tell."""
    try:
        return msgspec.json.decode((folder.path / FOLDER / STATE_FILE).read_bytes(), type=ShippingState)
    except (OSError, msgspec.MsgspecError):
        return None


def leftovers(but: RunFolder, store: Store, to: str) -> Iterator[Shipment]:
    """Runs beside this one that have ended and were not sent to the end, the newest first."""
    folders = list(Home(but.path.parent).runs())[-MOST_LEFTOVERS:]
    for folder in reversed(folders):
        state = load_state(folder)
        if state is None or state.complete or state.to != to or folder.path == but.path:
            continue
        with contextlib.suppress(PulsetrainError, OSError):
            if not folder.may_live(folder.load()):
                yield Shipment(folder, store, to)


def _names(folder: Path) -> list[str]:
    """Of files that are not hidden."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file()]
    except FileNotFoundError:
        return []


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)

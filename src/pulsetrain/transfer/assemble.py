"""Puts the segments of a run together again, into an ordinary run folder.

The segments of a writer are applied one after the other, each once. One that is missing is waited for; when it does not
come, the run has a gap, which is named in its events. Beside the files of the run, `.fetched.json` says how far each of
them has come: what a killed process has left half done is taken back from there.
"""

import contextlib
import os
from pathlib import Path
from typing import Self

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.codec import Encoder
from pulsetrain.runs.folder import PRIVATE_MODE, RUN_JSON, RunFolder, write_json
from pulsetrain.runs.locking import Taken, lock
from pulsetrain.snapshot import Event
from pulsetrain.transfer.segments import BadSegment, Segment, SegmentPart, is_replaced

STATE_FILE = ".fetched.json"
LOCK_FILE = ".fetching"
EVENTS = "events.jsonl"


class FetchedFile(msgspec.Struct):
    """How far a file has come."""

    writer: str
    """Whose it is; nobody else writes it."""
    sent: int = 0
    """Where the next bytes begin, in the file there."""
    here: int = 0
    """How long it is here: shorter after a gap, longer with the event that names the gap."""
    incomplete: bool = False
    """A file that is of use only as a whole, and lacks a piece."""


class Gap(msgspec.Struct, frozen=True):
    """Segments that did not arrive."""

    first: int
    last: int
    since: float
    """When the last segment before it was cut, and the first after it, by the clock of the writer."""
    until: float

    def __str__(self) -> str:
        """`segment 3`, or `segments 3 to 7 (25 s)`."""
        numbers = f"segment {self.first}" if self.first == self.last else f"segments {self.first} to {self.last}"
        return f"{numbers} ({self.until - self.since:.0f} s)" if 0 < self.since < self.until else numbers


class WriterProgress(msgspec.Struct):
    """What has arrived of one writer."""

    next: int = 1
    previous: str | None = ""
    """The checksum of the newest segment; None after a gap, when it is not known."""
    created: float = 0.0
    """When the newest segment was cut, by the clock of the writer."""
    gaps: list[Gap] = []


class FetchState(msgspec.Struct, kw_only=True):
    """What `.fetched.json` holds."""

    schema: int = 1
    files: dict[str, FetchedFile] = {}
    writers: dict[str, WriterProgress] = {}


class NotFetched(PulsetrainError):
    """A run folder of this name that was not put together from segments: it is not touched."""


class InUse(PulsetrainError):
    """Another process puts this run together."""


class Assembly:
    """A run that is being put together. One process at a time has it open."""

    def __init__(self, folder: RunFolder) -> None:
        """Make the folder, or go on where the last process stopped. Raises NotFetched, InUse, or OSError."""
        self.folder = folder
        self._path = folder.path
        if self._path.is_symlink() or ((self._path / RUN_JSON).exists() and not (self._path / STATE_FILE).exists()):
            raise NotFetched(f"{folder} is a run that was not fetched: it is left alone.")
        self._path.mkdir(PRIVATE_MODE, parents=True, exist_ok=True)
        try:
            self._lock = lock(self._path / LOCK_FILE)
        except Taken:
            raise InUse(f"{folder} is being fetched by another process.") from None
        try:
            self._state = self._load()
            self._take_back()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def progress(self, writer: str) -> WriterProgress:
        return self._state.writers.setdefault(writer, WriterProgress())

    @property
    def writers(self) -> dict[str, WriterProgress]:
        return self._state.writers

    @property
    def bytes_here(self) -> int:
        return sum(file.here for file in self._state.files.values())

    def fits(self, segment: Segment) -> bool:
        """Whether a segment is the next one of its writer."""
        at = self.progress(segment.header.writer)
        return segment.header.seq == at.next and at.previous in (None, segment.header.previous)

    def apply(self, segment: Segment, moved: float | None = None) -> None:
        """Add the next segment of a writer. `moved` is when its files shall seem to have been written; now by default.

        After an OSError, such as a full disk, all is as it was before.
        """
        header = segment.header
        assert self.fits(segment)
        before = msgspec.json.encode(self._state)
        try:
            for part, data in segment.pieces():
                self._write(header.writer, part, data, moved)
            at = self.progress(header.writer)
            at.next, at.previous, at.created = header.seq + 1, segment.checksum, header.created
            self._save()
            if moved is not None:
                os.utime(self._path / STATE_FILE, (moved, moved))
        except (OSError, BadSegment):
            self._state = msgspec.json.decode(before, type=FetchState)
            with contextlib.suppress(OSError):
                self._take_back()
            raise

    def skip(self, writer: str, following: Segment) -> Gap:
        """Give up on the segments before this one: name them, and go on."""
        at = self.progress(writer)
        gap = Gap(at.next, following.header.seq - 1, at.created, following.header.created)
        at.gaps.append(gap)
        at.next, at.previous = following.header.seq, None
        self._note(writer, following, gap)
        self._save()
        return gap

    def restart(self) -> None:
        """Forget all that has arrived, so that it can be rebuilt; run.json stays until it is replaced."""
        for path in self._state.files:
            if path != RUN_JSON:
                self._place(path).unlink(missing_ok=True)
        self._state = FetchState()
        self._save()

    def _write(self, writer: str, part: SegmentPart, data: bytes, moved: float | None) -> None:
        known = self._state.files.get(part.path)
        if known and known.writer != writer:
            raise BadSegment(f"{part.path} belongs to another writer, {known.writer}.")
        file = known or FetchedFile(writer)
        if part.whole:
            file = FetchedFile(writer)
        elif part.offset < file.sent:
            raise BadSegment(f"{part.path} repeats bytes that have already arrived.")
        elif part.offset > file.sent and part.size:
            file.incomplete = True
        place = self._path / part.path
        place.parent.mkdir(PRIVATE_MODE, exist_ok=True)
        if file.incomplete:
            self._place(part.path).unlink(missing_ok=True)
            file.here = 0
        elif part.whole and not part.size and not part.path.endswith(".jsonl"):
            _replace(place, data)
            file.here = len(data)
        else:
            _append(self._place(part.path), file.here, data)
            file.here += len(data)
        file.sent = part.offset + len(data)
        if part.size and not file.incomplete and file.here == part.size:
            self._place(part.path).rename(place)
        self._state.files[part.path] = file
        if moved is not None and place.exists():
            os.utime(place, (moved, moved))

    def _place(self, path: str) -> Path:
        """Where a file grows: what is of use only as a whole is hidden until then."""
        place = self._path / path
        hidden = place.with_name(f".{place.name}.part")
        return hidden if path.endswith(".parquet") and not place.exists() else place

    def _note(self, writer: str, following: Segment, gap: Gap) -> None:
        """An event that names a gap, among those of its host."""
        hosts = [
            path.split("/")[0] for path, file in self._state.files.items() if "/" in path and file.writer == writer
        ]
        hosts += [part.path.split("/")[0] for part in following.header.parts if "/" in part.path]
        if not hosts:
            return
        path = f"{hosts[0]}/{EVENTS}"
        file = self._state.files.setdefault(path, FetchedFile(writer))
        if file.writer != writer:
            return
        event = Event(
            "transfer_gap",
            f"{gap} of {writer} did not arrive: the lines in them are missing",
            "warning",
            {"writer": writer, "first": gap.first, "last": gap.last},
        )
        line = Encoder().event_line(event, gap.until)
        (self._path / hosts[0]).mkdir(PRIVATE_MODE, exist_ok=True)
        _append(self._path / path, file.here, line)
        file.here += len(line)

    def _load(self) -> FetchState:
        try:
            return msgspec.json.decode((self._path / STATE_FILE).read_bytes(), type=FetchState)
        except FileNotFoundError:
            return FetchState()
        except msgspec.MsgspecError as error:
            raise PulsetrainError(
                f"{self._path / STATE_FILE} cannot be read: {error}.", hint=f"Remove {self._path} to fetch it again."
            ) from None

    def _save(self) -> None:
        write_json(self._path / STATE_FILE, self._state)

    def _take_back(self) -> None:
        """Cut off what was appended and not noted down."""
        for path, file in self._state.files.items():
            place = self._place(path)
            with contextlib.suppress(FileNotFoundError):
                if not is_replaced(path) and place.stat().st_size > file.here:
                    os.truncate(place, file.here)


def _append(place: Path, length: int, data: bytes) -> None:
    """Write at the end of a file that is so long, or cut to be."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size < length:
            raise PulsetrainError(
                f"{place} is shorter than what was fetched.", hint="Remove the run's folder to fetch it again."
            )
        if size > length:
            os.ftruncate(descriptor, length)
        os.lseek(descriptor, length, os.SEEK_SET)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _replace(place: Path, data: bytes) -> None:
    temporary = place.with_name(f".{place.name}.new")
    try:
        temporary.write_bytes(data)
        temporary.replace(place)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

"""Sends a run to a tracker, while it is recorded or afterwards. The run folder is the spool.

What was sent is noted in the folder `.trackers` of the run. A batch is noted before it is sent and again after it: a
process that was killed between the two sends the same batch once more and tells the tracker, which keeps each row once.
"""

import hashlib
import logging
import os
import random
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs.trackers import KINDS, TrackerTarget
from pulsetrain.outputs.trackers.ending import Render, conclude
from pulsetrain.outputs.trackers.rows import RowPosition, RowReader
from pulsetrain.outputs.trackers.tracker import Memory, Tracker
from pulsetrain.runs.folder import Run, RunFolder, write_json
from pulsetrain.runs.locking import Taken, lock
from pulsetrain.training.masking import masked_message

log = logging.getLogger(__name__)

FOLDER = ".trackers"
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
MOST_WORDS = 200

Wait = Callable[[float], object]


class SendingState(msgspec.Struct, kw_only=True):
    """What is kept of a run and one tracker."""

    schema: int = 1
    to: str
    """The tracker, without secrets."""
    memory: Memory = {}
    sent: RowPosition = msgspec.field(default_factory=RowPosition)
    sending: RowPosition | None = None
    """The end of the batch that was being sent."""
    described: str = ""
    """A checksum of the settings and tags that the tracker has."""
    finished: bool = False


class TrackerSending:
    """One run on its way to one tracker. All is done by the thread that calls it."""

    def __init__(self, folder: RunFolder, target: TrackerTarget, render: Render | None = None) -> None:
        """Begins, or continues where the last process stopped. Raises PulsetrainError."""
        self._folder = folder
        self._target = target
        self._to = masked_message(target.spec)
        self._render = render if KINDS[target.kind].takes_files else None
        digest = hashlib.sha256(target.spec.encode()).hexdigest()[:12]
        self._file = folder.path / FOLDER / f"{target.kind}-{digest}.json"
        try:
            self._file.parent.mkdir(0o700, exist_ok=True)
            self._lock = lock(self._file.with_suffix(".lock"))
            self._state = self._load()
        except Taken:
            raise PulsetrainError(f"{folder} is being sent to {self._to} by another process.") from None
        except OSError as error:
            raise PulsetrainError(f"the run cannot be sent from {folder}: {error.strerror}.") from None
        self._reader = RowReader(folder, self._state.sent)
        self._tracker: Tracker | None = None

    @property
    def rows(self) -> int:
        """How many have been sent, by any process."""
        return self._state.sent.rows

    @property
    def finished(self) -> bool:
        """Whether the run has ended and the tracker has all of it."""
        return self._state.finished

    def send(self) -> bool:
        """Send what there is. True when the run has ended and all of it was sent. Raises what the tracker raises."""
        run = self._folder.load()
        ended = run.status != "running"  # before the files: they then hold all that will come
        if self._state.finished and self._has_all(run):
            return True
        tracker = self._opened(run)
        if self._state.sending is not None:
            self._send(tracker, self._state.sending, again=True)
        while True:
            self._describe(tracker, run)
            rows = self._reader.read(ended=ended)
            if self._reader.position == self._state.sent:
                break
            self._state.sending = self._reader.position
            self._save()
            if rows:
                tracker.send(rows, again=False)
            self._sent()
        if ended and not self._state.finished:
            with tempfile.TemporaryDirectory(prefix="pulsetrain-") as place:
                tracker.finish(conclude(self._folder, self._render, Path(place)))
            self._state.finished = True
            self._save()
        return ended

    def abandon(self) -> None:
        """After an error: begin the next try with a new connection, at what was surely sent."""
        self._close_tracker()
        self._reader.close()
        self._reader = RowReader(self._folder, self._state.sent)

    def close(self) -> None:
        self._close_tracker()
        self._reader.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _opened(self, run: Run) -> Tracker:
        if self._tracker is None:
            module = import_module(f"pulsetrain.outputs.trackers.{self._target.kind}")
            tracker: Tracker = module.open_tracker(self._target.place, self._state.memory)
            self._tracker = tracker
            tracker.open(run)
            self._save()
        return self._tracker

    def _send(self, tracker: Tracker, end: RowPosition, *, again: bool) -> None:
        rows = self._reader.read_to(end)
        if rows:
            tracker.send(rows, again=again)
        self._sent()

    def _sent(self) -> None:
        self._state.sent, self._state.sending = self._reader.position, None
        self._save()

    def _has_all(self, run: Run) -> bool:
        """Whether the tracker has what there is now: then it is not even opened."""
        reader = RowReader(self._folder, self._state.sent)
        reader.read(ended=True)
        reader.close()
        return reader.position.rows == self._state.sent.rows and _checksum(run) == self._state.described

    def _describe(self, tracker: Tracker, run: Run) -> None:
        checksum = _checksum(run)
        if checksum != self._state.described:
            tracker.describe(run)
            self._state.described = checksum
            self._save()

    def _close_tracker(self) -> None:
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            try:
                tracker.close()
            except Exception as error:  # noqa: BLE001 - a library of others, which may have broken already
                log.debug("closing %s: %s", self._to, error)

    def _load(self) -> SendingState:
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=SendingState)
        except (FileNotFoundError, msgspec.MsgspecError):
            return SendingState(to=self._to)
        if self._folder.load().status == "running":
            found.finished = False  # a further attempt
        return found

    def _save(self) -> None:
        write_json(self._file, self._state)


def _checksum(run: Run) -> str:
    """Of what a tracker is told of a run beside its figures."""
    return hashlib.sha256(msgspec.json.encode([run.config, run.tags, run.name, run.project, run.note])).hexdigest()


def send_patiently(
    sending: TrackerSending,
    wait: Wait,
    *,
    every_seconds: float,
    final_seconds: float,
    ended: Callable[[], bool],
    tell: Callable[[str], None] = lambda words: None,
) -> str:
    """Send a run until it has ended and all of it is there, or no try worked for so long after the end.

    Why not, in words; empty when all was sent. `wait` sleeps for so many seconds, or until the end; `tell` learns what
    does not work, and, by an empty text, that it works again.
    """
    pause, trouble, deadline = FIRST_WAIT_SECONDS, "", float("inf")
    while True:
        if ended():
            deadline = min(deadline, time.monotonic() + final_seconds)
        try:
            done = sending.send()
            if trouble:
                tell("")
            pause, trouble = FIRST_WAIT_SECONDS, ""
            if done:
                return ""
            if time.monotonic() > deadline:
                return "the end of the run is not recorded"
            wait(every_seconds)
        except Exception as error:  # noqa: BLE001 - whatever the library of a tracker raises is tried again
            sending.abandon()
            if not trouble:
                tell(short_reason(error))
            trouble = short_reason(error)
            if time.monotonic() > deadline:
                return trouble
            wait(min(pause * random.uniform(0.5, 1.0), max(0.1, deadline - time.monotonic())))
            pause = min(2 * pause, LONGEST_WAIT_SECONDS)


def short_reason(error: Exception) -> str:
    """The first line of what a tracker's library says, without secrets."""
    text = str(error).strip().partition("\n")[0].partition(" with exception ")[0]  # MLflow adds those of its libraries
    return masked_message(f"{type(error).__name__}: {text[:MOST_WORDS]}" if text else type(error).__name__)

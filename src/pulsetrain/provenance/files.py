"""Size and checksum of files that a training wrote: read in a thread of low priority, after they are written."""

import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pulsetrain.regular_files import open_regular
from pulsetrain.runs.description import NotedFile
from pulsetrain.supervise import Supervisor, Worker

END_SECONDS = 5.0
"""How long the end of a run waits for checksums."""
MOST_BYTES = 64 * 2**30
"""A larger file has no checksum."""
BLOCK_BYTES = 2**20
LEAST_PRIORITY = 19


class FileFacts(NamedTuple):
    bytes: int | None
    sha256: str


class FileChecker:
    """Fills in what files are. One that is written again is read again; one that changes meanwhile has no checksum."""

    def __init__(self, changed: Callable[[], None], supervisor: Supervisor) -> None:
        """`changed` is called when more is known than before."""
        self._changed = changed
        self._known: dict[tuple[str, int | None], FileFacts] = {}
        self._waiting: dict[str, int | None] = {}
        """By path: the step of its newest note."""
        self._stopping = False
        self._worker = Worker(
            supervisor.part("files"), self._work, every_seconds=3600.0, finish=self._work, what="a checksum"
        )
        self._started = False

    def filled(self, files: Sequence[NotedFile]) -> list[NotedFile]:
        """The same files with what is known of them by now; the others are looked at from now on."""
        found = []
        for file in files:
            facts = self._known.get((file.path, file.step))
            if facts is None:
                self._waiting[file.path] = file.step
                found.append(file)
            else:
                found.append(msgspec.structs.replace(file, bytes=facts.bytes, sha256=facts.sha256))
        if self._waiting:
            if not self._started:
                self._started = True
                self._worker.start()
            self._worker.wake()
        return found

    def stop(self) -> None:
        if self._started:
            deadline = time.monotonic() + END_SECONDS
            while self._waiting and time.monotonic() < deadline:
                time.sleep(0.02)
            self._stopping = True
            self._worker.stop(1.0)

    def _work(self) -> None:
        _lower_priority()
        while self._waiting and not self._stopping:
            path, step = next(iter(self._waiting.items()))
            self._known[path, step] = self._facts(Path(path))
            if self._waiting.get(path) == step:
                del self._waiting[path]
            self._changed()

    def _facts(self, path: Path) -> FileFacts:
        try:
            before = path.stat()
            if stat.S_ISDIR(before.st_mode):
                return FileFacts(_size_of(path), "")
            if not stat.S_ISREG(before.st_mode) or before.st_size > MOST_BYTES:
                return FileFacts(before.st_size, "")
            digest = self._digest(path)
            after = path.stat()
        except OSError:  # removed again, as old checkpoints are
            return FileFacts(None, "")
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        return FileFacts(after.st_size, digest if same else "")

    def _digest(self, path: Path) -> str:
        """Empty when the run ends first."""
        digest = hashlib.sha256()
        with open_regular(path.resolve()) as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                if self._stopping:
                    return ""
        return digest.hexdigest()


def _size_of(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*"))


def _lower_priority() -> None:
    """Of this thread alone, where the system has priorities of threads."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_PRIORITY)
    except (AttributeError, OSError):
        return

"""The file that a training process writes its lines to."""

from __future__ import annotations

import itertools
import os


class SegmentFile:
    """A file of whole lines: what a failed write leaves is cut off."""

    def __init__(self, folder: str, stamp: str, rank: int) -> None:
        self.name, self._descriptor = self._open(folder, stamp, rank)
        self.size = 0

    @staticmethod
    def _open(folder: str, stamp: str, rank: int) -> tuple[str, int]:
        os.makedirs(folder, exist_ok=True)
        stem = "training_metrics_%s%s" % (stamp, ".rank%d" % rank if rank else "")
        names = itertools.chain(
            ["", ".pid%d" % os.getpid()], (".pid%d_%d" % (os.getpid(), n) for n in itertools.count(2))
        )
        for name in names:
            path = os.path.join(folder, stem + name)
            try:
                descriptor = os.open(path + ".jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue
            if not os.path.exists(path + ".parquet"):
                return stem + name + ".jsonl", descriptor
            os.close(descriptor)  # the name is that of a sealed segment
            os.unlink(path + ".jsonl")
        raise AssertionError("unreachable")

    def write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            self.size += written
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

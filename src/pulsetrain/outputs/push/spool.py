"""Batches that wait on disk for a server that is away: one file each, in order, bounded in size."""

import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from pulsetrain.outputs.push.series import PushSeries, count

MOST_BYTES = 256 * 2**20
"""Two days of eight GPUs that are read every second."""
COMPRESSION_LEVEL = 1
UNREADABLE = (OSError, zlib.error, msgspec.MsgspecError)
"""What reading a batch may raise, when its file is gone or damaged."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[PushSeries])


class _Waiting(NamedTuple):
    path: Path
    size: int
    samples: int


class Spool:
    """The files `NAME-000001.spool`, ... of a folder."""

    def __init__(self, folder: Path, name: str, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._name = quote(name, safe="")
        self._most_bytes = most_bytes
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._number = 0
        self.dropped_samples = 0
        """Of the oldest batches, which had to go for newer ones."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def samples(self) -> int:
        """How many wait."""
        return sum(waiting.samples for waiting in self._waiting)

    def put(self, series: Sequence[PushSeries]) -> None:
        """Keep a batch behind all others. Raises OSError when the disk does not take it."""
        body = zlib.compress(_encoder.encode(series), COMPRESSION_LEVEL)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        path = self._folder / f"{self._name}-{self._number:06}.spool"
        try:
            path.write_bytes(body)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._waiting.append(_Waiting(path, len(body), count(series)))
        self._bytes += len(body)
        while self._bytes > self._most_bytes and len(self._waiting) > 1:
            self.dropped_samples += self._waiting[0].samples
            self.remove_first()

    def first(self) -> list[PushSeries]:
        """The oldest batch. Raises one of UNREADABLE when it cannot be read."""
        return _decoder.decode(zlib.decompress(self._waiting[0].path.read_bytes()))

    @property
    def first_samples(self) -> int:
        return self._waiting[0].samples

    def remove_first(self) -> None:
        oldest = self._waiting.popleft()
        self._bytes -= oldest.size
        oldest.path.unlink(missing_ok=True)

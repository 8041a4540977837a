"""The records of a `.wandb` file, which wandb writes and no longer reads in Python: a log of LevelDB, in blocks.

The file may be a stranger's, and may have been cut off anywhere: what is damaged ends the reading, and is no error.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from pulsetrain.regular_files import open_regular

BLOCK_BYTES = 32 * 1024
HEADER = struct.Struct("<IHB")
FILE_HEADER = b":W&B"
FILE_HEADER_BYTES = 7
MOST_RECORD_BYTES = 64 * 2**20
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def wandb_records(path: Path) -> Iterator[bytes]:
    """Each record whole, as bytes of wandb's message `Record`."""
    with open_regular(path) as file:
        if not file.read(FILE_HEADER_BYTES).startswith(FILE_HEADER):
            return
        place = FILE_HEADER_BYTES
        pending: list[bytes] = []
        while True:
            left = BLOCK_BYTES - place % BLOCK_BYTES
            if left < HEADER.size:  # the end of a block is filled up
                file.read(left)
                place += left
                continue
            head = file.read(HEADER.size)
            if len(head) < HEADER.size:
                return
            checksum, length, kind = HEADER.unpack(head)
            data = file.read(length)
            place += HEADER.size + length
            if len(data) < length or zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
                return
            if kind in (_FULL, _FIRST):
                pending = []
            elif not pending or kind not in (_MIDDLE, _LAST):
                return
            pending.append(data)
            if sum(map(len, pending)) > MOST_RECORD_BYTES:
                return
            if kind in (_FULL, _LAST):
                yield b"".join(pending)
                pending = []

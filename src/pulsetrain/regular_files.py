"""Opening files of folders that may be anybody's, such as a run's: regular ones, and no more than expected."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_DESCRIPTION_BYTES = 16 * 2**20
"""Of run.json and its like."""
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read, if it is one: a pipe would block, a device never ends, a link leads elsewhere."""
    file = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "it is not a regular file", str(path))
    return os.fdopen(file, "rb")


def read_description(path: Path) -> bytes:
    """The whole of a small file."""
    with open_regular(path) as file:
        text = file.read(MOST_DESCRIPTION_BYTES + 1)
    if len(text) > MOST_DESCRIPTION_BYTES:
        raise OSError(0, "it is too large", str(path))
    return text


def is_regular(path: Path) -> bool:
    """Whether there is a file that `open_regular` would open."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False

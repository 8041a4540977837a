"""One process at a time: a lock on a file, which the kernel lets go of when the process ends, however it ends."""

import os
import time
from pathlib import Path

TRY_SECONDS = 1.0


class Taken(Exception):
    """Another process holds the lock."""


def lock(path: Path) -> int | None:
    """Take the lock, until the file is closed; None where there are no such locks."""
    if os.name != "posix":
        return None
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + TRY_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(file)
                raise Taken from None
            time.sleep(0.05)
        except OSError:  # a file system without locks
            os.close(file)
            return None

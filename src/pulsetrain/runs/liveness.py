"""Whether a run is still being written: its watching process holds a lock on a file of the run as long as it lives.

The kernel lets go of the lock when the process ends, however it ends. It is seen from other containers and through a
network file system, where process ids and clocks mean nothing.
"""

import contextlib
import errno
import os
import time
from pathlib import Path

from pulsetrain.training.liveness import LOCK_FILE, is_held

__all__ = ["LOCK_FILE", "boot_id", "hold", "is_held", "take"]
TRY_SECONDS = 0.5
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


def hold(host_folder: Path) -> int | None:
    """Say that this process writes here, until it ends or closes the file. None where there are no locks."""
    try:
        return take(host_folder)
    except BlockingIOError:
        return None


def take(host_folder: Path) -> int | None:
    """The same; BlockingIOError where another process holds it. A host has one watching process."""
    if os.name != "posix":
        return None
    import fcntl

    path = host_folder / LOCK_FILE
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    deadline = time.monotonic() + TRY_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:  # perhaps somebody only looks whether it is held, for a moment
            if time.monotonic() > deadline:
                os.close(file)
                raise
            time.sleep(0.01)
        except OSError as error:
            os.close(file)
            if error.errno not in _NO_LOCKS:
                raise
            path.unlink(missing_ok=True)  # a lock that nobody holds would tell that the run has ended
            return None


def boot_id() -> str:
    """Tells this boot of this machine from all others; empty where the system does not say."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""

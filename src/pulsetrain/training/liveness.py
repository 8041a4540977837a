"""Whether the run that this process reports to is still being watched."""

from __future__ import annotations

import json
import os

LOCK_FILE = ".watching"
"""In the host's folder of a run: the watching process holds a lock on it as long as it lives."""
MOST_BYTES = 2**20
"""A run.json is much smaller."""


class RunEnded(Exception):
    """The run is over, and nothing may be added to it."""


def is_held(host_folder: str | os.PathLike[str]) -> bool | None:
    """Whether somebody watches there now; None when there is no lock to tell."""
    if os.name != "posix":
        return None
    import fcntl

    try:
        file = os.open(os.path.join(host_folder, LOCK_FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def has_ended(host_folder: str) -> bool:
    """Whether `run.json` says that the run is over, and nobody on this host watches it any more."""
    return not is_held(host_folder) and _is_marked_ended(host_folder)


def _is_marked_ended(host_folder: str) -> bool:
    try:
        with open(os.path.join(os.path.dirname(host_folder), "run.json"), "rb") as file:
            return bool(json.loads(file.read(MOST_BYTES)).get("status", "running") != "running")
    except (OSError, ValueError, AttributeError):
        return False

"""The recorder of this process: found through the environment that `pulsetrain run` sets, or made by `init`."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from pulsetrain.training import ranks
from pulsetrain.training.liveness import has_ended
from pulsetrain.training.masking import masked_command, storable
from pulsetrain.training.recorder import Recorder

FOLDER = "PULSETRAIN_TRAINING_FOLDER"
"""The host's folder of the run, into which this process writes its own file."""
STAMP = "PULSETRAIN_TRAINING_STAMP"
STARTED = "PULSETRAIN_TRAINING_STARTED"
"""When the run started, on the monotonic clock of this machine."""

PRIVATE = "PULSETRAIN_TRAINING_PRIVATE"
"""Set where command lines and settings are not to be recorded, but for what the program says itself."""
RUN_ID = "PULSETRAIN_RUN_ID"

active: Recorder | None = None
"""The recorder that takes reports now; what is called often looks here first."""

_lock = threading.Lock()
_recorder: Recorder | None = None


def current() -> Recorder | None:
    """This process's recorder, closed or not; None when nobody records."""
    return _recorder if _recorder is not None else _from_environment()


def record_into(folder: str, stamp: str, started: float) -> Recorder:
    """Make this process's recorder, unless there is one."""
    global _recorder, active
    with _lock:
        if _recorder is None or _recorder.closed:
            _recorder = active = Recorder(folder, stamp, started, about())
        return _recorder


def leave_ended_run() -> None:
    """Forget the run of the environment if it is over, so that another can begin: its variables may outlive it."""
    folder = os.environ.get(FOLDER)
    if folder and has_ended(folder):
        for name in (FOLDER, STAMP, STARTED, PRIVATE, RUN_ID):
            os.environ.pop(name, None)
        if _recorder is not None:
            close()


def close() -> None:
    """Write everything, and take no more reports."""
    global active
    active = None
    if _recorder is not None:
        _recorder.close()


def environment(folder: str, stamp: str, started: float, *, private: bool = False) -> dict[str, str]:
    """What `pulsetrain run` puts into the environment of its command."""
    return {FOLDER: folder, STAMP: stamp, STARTED: repr(started), **({PRIVATE: "1"} if private else {})}


def is_private() -> bool:
    """Whether neither command lines nor settings are to be recorded, but for what the program says itself."""
    return bool(os.environ.get(PRIVATE))


def about() -> dict[str, Any]:
    """What the head of a training file says of its process."""
    return {
        "local_rank": ranks.local_rank(),
        "python": sys.version.split()[0],
        "command": "" if is_private() else storable(" ".join(masked_command(getattr(sys, "argv", [])))[:200]),
    }


def _from_environment() -> Recorder | None:
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    try:
        started = float(os.environ.get(STARTED, ""))
    except ValueError:
        started = time.monotonic()
    return record_into(folder, os.environ.get(STAMP) or time.strftime("%Y%m%d_%H%M%S", time.gmtime()), started)

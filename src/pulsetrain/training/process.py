"""The recorder of this process: found through the environment that `pulsetrain run` sets, or made by `init`."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from pulsetrain.training.recorder import Recorder

FOLDER = "PULSETRAIN_TRAINING_FOLDER"
"""The host's folder of the run, into which this process writes its own file."""
STAMP = "PULSETRAIN_TRAINING_STAMP"
STARTED = "PULSETRAIN_TRAINING_STARTED"
"""When the run started, on the monotonic clock of this machine."""

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
            _recorder = active = Recorder(folder, stamp, started, rank(), about())
        return _recorder


def close() -> None:
    """Write everything, and take no more reports."""
    global active
    active = None
    if _recorder is not None:
        _recorder.close()


def environment(folder: str, stamp: str, started: float) -> dict[str, str]:
    """What `pulsetrain run` puts into the environment of its command."""
    return {FOLDER: folder, STAMP: stamp, STARTED: repr(started)}


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """Which of the processes of a distributed training this is; 0 when there is one."""
    return _first_number(environ, ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), 0)


def world_size(environ: Mapping[str, str] = os.environ) -> int:
    return _first_number(environ, ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), 1)


def one_of_many(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is one of several processes that a launcher started as ranks of one training."""
    return "RANK" in environ or _first_number(environ, ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"), 1) > 1


def about() -> dict[str, Any]:
    """What the head of a training file says of its process."""
    return {
        "world_size": world_size(),
        "local_rank": _first_number(os.environ, ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), 0),
        "python": sys.version.split()[0],
        "command": " ".join(sys.argv)[:200] if hasattr(sys, "argv") else "",
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


def _first_number(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return default

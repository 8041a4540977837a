"""Which rank of a training this process is, as far as it is known by now.

A process group says it. Before there is one, or without one, the launcher's variables do. Of several processes that
train at once under one number, as in a Hogwild training, the first of a host keeps it; the others get numbers beyond
the ranks that the launcher knows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

CLAIMS = ".ranks"
"""In the folder of the training files. Who holds a lock on its byte N trains as rank N on this host."""
MOST_CLAIMED = 10_000
"""Beyond the ranks of the launcher."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_NODES = ("NODE_RANK", "GROUP_RANK")


class Rank(NamedTuple):
    number: int
    world_size: int
    of_group: bool
    """Whether a process group says so; otherwise one may still say something else."""


_of_group: Rank | None = None
"""What the last process group said. It may be gone when somebody asks."""


def launched(environ: Mapping[str, str] = os.environ) -> Rank:
    """What the launcher's variables say."""
    size = _first_number(environ, _SIZES)
    return Rank(_launched_number(environ) or 0, 1 if size is None else size, False)


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """Which of the ranks of its host the launcher made this process."""
    return _first_number(environ, _LOCAL_RANKS) or 0


def one_of_many(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is one of several processes that a launcher started as ranks of one training."""
    return "RANK" in environ or (_first_number(environ, ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")) or 1) > 1


def of_group() -> Rank | None:
    """What the process group says, or the last one said; None where there was none."""
    global _of_group
    with suppress(Exception):  # a framework that is being imported, or a group that is being taken apart
        _of_group = _torch_rank() or _jax_rank() or _of_group
    return _of_group


class ProcessRank:
    """The rank of this process, for as long as it writes."""

    def __init__(self, folder: str) -> None:
        self._claims = os.path.join(folder, CLAIMS)
        self._descriptor: int | None = None
        self._claimed: Rank | None = None

    def now(self, *, trains: bool) -> Rank:
        """As it is known now. Without a process group, one that `trains` gets a number of its own on this host."""
        found = of_group()
        if found is None:
            found = self._claimed
        if found is None:
            found = launched()
            if trains:
                found = self._claimed = self._claim(found)
        return found

    def close(self) -> None:
        """Let others have the number."""
        self._claimed = None
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _claim(self, wanted: Rank) -> Rank:
        beyond = range(wanted.world_size, wanted.world_size + MOST_CLAIMED)
        for number in (wanted.number, *beyond):
            if self._lock(number):
                return wanted._replace(number=number)
        return wanted

    def _lock(self, number: int) -> bool:
        """Whether nobody else has this number. Such a lock ends with its process, and no forked child inherits it."""
        try:
            import fcntl
        except ImportError:  # on Windows
            return True
        try:
            if self._descriptor is None:
                os.makedirs(os.path.dirname(self._claims), exist_ok=True)
                self._descriptor = os.open(self._claims, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):  # systems differ in how they say that it is taken
            return self._descriptor is None
        except OSError:  # a file system without locks
            return True
        return True


def _torch_rank() -> Rank | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Rank(distributed.get_rank(), distributed.get_world_size(), True)


def _jax_rank() -> Rank | None:
    # `jax.process_index()` would start the devices, which is the program's to do.
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is None or state.process_id is None:
        return None
    return Rank(int(state.process_id), int(state.num_processes or 1), True)


def _launched_number(environ: Mapping[str, str]) -> int | None:
    number = _first_number(environ, _RANKS)
    if number is not None:
        return number
    local, node = _first_number(environ, ("LOCAL_RANK",)), _first_number(environ, _NODES) or 0
    on_each_node = _first_number(environ, ("LOCAL_WORLD_SIZE",)) if node else 0
    return None if local is None or on_each_node is None else node * on_each_node + local


def _first_number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None

"""The end of this process, in whatever way Python lets it be seen: what must be written before it."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from contextlib import suppress
from typing import Any, Callable

from pulsetrain.training import notebooks

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

_callbacks: list[Callable[[], None]] = []
_status = 0
"""What `os._exit` was called with."""


def before_end(callback: Callable[[], None]) -> None:
    """Have it called before this process ends, or a forked child of it; the one registered last comes first.

    Also before `os._exit`, with which forked children of multiprocessing end. A process that is ended by a signal calls
    nothing.
    """
    if not _callbacks:
        atexit.register(_end)
        _watch_exit()
    if callback in _callbacks:
        _callbacks.remove(callback)
    _callbacks.append(callback)


def outcome() -> str:
    """How this process ends, once it does: `finished`, or another status with its exit code, such as `failed 1`.

    After `sys.exit(3)` it is `finished`, because Python does not tell.
    """
    kind = getattr(sys, "last_type", None)
    if _status:
        return status(_status)
    if notebooks.cell_was_interrupted():
        return status(INTERRUPTED)
    if kind is None or hasattr(sys, "ps1") or notebooks.shell() is not None:  # there, errors end nothing
        return "finished"
    return status(INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1)


def status(exit_code: int) -> str:
    """What `outcome` says of a process that ends with this code."""
    if not exit_code:
        return "finished"
    return "%s %d" % ("interrupted" if exit_code == INTERRUPTED else "failed", exit_code)


def _end() -> None:
    for callback in reversed(_callbacks):
        with suppress(Exception):  # there is nowhere left to say it
            callback()


def _watch_exit() -> None:
    original: Any = os._exit

    @functools.wraps(original)
    def _exit(status: int) -> None:
        global _status
        _status = status
        _end()
        original(status)

    os._exit = _exit  # type: ignore[assignment]

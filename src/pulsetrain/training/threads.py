"""Threads and processes around us."""

from __future__ import annotations

import sys
import threading
from typing import Callable


def start_thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """A daemon, already running; None where the system allows no further thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def in_pool_worker() -> bool:
    """Whether this process is a daemon of multiprocessing, such as a Pool's worker: those end without notice."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None and bool(module.current_process().daemon)

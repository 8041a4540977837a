"""How long Python's garbage collector holds up the program."""

from __future__ import annotations

import gc
import time
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training.guard import Guard

LEAST_SECONDS = 1e-4
"""A shorter collection stays part of what it interrupted."""


def watch_collector() -> None:
    """Note each collection of this process that is worth it. A second call changes nothing."""
    if any(getattr(callback, "pulsetrain_watches", False) for callback in gc.callbacks):
        return
    clock, guard, began = time.perf_counter, Guard("The watch on garbage collection"), 0.0

    def collected(phase: str, info: dict[str, Any]) -> None:
        nonlocal began
        if phase == "start":
            began = clock()
            return
        now = clock()
        loop = loops._loop
        if loop is not None and now - began > LEAST_SECONDS and guard.works:
            try:
                loop.note((loop.spans.part, now, "gc", began))
            except Exception as error:
                guard.failed(error)

    collected.pulsetrain_watches = True  # type: ignore[attr-defined]
    gc.callbacks.append(collected)

"""Stretches of a program's time with a purpose of their own: checkpoints, compiling, logging, collectives, collections.

A span lies inside whatever else is going on, and its time is its own: a collection of garbage in a forward pass is no
part of the forward pass. Short spans that come in every step are parts of the step's line; longer ones are phases.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable
from typing import Any, Callable

from pulsetrain.training import loop as loops
from pulsetrain.training.guard import Guard

MOST_EARLY = 100

_clock = time.perf_counter


class Spans:
    """Spans of one kind, as the loop of this process learns of them. Those of other threads do not hold it up."""

    def __init__(self, what: str) -> None:
        self._guard = Guard(what)
        self._open = False

    def begin(self) -> float | None:
        """When it began; None for one inside another of this kind, and in another thread."""
        if self._open or threading.current_thread() is not threading.main_thread():
            return None
        self._open = True
        return _clock()

    def end(self, note: Callable[[str, float], None], name: str, began: float | None) -> None:
        if began is None:
            return
        self._open = False
        if self._guard.works:
            try:
                note(name, began)
            except Exception as error:  # whatever it is, the program continues
                self._guard.failed(error)

    def timed(self, original: Any, note: Callable[[str, float], None], name: str) -> Any:
        """The same function, whose calls are spans."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = self.begin()
            try:
                return original(*args, **kwargs)
            finally:
                self.end(note, name, began)

        call.pulsetrain_watches = True  # type: ignore[attr-defined]
        return call

    def wrap(self, owner: Any, names: Iterable[str], note: Callable[[str, float], None], name: str) -> None:
        """Make calls of these functions or methods spans, where they exist and are not yet."""
        for attribute in names:
            original = getattr(owner, attribute, None)
            if original is not None and not hasattr(original, "pulsetrain_watches"):
                setattr(owner, attribute, self.timed(original, note, name))


def note_part(name: str, began: float) -> None:
    """A span that ends now, as a part of the step that it lies in; outside of a training it is nothing."""
    loop = loops.existing()
    if loop is not None:
        loop.note((loop.spans.part, _clock(), name, began))


def note_phase(name: str, began: float) -> None:
    """A span that ends now, as a phase. Loading a model alone is not a training: recording waits for one."""
    now, loop = _clock(), loops.existing()
    if loop is not None:
        loop.note((loop.spans.phase, now, name, began))
    elif len(loops.early) < MOST_EARLY:
        loops.early.append((now, name, began))

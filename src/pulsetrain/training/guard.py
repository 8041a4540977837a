"""The one place that keeps our errors out of the user's program."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

from pulsetrain.training import process

R = TypeVar("R")


class Guard:
    """Of one hook. Where a call more would cost too much, a hook asks `works` and gives its errors to `failed` itself.

    The first error is reported once in the run, and the hook is off from then on.
    """

    def __init__(self, what: str) -> None:
        self.works = True
        self._what = what

    def failed(self, error: Exception) -> None:
        self.works = False
        recorder = process.current()
        if recorder is not None:
            message = "%s is off after an error: %s: %s" % (self._what, type(error).__name__, error)
            recorder.note_once("instrumentation_error", message, "warning")


def guarded(function: Callable[..., R]) -> Callable[..., R | None]:
    """The same function behind a guard; it gives None once it is off.

    For bodies of hooks and callbacks, which run our code alone: errors of the user's code must not pass through here.
    """
    guard = Guard(function.__qualname__)

    @functools.wraps(function)
    def safe(*args: Any, **kwargs: Any) -> R | None:
        if guard.works:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # whatever it is, the training continues without this hook
                guard.failed(error)
        return None

    return safe

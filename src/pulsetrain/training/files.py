"""Files that a training writes: which, and at which step. The watching process looks at them; nothing is copied."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training import process, provenance

_PATHS = ("f", "filename", "filepath", "checkpoint_id")
"""What functions that save call the place they save to."""


def note_file(path: str | os.PathLike[str], *, step: int | None = None) -> None:
    """Record a file that the training wrote, such as its best checkpoint: path, size, checksum and step; no copy.

    `step` is the last one that was seen, unless it is given. Size and checksum are looked up in the background.
    """
    if process.current() is not None:
        _note(os.fspath(path), "file", step, explicit=True)


def watch_savers(owner: Any, names: Iterable[str]) -> None:
    """Note where these functions save to, once they have."""
    for name in names:
        original = getattr(owner, name, None)
        if original is not None and not hasattr(original, "pulsetrain_watches"):
            setattr(owner, name, _noting(original))


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        with suppress(Exception):  # of whatever was given as a place: then the file is not noted
            place = args[1] if len(args) > 1 else next((kwargs[name] for name in _PATHS if name in kwargs), None)
            path = place if isinstance(place, (str, os.PathLike)) else getattr(place, "name", None)
            if isinstance(path, (str, os.PathLike)):
                _note(os.fspath(path), "checkpoint", None, explicit=False)
        return result

    return save


def _note(path: Any, kind: str, step: int | None, *, explicit: bool) -> None:
    loop = loops.existing()
    values: dict[str, Any] = {"path": os.path.abspath(os.fsdecode(path)), "kind": kind}
    if step is None and loop is not None:  # which is told of steps a little later than they are done, in their order
        loop.note((_at_step, time.perf_counter(), loop, values, explicit))
        return
    if step is None:
        from pulsetrain.training import api  # which a program that logs its steps has loaded already

        last = api.last_logged_step()
        step = None if last is None else int(last)
    if step is not None:
        values["step"] = int(step)
    provenance.note("file", kind, values, explicit=explicit)


def _at_step(now: float, loop: loops.Loop, values: dict[str, Any], explicit: bool) -> None:
    if loop.lines.step is not None:
        values["step"] = loop.lines.step
    provenance.note("file", values["kind"], values, explicit=explicit)

"""What a program logs to an experiment tracker, taken into the run as figures of the program's own.

A line has the step that the tracker was given. Where hooks or callbacks count the steps and that number is another one,
an epoch say, it has theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training import metric_sources, process
from pulsetrain.training.callbacks import OWN_FIELDS, is_number
from pulsetrain.training.encoder import RESERVED_FIELDS

STEP_NAMES = ("trainer/global_step", "train/global_step", "global_step", "step")
"""Under which programs and frameworks log the number of the step beside their figures."""
MOST_NAMES = 1000
"""Of one call."""
DEEPEST = 4

_runs: set[tuple[str, str]] = set()


def note_run(tracker: str, run: str, **details: Any) -> None:
    """Say in the run, once, which run of a tracker the program logs to."""
    recorder = process.current()
    if recorder is None or not run or (tracker, run) in _runs:
        return
    _runs.add((tracker, run))
    about = {name: str(value) for name, value in details.items() if value}
    recorder.note(
        "tracker", "The program logs to %s, run %s." % (tracker, run), tracker=tracker, tracker_run=run, **about
    )


def note_metrics(tracker: str, metrics: Mapping[str, Any], step: Any = None, *, counted: Any = None) -> None:
    """Take figures of this moment. `counted` is the number that the tracker gives to a call without a step."""
    recorder = process.current()
    if recorder is None or recorder.closed:
        return
    figures = dict(_figures(metrics))
    named = next((figures[name] for name in STEP_NAMES if name in figures), None)
    given = _whole(step if named is None else named)
    loop = loops.existing()
    measured = _measured(loop)
    if given is None and measured is None:
        given = _whole(counted)
    counting = given if given is not None else measured
    fields: dict[str, Any] = {}
    for name, value in figures.items():
        if name in STEP_NAMES:
            continue
        known = "logged_" + name if name in (RESERVED_FIELDS if measured is None else OWN_FIELDS) else name
        if counting is None or metric_sources.sources.counts(tracker, name, counting):
            fields[known] = value
    if fields:
        recorder.add(fields if counting is None else {"step": _on_timeline(given, measured), **fields})


def _measured(loop: Any) -> int | None:
    """The number of the last step, where hooks or callbacks count them."""
    if loop is None:
        return None
    loop.catch_up()
    return int(loop.step) if loop.measures_steps else None


def _on_timeline(given: int | None, measured: int | None) -> int | None:
    if given is None or measured is None:
        return measured if given is None else given
    return given if abs(given - measured) <= 1 else measured


def _figures(metrics: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Numbers by their names; those of nested mappings as `train.loss`. Pictures, tables and texts are left out."""
    for name in list(metrics)[:MOST_NAMES]:
        value = metrics[name]
        if isinstance(value, Mapping):
            if depth < DEEPEST:
                yield from _figures(value, "%s%s." % (prefix, name), depth + 1)
        elif is_number(value):
            yield prefix + str(name), value


def _whole(step: Any) -> int | None:
    """The number of a step; None for what is none, or what a device would have to be asked for."""
    if step is None or str(getattr(step, "device", "cpu")) != "cpu":
        return None
    try:
        return int(step)
    except Exception:  # the value's own code runs here
        return None

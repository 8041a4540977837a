"""What is said to a tracker, and what each of them has to understand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pulsetrain.runs.folder import Run

Memory = dict[str, Any]
"""What a tracker has to know again after a restart. It is kept in the run folder with what was sent."""


def flat_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names, for trackers that do not nest them: `{"model": {"depth": 12}}` is `model.depth`."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= flat_config(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


class Row(NamedTuple):
    """Figures of one moment."""

    number: int
    """Of all rows of the run, from 1: the same after a restart."""
    time: float
    """Seconds since the epoch."""
    step: int
    """Of the training; of the machine, whole seconds since the run began."""
    values: dict[str, float]
    of_machine: bool


class Ending(NamedTuple):
    """How a run ended, and what became of it."""

    run: Run
    figures: Mapping[str, float]
    """Energy, carbon, cost and the like, under names that begin with `run/`."""
    words: Mapping[str, str]
    """The verdict and other texts."""
    files: Sequence[Path]


class Tracker(Protocol):
    """One run in a tracker. A method that fails raises whatever its library raises, and is called again later."""

    def open(self, run: Run) -> None:
        """Begin the run there, or continue with the one that `memory` names."""

    def describe(self, run: Run) -> None:
        """Settings and tags. Called again when they have changed."""

    def send(self, rows: Sequence[Row], *, again: bool) -> None:
        """Keep these rows. With `again`, some or all of them may be there already: each is to be there once."""

    def finish(self, ending: Ending) -> None:
        """The run has ended. May be called again."""

    def close(self) -> None:
        """Let go of what is open; after an error too."""

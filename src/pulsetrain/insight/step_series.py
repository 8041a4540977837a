"""All steps of the first rank one after the other, each in its class: plain, or with something long in it."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.robust import Floats
from pulsetrain.insight.steps import ROUNDING_SECONDS, PhaseInterval, StepFacts, read_phases
from pulsetrain.runs.database import Database

PLAIN, EVALUATION, CHECKPOINT, EPOCH_EDGE, OTHER = "plain", "evaluation", "checkpoint", "epoch edge", "other"
_WORDS = {EVALUATION: re.compile(r"eval|valid|test", re.I), CHECKPOINT: re.compile(r"checkpoint|save|saving", re.I)}


@dataclass(frozen=True)
class StepSeries:
    """One entry for each step, in order of time."""

    numbers: Floats
    begins: Floats
    ends: Floats
    """Elapsed seconds."""
    seconds: Floats
    samples: Floats
    passes: Floats
    """Backward passes; NaN where not known."""
    kinds: npt.NDArray[np.str_]
    parts: dict[str, Floats]
    """Seconds of each of STEP_PARTS; NaN where not known."""
    warm_up: int

    @property
    def steady(self) -> npt.NDArray[np.bool_]:
        """Which steps are after the warm-up."""
        return np.arange(len(self.kinds)) >= self.warm_up

    @property
    def plain(self) -> npt.NDArray[np.bool_]:
        """Which steps are plain and after the warm-up."""
        return np.asarray((self.kinds == PLAIN) & self.steady)


def phase_kind(name: str) -> str:
    """The class of a step that has a phase of this name in it."""
    return next((kind for kind, words in _WORDS.items() if words.search(name)), OTHER)


def read_step_series(database: Database, steps: StepFacts) -> StepSeries:
    columns = ", ".join(f"{part}_seconds" for part in STEP_PARTS)
    lines = database.arrays(
        f"SELECT step, elapsed_seconds, step_seconds, samples, accumulation, epoch, {columns} FROM first_rank.training "
        "WHERE step_seconds > 0 ORDER BY elapsed_seconds"
    )
    ends = lines["elapsed_seconds"]
    begins = ends - lines["step_seconds"]
    return StepSeries(
        numbers=lines["step"],
        begins=begins,
        ends=ends,
        seconds=lines["step_seconds"],
        samples=lines["samples"],
        passes=lines["accumulation"],
        kinds=_kinds(begins, ends, lines["epoch"], read_phases(database)),
        parts={part: lines[f"{part}_seconds"] for part in STEP_PARTS},
        warm_up=steps.warm_up,
    )


def _kinds(begins: Floats, ends: Floats, epochs: Floats, phases: list[PhaseInterval]) -> npt.NDArray[np.str_]:
    kinds = np.full(len(ends), PLAIN, dtype="<U16")
    # An epoch may end with the number of the next: the step on either side of the edge counts.
    with np.errstate(invalid="ignore"):
        edges = np.flatnonzero(np.diff(np.floor(epochs - 1e-9)) > 0) + 1
    for edge in edges:
        kinds[edge - 1 : edge + 1] = EPOCH_EDGE
    for phase in sorted(phases, key=lambda phase: phase.seconds):
        first = int(np.searchsorted(ends, phase.begin + ROUNDING_SECONDS))
        last = int(np.searchsorted(begins, phase.end - ROUNDING_SECONDS))
        if last - first == 1:  # a phase around several steps is training
            kinds[first] = phase_kind(phase.name)
    return kinds

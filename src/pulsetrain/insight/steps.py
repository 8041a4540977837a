"""The steps of a training: which of them are steady, and what they say about its speed.

Every surface takes its figures from here. Steady steps give speed, shares and energy per step. The others are left out
and named with their time: the warm-up, in which programs compile and fill caches, and steps with a phase inside, such
as a validation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.parts import STEP_PARTS, parts_seen
from pulsetrain.insight.warm_up import warm_up_steps
from pulsetrain.runs.database import Database

Floats = npt.NDArray[np.float64]

SLOW_FIRST_STEP = 2.0
"""The first of few steps is left out if it takes more than this many times the median of the others."""
ROUNDING_SECONDS = 1e-5
"""Times in lines have six decimals."""
UNNAMED = "other"
"""A phase without a name."""


@dataclass(frozen=True)
class PhaseInterval:
    """A stretch of the program with a name, in elapsed seconds."""

    name: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class RankTotals:
    """What all ranks work on together, each in its steady steps. None where a rank did not report it."""

    samples_per_step: float | None = None
    tokens_per_step: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class StepFacts:
    """The steady steps of one rank in order of time, and what was left out."""

    seconds: Floats
    """Without the phases inside, where such steps are not left out."""
    samples: Floats
    """Of each step; NaN where the loop did not report it."""
    tokens: Floats
    begins: Floats
    ends: Floats
    """Elapsed seconds."""
    parts: dict[str, float | None]
    """Mean seconds of each of STEP_PARTS in a step; None where never seen."""
    mfu_ratio: float | None
    total: int
    """All steps, those left out included."""
    warm_up: int
    """Steps left out at the start."""
    warm_up_seconds: float
    """Of those steps, without phases inside."""
    interrupted: int
    """Steps left out after the warm-up because of a phase inside."""
    interrupted_by: tuple[str, ...]
    """The names of the phases inside steps after the warm-up."""
    phases: dict[str, float]
    """Seconds of all phases, by name. One around steps is training, and not among them."""
    began: float
    warm_at: float
    ended: float
    """Elapsed seconds: start of the first step, end of the warm-up, end of the last step."""
    cut_out: tuple[PhaseInterval, ...]
    """Phases inside steady steps, whose time is not theirs: where most steps have one, they are not left out."""
    outside: float
    """Seconds from the first step to the last in no step."""
    pauses: float
    """Of those, the seconds in no phase."""
    totals: RankTotals = RankTotals()

    @property
    def count(self) -> int:
        """Steady steps."""
        return len(self.seconds)

    @property
    def mean_seconds(self) -> float:
        return float(self.seconds.mean())

    @property
    def samples_per_step(self) -> float | None:
        return _mean_of_known(self.samples)

    @property
    def tokens_per_step(self) -> float | None:
        return _mean_of_known(self.tokens)

    @property
    def samples_per_second(self) -> float | None:
        return self._per_second(self.samples)

    @property
    def tokens_per_second(self) -> float | None:
        return self._per_second(self.tokens)

    @property
    def sample_seconds(self) -> Floats:
        """Time for a sample, step by step, where the number of samples is known."""
        known = self.samples > 0
        return self.seconds[known] / self.samples[known]

    @property
    def sample_seconds_p50(self) -> float | None:
        times = self.sample_seconds
        return float(np.median(times)) if len(times) else None

    @property
    def outside_share(self) -> float | None:
        """Share of the time from the first step to the last that lies in none."""
        return self.outside / (self.ended - self.began) if self.ended > self.began else None

    @property
    def pace_seconds(self) -> float:
        """From one step to the next after the warm-up, with all that lies between: what a step to come will take."""
        return (self.ended - self.warm_at) / (self.total - self.warm_up)

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share))

    def share(self, part: str) -> float | None:
        """How much of the step time one of STEP_PARTS takes."""
        mean = self.parts[part]
        return None if mean is None or not self.mean_seconds else mean / self.mean_seconds

    def _per_second(self, amounts: Floats) -> float | None:
        known = ~np.isnan(amounts)
        seconds = self.seconds[known].sum()
        return float(amounts[known].sum() / seconds) if seconds else None


def read_steps(database: Database) -> StepFacts | None:
    """The steps of the first rank of the one run in this database, with the totals of all ranks; None without steps."""
    rows = database.rows("SELECT DISTINCT coalesce(rank, 0) AS rank FROM training WHERE step_seconds > 0 ORDER BY rank")
    first: StepFacts | None = None
    rates: list[RankTotals] = []
    for row in rows:
        steps = _steps_of_rank(database, row["rank"])
        first = first or steps
        rates.append(
            RankTotals(steps.samples_per_step, steps.tokens_per_step, steps.samples_per_second, steps.tokens_per_second)
        )
    return replace(first, totals=_summed(rates)) if first else None


def read_phases(database: Database) -> list[PhaseInterval]:
    """The phases of the first rank."""
    return phases_of(database, "first_rank.training")


def _steps_of_rank(database: Database, rank: int) -> StepFacts:
    own = f"(FROM training WHERE coalesce(rank, 0) = {rank:d})"
    parts = ", ".join(f"{part}_seconds" for part in STEP_PARTS)
    lines = database.arrays(
        f"SELECT elapsed_seconds, step_seconds, samples, tokens, mfu_ratio, {parts} FROM {own} "
        "WHERE step_seconds > 0 ORDER BY elapsed_seconds"
    )
    return _step_facts(lines, phases_of(database, own))


def phases_of(database: Database, lines: str, parameters: Sequence[object] = ()) -> list[PhaseInterval]:
    """The phases in the lines of one rank, which a query gives."""
    rows = database.rows(
        f"SELECT phase, elapsed_seconds AS until, phase_seconds AS seconds FROM {lines} WHERE phase_seconds > 0",
        parameters,
    )
    return [PhaseInterval(row["phase"] or UNNAMED, row["until"] - row["seconds"], row["until"]) for row in rows]


def _step_facts(lines: Mapping[str, Floats], phases: Sequence[PhaseInterval]) -> StepFacts:
    ends, whole = lines["elapsed_seconds"], lines["step_seconds"]
    begins = ends - whole
    apart = _Apart([phase for phase in phases if not holds_steps(phase, ends)])
    inside = np.zeros(len(ends))
    in_steps = apart.in_steps(begins, ends)
    for phase, step in in_steps:
        inside[step] += phase.seconds
    seconds = np.maximum(0.0, whole - inside)
    warm_up = leading_steps(seconds)
    steady = np.arange(len(ends)) >= warm_up
    interrupted = steady & (inside > 0)
    if 2 * interrupted.sum() < steady.sum():
        steady &= ~interrupted
    outside = max(0.0, float(ends[-1] - ends[0] - whole[1:].sum()))
    return StepFacts(
        seconds=seconds[steady],
        samples=lines["samples"][steady],
        tokens=lines["tokens"][steady],
        begins=begins[steady],
        ends=ends[steady],
        parts=_parts(lines, inside, steady),
        mfu_ratio=_weighted(lines["mfu_ratio"][steady], whole[steady], seconds[steady]),
        total=len(ends),
        warm_up=warm_up,
        warm_up_seconds=float(seconds[:warm_up].sum()),
        interrupted=len(ends) - warm_up - int(steady.sum()),
        interrupted_by=tuple(dict.fromkeys(phase.name for phase, step in in_steps if step >= warm_up)),
        phases=apart.seconds,
        began=float(begins[0]),
        warm_at=float(ends[warm_up - 1] if warm_up else begins[0]),
        ended=float(ends[-1]),
        cut_out=tuple(phase for phase, step in in_steps if steady[step]),
        outside=outside,
        pauses=max(0.0, outside - apart.seconds_between(float(begins[0]), float(ends[-1])) + float(inside.sum())),
    )


def leading_steps(seconds: Floats) -> int:
    """How many steps are left out at the start as the warm-up: of few, the first alone may be."""
    slow_first = len(seconds) > 2 and bool(seconds[0] > SLOW_FIRST_STEP * np.median(seconds[1:]))
    return warm_up_steps(len(seconds)) or int(slow_first)


def holds_steps(phase: PhaseInterval, ends: Floats) -> bool:
    """Whether steps end inside: then the phase is a stretch of training, and not apart from it."""
    next_step = int(np.searchsorted(ends, phase.begin + ROUNDING_SECONDS, "right"))
    return next_step < len(ends) and bool(ends[next_step] < phase.end - ROUNDING_SECONDS)


class _Apart:
    """Phases apart from training, such as validations. Of those inside each other, the inner one counts."""

    def __init__(self, phases: Sequence[PhaseInterval]) -> None:
        self.seconds: dict[str, float] = {}
        """By name."""
        self._outer: list[PhaseInterval] = []
        open_phases: list[PhaseInterval] = []
        for phase in sorted(phases, key=lambda phase: (phase.begin, -phase.end)):
            while open_phases and open_phases[-1].end < phase.begin + ROUNDING_SECONDS:
                open_phases.pop()
            if open_phases:
                self.seconds[open_phases[-1].name] -= phase.seconds
            else:
                self._outer.append(phase)
            self.seconds[phase.name] = self.seconds.get(phase.name, 0.0) + phase.seconds
            open_phases.append(phase)

    def seconds_between(self, begin: float, end: float) -> float:
        return sum(max(0.0, min(end, phase.end) - max(begin, phase.begin)) for phase in self._outer)

    def in_steps(self, begins: Floats, ends: Floats) -> list[tuple[PhaseInterval, int]]:
        """Those that lie in a step as a whole, each with the number of its step."""
        found = []
        for phase in self._outer:
            step = int(np.searchsorted(ends, phase.end - ROUNDING_SECONDS))
            if step < len(ends) and begins[step] < phase.begin + ROUNDING_SECONDS:
                found.append((phase, step))
        return found


def _parts(lines: Mapping[str, Floats], inside: Floats, steady: npt.NDArray[np.bool_]) -> dict[str, float | None]:
    """Mean seconds of what a step is made of."""
    found: dict[str, float | None] = {}
    for part in STEP_PARTS:
        seconds = lines[f"{part}_seconds"]
        if part == "other":  # phases are recorded as part of it
            seconds = np.maximum(0.0, seconds - inside)
        seconds = seconds[steady]
        found[part] = None if np.isnan(seconds).all() else float(np.nansum(seconds) / len(seconds))
    return parts_seen(found)


def _mean_of_known(amounts: Floats) -> float | None:
    known = amounts[~np.isnan(amounts)]
    return float(known.mean()) if len(known) else None


def _weighted(ratios: Floats, whole: Floats, seconds: Floats) -> float | None:
    """The mean of ratios that hold for whole steps, in the seconds that count of them."""
    known = ~np.isnan(ratios)
    counted = seconds[known].sum()
    return float((ratios[known] * whole[known]).sum() / counted) if counted else None


def _summed(rates: Sequence[RankTotals]) -> RankTotals:
    found: dict[str, float | None] = {}
    for field in fields(RankTotals):
        values = [getattr(rate, field.name) for rate in rates]
        found[field.name] = None if None in values else sum(values)
    return RankTotals(**found)

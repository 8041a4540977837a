"""Where the time of one rank went: every instant of its processes, and of the gaps between them, in exactly one class.

The time is cut at every edge of a step or a phase. A piece in a phase belongs to the innermost one, a piece in a step
is shared by the parts that the step reported, and what no event explains is unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pulsetrain.catalog.time_classes import (
    COMPUTE_CLASSES,
    PART_CLASSES,
    STARTUP_PARTS,
    TIME_CLASSES,
    class_of_phase,
)
from pulsetrain.insight.energy.figures import Origin, worst_origin
from pulsetrain.insight.steps import ROUNDING_SECONDS, Floats, PhaseInterval, holds_steps, leading_steps
from pulsetrain.insight.warm_up import LEAST_STEPS

STALL_TIMES = 5.0
"""A part that takes this many times as long as the longest other one of its kind was a stall."""
STALL_SECONDS = 1.0
"""A shorter one is an outlier, not a stall."""
STALL_SHARE = 0.01
"""Of the steps at most; what comes more often belongs to the program."""
MOST_PIECES = 50_000
"""Of one rank; shorter neighbors are put together."""

_CLASSES = tuple(TIME_CLASSES)
_PLACE = {name: place for place, name in enumerate(_CLASSES)}
_COMPUTE = [_PLACE[name] for name in COMPUTE_CLASSES]
_INNER = [_PLACE["garbage_collection"], _PLACE["logging"]]
"""Parts that may lie inside a phase of the same step."""
_UNKNOWN = _PLACE["unknown"]
Labels = npt.NDArray[np.intp]


@dataclass(frozen=True)
class ProcessLife:
    """One process of a rank, in elapsed seconds of its host."""

    began: float
    ended: float
    attempt: int = 1
    continues: bool = False
    """Whether it took the place of one that did not finish."""
    start_known: bool = True
    end_known: bool = True
    trains_on: bool = False
    """Whether it has not ended yet."""
    interpreter_seconds: float | None = None
    imports_seconds: float | None = None
    """Of its start-up; None where not known."""


@dataclass(frozen=True)
class RankLines:
    """What one rank reported, as columns."""

    steps: Mapping[str, Floats]
    """In order of `elapsed_seconds`; `step`, `step_seconds`, and `_seconds` of PART_CLASSES and `other`, or NaN."""
    phases: Sequence[PhaseInterval]
    on_device: bool = False
    """Whether it computes on a GPU, of which the host sees only launches."""


@dataclass
class RankTimeline:
    """The time of one process, and of the gap before it."""

    host: str
    rank: int
    attempt: int
    edges: Floats
    """Elapsed seconds, rising."""
    seconds: Floats
    """A row for each piece between two edges, a column for each of TIME_CLASSES. A row adds up to its piece."""
    obtained: dict[str, Origin] = field(default_factory=dict)
    """Of the classes that were not measured as they are."""
    startup: dict[str, float] = field(default_factory=dict)
    """Seconds of each of STARTUP_PARTS, where they are known. They add up to the class."""

    @property
    def began(self) -> float:
        return float(self.edges[0])

    @property
    def ended(self) -> float:
        return float(self.edges[-1])

    def totals(self, weights: Floats | None = None) -> dict[str, float]:
        """Seconds of each class that has any; or of something else, of which each piece has so much."""
        rows = self.seconds
        if weights is not None:
            lengths = np.diff(self.edges)
            rows = rows * (weights / np.where(lengths > 0, lengths, 1.0))[:, None]
        held = self.seconds.sum(axis=0) > 0
        return {name: float(rows[:, place].sum()) for place, name in enumerate(_CLASSES) if held[place]}

    def band(self, edges: Floats) -> dict[str, Floats]:
        """Seconds of each class that has any between neighbors of these moments."""
        return {
            name: np.diff(np.interp(edges, self.edges, np.concatenate(([0.0], np.cumsum(self.seconds[:, place])))))
            for name, place in _PLACE.items()
            if self.seconds[:, place].any()
        }


def rank_timelines(host: str, rank: int, lives: Sequence[ProcessLife], lines: RankLines) -> list[RankTimeline]:
    """One timeline for each process of a rank, in order of time. Each begins where the one before ended."""
    numbers, ends = lines.steps["step"], lines.steps["elapsed_seconds"]
    found: list[RankTimeline] = []
    for place, life in enumerate(lives):
        until = lives[place + 1].began if place + 1 < len(lives) else np.inf
        own = (ends > life.began) & (ends <= until)
        steps = {name: column[own] for name, column in lines.steps.items()}
        phases = [phase for phase in lines.phases if life.began < phase.end <= until]
        following = lives[place + 1] if place + 1 < len(lives) else None
        lost_from = np.inf
        if following is not None and following.continues:
            after = (ends > following.began) & np.isfinite(numbers)
            if len(lives) > place + 2:
                after &= ends <= lives[place + 2].began
            lost_from = _resumed_at(numbers[after], lines.phases, following)
        timeline = _life(life, RankLines(steps, phases, lines.on_device), lost_from)
        edges, seconds = timeline.edges, timeline.seconds
        if found and found[-1].ended < life.began:
            gap = np.zeros((1, len(_CLASSES)))
            gap[0, _PLACE["restart" if life.continues else "unknown"]] = life.began - found[-1].ended
            edges, seconds = np.concatenate(([found[-1].ended], edges)), np.concatenate((gap, seconds))
        startup = _startup_parts(life, float(seconds[:, _PLACE["startup"]].sum()))
        edges, seconds = _put_together(edges, seconds)
        found.append(RankTimeline(host, rank, life.attempt, edges, seconds, timeline.obtained, startup))
    return found


def _startup_parts(life: ProcessLife, seconds: float) -> dict[str, float]:
    """What a start-up of so many seconds was spent on. What is neither of the parts that are measured is set-up."""
    if not seconds or life.interpreter_seconds is None or life.imports_seconds is None:
        return {}
    interpreter = min(life.interpreter_seconds, seconds)
    imports = min(life.imports_seconds, seconds - interpreter)
    return dict(zip(STARTUP_PARTS, (interpreter, imports, seconds - interpreter - imports), strict=True))


def _resumed_at(numbers: Floats, phases: Sequence[PhaseInterval], life: ProcessLife) -> float:
    """The first step that an attempt did again; infinite where nobody can tell.

    A loop that says no numbers is counted from 1. If it loaded something before, it may have resumed anywhere.
    """
    if not len(numbers):
        return np.inf
    first = float(numbers[0])
    loaded = any(phase.begin >= life.began and phase.name.startswith("loading") for phase in phases)
    return np.inf if first <= 1 and loaded else first


def _life(life: ProcessLife, lines: RankLines, lost_from: float) -> RankTimeline:
    begin, end = life.began, max(life.began, life.ended)
    ends = np.clip(lines.steps["elapsed_seconds"], begin, end)
    begins = np.maximum(ends - np.nan_to_num(lines.steps["step_seconds"]), begin)
    begins = np.minimum(np.maximum(begins, np.concatenate(([begin], ends[:-1]))), ends)
    phases = [PhaseInterval(p.name, max(begin, p.begin), min(end, p.end)) for p in lines.phases if p.end > begin]
    phases = [phase for phase in phases if phase.end > phase.begin]
    cuts = [edge for phase in phases for edge in (phase.begin, phase.end)]
    edges = np.unique(np.concatenate(([begin, end], begins, ends, cuts)))
    lengths = np.diff(edges)
    labels = _labels(edges, begins, ends, phases)
    # Labels of steps are their numbers, those of classes are below 0.
    in_step = labels >= 0
    rest: Floats = np.zeros(len(ends))
    np.add.at(rest, labels[in_step], lengths[in_step])
    shares, obtained = _step_shares(lines, rest)
    _set_warm_up(shares, rest, obtained)
    _set_stalls(shares, obtained)
    seconds = np.zeros((len(lengths), len(_CLASSES)))
    outside = np.flatnonzero(~in_step)
    seconds[outside, -1 - labels[outside]] = lengths[outside]
    if in_step.any():
        step = labels[in_step]
        seconds[in_step] = shares[step] * (lengths[in_step] / rest[step])[:, None]
    lost = lines.steps["step"] >= lost_from
    if lost.any():
        since = float(begins[np.argmax(lost)])
        row = edges[:-1] >= since
        seconds[row] = 0.0
        seconds[row, _PLACE["lost_work"]] = lengths[row]
    _set_last_silence(life, edges, seconds, rest, obtained)
    if not life.start_known:
        obtained["startup"] = "assumed"
    if not life.end_known:
        obtained["tail"] = "assumed"
    return RankTimeline("", 0, life.attempt, edges, seconds, obtained)


def _labels(edges: Floats, begins: Floats, ends: Floats, phases: Sequence[PhaseInterval]) -> Labels:
    labels = np.full(max(0, len(edges) - 1), -1 - _UNKNOWN, np.intp)
    if not len(labels):
        return labels
    middle = (edges[1:] + edges[:-1]) / 2
    around = [phase for phase in phases if len(ends) and holds_steps(phase, ends)]
    apart = sorted((phase for phase in phases if phase not in around), key=lambda phase: (phase.begin, -phase.end))
    if len(ends):
        labels[middle < begins[0]] = -1 - _PLACE["startup"]
        labels[middle > ends[-1]] = -1 - _PLACE["tail"]
    elif apart:
        labels[middle < apart[0].begin] = -1 - _PLACE["startup"]
        labels[middle > max(phase.end for phase in apart)] = -1 - _PLACE["tail"]
    if len(ends):
        at = np.searchsorted(ends, middle)
        within = at < len(ends)
        within[within] = begins[at[within]] <= middle[within]
        labels[within] = at[within]
    for phase in apart:
        first, last = np.searchsorted(edges, (phase.begin, phase.end))
        labels[first:last] = -1 - _PLACE[class_of_phase(phase.name)]
    return labels


def _step_shares(lines: RankLines, rest: Floats) -> tuple[Floats, dict[str, Origin]]:
    """Of each step, the seconds of each class in what lies in no phase."""
    shares = np.zeros((len(rest), len(_CLASSES)))
    known = {part: lines.steps[f"{part}_seconds"] for part in PART_CLASSES}
    for part, values in known.items():
        shares[:, _PLACE[PART_CLASSES[part]]] = np.maximum(0.0, np.nan_to_num(values))
    obtained: dict[str, Origin] = {}
    # Phases inside a step are part of `other`, which is what no part explains.
    other = np.maximum(0.0, np.nan_to_num(lines.steps["other_seconds"]))
    inside = np.maximum(0.0, np.nan_to_num(lines.steps["step_seconds"]) - rest)
    whole = np.isnan([known[part] for part in ("forward", "backward", "optimizer")]).all(axis=0)
    if whole.any():
        spent = shares.sum(axis=1)
        in_all = np.nan_to_num(lines.steps["step_seconds"]) - ROUNDING_SECONDS
        told = (spent > 0) | ((other > 0) & (other < in_all))
        # Where `other` is all that is left of a step, what was computed is in it.
        unexplained = np.where(spent + other < in_all, np.maximum(0.0, other - inside), 0.0)
        shares[whole, _PLACE["compute"]] = np.maximum(0.0, rest - spent - unexplained)[whole]
        obtained["compute"] = "estimated" if told[whole].all() else "assumed"
    if lines.on_device:
        shares[:, _PLACE["compute"]] = shares[:, _COMPUTE].sum(axis=1)
        shares[:, _COMPUTE[:-1]] = 0.0
        obtained["compute"] = worst_origin("estimated", obtained.get("compute"))
    excess = np.maximum(0.0, shares.sum(axis=1) - rest)
    for place in _INNER:
        taken = np.minimum(shares[:, place], excess)
        shares[:, place] -= taken
        excess -= taken
    spent = shares.sum(axis=1)
    shares *= np.where(spent > rest, rest / np.where(spent > 0, spent, 1.0), 1.0)[:, None]
    shares[:, _UNKNOWN] = np.maximum(0.0, rest - shares.sum(axis=1))
    return shares, obtained


def _set_warm_up(shares: Floats, rest: Floats, obtained: dict[str, Origin]) -> None:
    """What the first steps took beyond the steady ones, out of the parts that were longer than there."""
    count = leading_steps(rest)
    if not count:
        return
    steady = rest[count:]
    usual = np.median(shares[count:], axis=0)
    slow = np.flatnonzero(rest[:count] > np.quantile(steady, 0.95))
    excess = np.maximum(0.0, shares[slow] - usual)
    excess[:, _INNER] = 0.0
    sums = excess.sum(axis=1)
    wanted = np.minimum(sums, rest[slow] - np.median(steady))
    excess *= (wanted / np.where(sums > 0, sums, 1.0))[:, None]
    shares[slow] -= excess
    shares[slow, _PLACE["warm_up"]] = excess.sum(axis=1)
    obtained["warm_up"] = "estimated"


def _set_stalls(shares: Floats, obtained: dict[str, Origin]) -> None:
    """A part that took many times the longest other one of its kind: what it took beyond the usual."""
    most = max(1, int(STALL_SHARE * len(shares)))
    if len(shares) <= LEAST_STEPS:
        return
    for name in (*COMPUTE_CLASSES, "data_wait", "copy", "communication", "unknown"):
        column = shares[:, _PLACE[name]]
        order = np.argsort(column)
        top = column[order[-most - 1 :]]
        jumps = np.flatnonzero((top[1:] > STALL_TIMES * top[:-1]) & (top[1:] > STALL_SECONDS))
        if len(jumps):
            stalled = order[-most - 1 :][jumps[0] + 1 :]
            beyond = column[stalled] - np.median(column)
            column[stalled] -= beyond
            shares[stalled, _PLACE["stall"]] += beyond
            obtained["stall"] = "estimated"


def _set_last_silence(
    life: ProcessLife, edges: Floats, seconds: Floats, rest: Floats, obtained: dict[str, Origin]
) -> None:
    """What follows the last step of a process whose end is not known: a stall if it is long; unknown if it lives."""
    tail = _PLACE["tail"]
    silence = float(seconds[:, tail].sum())
    if life.end_known or not silence:
        return
    if len(rest) and silence > max(STALL_SECONDS, STALL_TIMES * float(rest.max())):
        name = "stall"
        obtained["stall"] = "estimated"
    elif life.trains_on:
        name = "unknown"
    else:
        return
    seconds[:, _PLACE[name]] += seconds[:, tail]
    seconds[:, tail] = 0.0


def _put_together(edges: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """No more than MOST_PIECES."""
    if len(seconds) <= MOST_PIECES:
        return edges, seconds
    starts = np.arange(0, len(seconds), -(-len(seconds) // MOST_PIECES))
    return np.append(edges[starts], edges[-1]), np.add.reduceat(seconds, starts, axis=0)

"""A run's energy by parts of its time: phases, epochs, ranges of steps. Each moment belongs to one part."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.energy.curve import SIGMAS, Array, Curve, spread_error
from pulsetrain.insight.energy.figures import Portion

START_UP, TRAINING, OTHER = "start-up", "training", "other"
NOTHING = Portion(name=TRAINING, start_seconds=0.0, seconds=0.0, joules=0.0)
"""A training that did not take place."""
Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Steps:
    """The steps of the first rank, in order of their ends, and what all ranks worked on."""

    begin: Array
    end: Array
    number: Array
    epoch: Array
    """How much of the epochs is done at the end of a step; NaN where it is not known."""
    amount_times: Array
    """Ends of the steps of all ranks."""
    samples: Array
    """Of each of these; NaN where it is not known."""
    tokens: Array


@dataclass(frozen=True)
class Phase:
    """A stretch of the program with a name."""

    name: str
    begin: float
    end: float


class Timeline:
    """Consecutive pieces of time, each with the number of its label."""

    def __init__(self, edges: Array) -> None:
        self.edges = np.unique(edges)
        self.names = [OTHER]
        self.labels: Places = np.zeros(max(0, len(self.edges) - 1), np.intp)

    def mark(self, name: str, begin: float, end: float) -> None:
        """Give a stretch between two of the edges a name."""
        first, last = np.searchsorted(self.edges, (begin, end))
        self.labels[first:last] = self._label(name)

    def mark_steps(self, name: str, steps: Steps) -> None:
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        at = np.searchsorted(steps.end, middle)
        within = at < len(steps.end)
        within[within] = steps.begin[at[within]] <= middle[within]
        self.labels[within] = self._label(name)

    def _label(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def portions(self, curves: Sequence[Curve], steps: Steps) -> list[Portion]:
        """The parts with their energy over all these devices, in the order in which they begin."""
        if not len(self.labels):
            return []
        count = len(self.names)
        cumulative = sum((curve.joules_at(self.edges) for curve in curves), np.zeros(len(self.edges)))
        joules = np.bincount(self.labels, np.diff(cumulative), count)
        seconds = np.bincount(self.labels, np.diff(self.edges), count)
        first = np.full(count, np.inf)
        np.minimum.at(first, self.labels, self.edges[:-1])
        number = np.bincount(self._labels_at((steps.begin + steps.end) / 2), minlength=count)
        samples, tokens = (self._sums(steps.amount_times, values) for values in (steps.samples, steps.tokens))
        return [
            Portion(
                name=self.names[label],
                start_seconds=float(first[label]),
                seconds=float(seconds[label]),
                joules=float(joules[label]),
                error_joules=self._error(label, curves),
                steps=int(number[label]),
                samples=samples[label],
                tokens=tokens[label],
            )
            for label in np.argsort(first, kind="stable")
            if seconds[label] > 0
        ]

    def _error(self, label: int, curves: Sequence[Curve]) -> float | None:
        """How far the energy of one label may be off; None where nobody can say."""
        pieces = np.flatnonzero(self.labels == label)
        first, last = pieces[0], pieces[-1] + 1
        lengths = np.where(self.labels[first:last] == label, np.diff(self.edges[first : last + 1]), 0)
        spent = np.concatenate(([0.0], np.cumsum(lengths)))
        error = sum(_error(curve, self.edges[first : last + 1], spent) for curve in curves)
        return None if np.isnan(error) else error

    def _labels_at(self, times: Array) -> Places:
        place = np.clip(np.searchsorted(self.edges, times, "left") - 1, 0, len(self.labels) - 1)
        return np.asarray(self.labels[place], np.intp)

    def _sums(self, times: Array, values: Array) -> list[float | None]:
        known = ~np.isnan(values)
        labels = self._labels_at(times[known])
        sums = np.bincount(labels, values[known], len(self.names))
        counts = np.bincount(labels, minlength=len(self.names))
        return [float(total) if number else None for total, number in zip(sums, counts, strict=True)]


def _error(curve: Curve, edges: Array, spent: Array) -> float:
    """How far a device's energy in some pieces of time may be off, given the time spent in them up to each edge."""
    first = max(0, int(np.searchsorted(curve.times, edges[0], "right")) - 1)
    after = int(np.searchsorted(curve.times, edges[-1])) + 1
    if len(curve.times[first:after]) < 2:
        return 0.0
    seconds, joules, variance, slack = (
        np.diff(values[first:after]) for values in (curve.times, curve.joules, curve.variance, curve.slack)
    )
    shares = np.clip(np.diff(np.interp(curve.times[first:after], edges, spent)) / seconds, 0, 1)
    spread = spread_error(shares, joules, seconds, curve.limit_watts)
    # What a reading is too low, the interval before it lacks, and the one after it has too much.
    lag = curve.edge[first:after] * np.abs(np.diff(shares, prepend=0, append=0))
    inner = SIGMAS * np.sqrt(np.sum(shares * variance)) + np.sum(np.where(shares > 0, shares * slack, 0))
    return float(inner + np.sum(spread) + np.sum(lag))


def by_phase(begin: float, end: float, steps: Steps, phases: Sequence[Phase]) -> Timeline:
    """Start-up, the program's own phases, training, other. Of phases inside each other, the inner one counts."""
    inside = [phase for phase in phases if phase.end > begin and phase.begin < end]
    own = np.array([edge for phase in inside for edge in (phase.begin, phase.end)])
    timeline = Timeline(np.clip(np.concatenate(([begin, end], steps.begin, steps.end, own)), begin, end))
    if len(steps.begin):
        timeline.mark(START_UP, begin, max(begin, float(steps.begin[0])))
        timeline.mark_steps(TRAINING, steps)
    for phase in sorted(inside, key=lambda phase: (phase.begin, -phase.end)):
        timeline.mark(phase.name, max(begin, phase.begin), min(end, phase.end))
    return timeline


def by_epoch(begin: float, end: float, steps: Steps) -> Timeline | None:
    """Start-up, each epoch with what follows it until the next, and what comes after the last step."""
    known = ~np.isnan(steps.epoch)
    if not np.any(known):
        return None
    epochs, begins = steps.epoch[known], steps.begin[known]
    # Most frameworks tell how much is done (0.5 in the middle of the first epoch), some programs its number alone.
    numbers = epochs if np.all(epochs == np.floor(epochs)) else np.maximum(1, np.ceil(epochs - 1e-9))
    first = np.flatnonzero(np.concatenate(([True], np.diff(numbers) != 0)))
    edges = np.clip(np.concatenate((begins[first], steps.end[-1:])), begin, end)
    timeline = Timeline(np.concatenate(([begin, end], edges)))
    timeline.mark(START_UP, begin, float(edges[0]))
    for number, since, until in zip(numbers[first], edges[:-1], edges[1:], strict=True):
        timeline.mark(f"epoch {number:g}", float(since), float(until))
    return timeline


def by_steps(begin: float, end: float, steps: Steps, first: float, last: float) -> Timeline:
    """The steps with these numbers, and all else."""
    wanted = (steps.number >= first) & (steps.number <= last)
    chosen = Steps(
        steps.begin[wanted], steps.end[wanted], steps.number[wanted], steps.epoch[wanted], *([np.zeros(0)] * 3)
    )
    timeline = Timeline(np.clip(np.concatenate(([begin, end], chosen.begin, chosen.end)), begin, end))
    timeline.mark_steps(steps_name(first, last), chosen)
    return timeline


def steps_name(first: float, last: float) -> str:
    return f"steps {first:g} to {last:g}"

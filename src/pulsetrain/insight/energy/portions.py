"""A run's energy by parts of its time: phases, epochs, ranges of steps. Each moment belongs to one part."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.energy.curve import SIGMAS, Array, EnergyCurve, spread_error
from pulsetrain.insight.energy.figures import Portion
from pulsetrain.insight.steps import ROUNDING_SECONDS, PhaseInterval

START_UP, WARM_UP, TRAINING, OTHER = "start-up", "warm-up", "training", "other"
Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class StepIntervals:
    """The steps of the first rank, in order of their ends, and what all ranks worked on."""

    begin: Array
    end: Array
    epoch: Array
    """How much of the epochs is done at the end of a step; NaN where it is not known."""
    amount_times: Array
    """Ends of the steps of all ranks."""
    samples: Array
    """Of each of these; NaN where it is not known."""
    tokens: Array
    warm_up: int = 0
    """How many of the first were the warm-up."""


class LabeledTime:
    """Consecutive pieces of time, each with the number of its label."""

    def __init__(self, edges: Array) -> None:
        self.edges = np.unique(edges)
        self.names = [OTHER]
        self.labels: Places = np.zeros(max(0, len(self.edges) - 1), np.intp)

    def mark(self, name: str, begin: float, end: float) -> None:
        """Give a stretch between two of the edges a name."""
        first, last = np.searchsorted(self.edges, (begin, end))
        self.labels[first:last] = self._label(name)

    def mark_steps(self, name: str, begin: Array, end: Array) -> None:
        """The same for many stretches, in order of their ends."""
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        at = np.searchsorted(end, middle)
        within = at < len(end)
        within[within] = begin[at[within]] <= middle[within]
        self.labels[within] = self._label(name)

    def _label(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def portions(self, curves: Sequence[EnergyCurve], steps: StepIntervals) -> list[Portion]:
        """The parts with their energy over all these devices, in the order in which they begin."""
        if not len(self.labels):
            return []
        count = len(self.names)
        cumulative = sum((curve.joules_at(self.edges) for curve in curves), np.zeros(len(self.edges)))
        joules = np.bincount(self.labels, np.diff(cumulative), count)
        seconds = np.bincount(self.labels, np.diff(self.edges), count)
        first = np.full(count, np.inf)
        np.minimum.at(first, self.labels, self.edges[:-1])
        number = np.bincount(self._labels_at(steps.end), minlength=count)
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

    def _error(self, label: int, curves: Sequence[EnergyCurve]) -> float | None:
        """How far the energy of one label may be off; None where nobody can say."""
        pieces = np.flatnonzero(self.labels == label)
        first, last = pieces[0], pieces[-1] + 1
        lengths = np.where(self.labels[first:last] == label, np.diff(self.edges[first : last + 1]), 0)
        spent = np.concatenate(([0.0], np.cumsum(lengths)))
        error = sum(_error(curve, self.edges[first : last + 1], spent) for curve in curves)
        return None if np.isnan(error) else error

    def _labels_at(self, ends: Array) -> Places:
        """Where steps with these ends belong: a phase may fill most of a step, but it is over when the step ends."""
        place = np.clip(np.searchsorted(self.edges, ends - ROUNDING_SECONDS, "left") - 1, 0, len(self.labels) - 1)
        return np.asarray(self.labels[place], np.intp)

    def _sums(self, times: Array, values: Array) -> list[float | None]:
        known = ~np.isnan(values)
        labels = self._labels_at(times[known])
        sums = np.bincount(labels, values[known], len(self.names))
        counts = np.bincount(labels, minlength=len(self.names))
        return [float(total) if number else None for total, number in zip(sums, counts, strict=True)]


def _error(curve: EnergyCurve, edges: Array, spent: Array) -> float:
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


def by_phase(begin: float, end: float, steps: StepIntervals, phases: Sequence[PhaseInterval]) -> LabeledTime:
    """Start-up, warm-up, training, the program's own phases, other. Of phases inside each other, the inner counts."""
    inside = [phase for phase in phases if phase.end > begin and phase.begin < end]
    own = np.array([edge for phase in inside for edge in (phase.begin, phase.end)])
    timeline = LabeledTime(np.clip(np.concatenate(([begin, end], steps.begin, steps.end, own)), begin, end))
    if len(steps.begin):
        timeline.mark(START_UP, begin, max(begin, float(steps.begin[0])))
        timeline.mark_steps(TRAINING, steps.begin, steps.end)
        timeline.mark_steps(WARM_UP, steps.begin[: steps.warm_up], steps.end[: steps.warm_up])
    for phase in sorted(inside, key=lambda phase: (phase.begin, -phase.end)):
        timeline.mark(phase.name, max(begin, phase.begin), min(end, phase.end))
    return timeline


def by_epoch(begin: float, end: float, steps: StepIntervals) -> LabeledTime | None:
    """Start-up, each epoch with what follows it until the next, and what comes after the last step."""
    known = ~np.isnan(steps.epoch)
    if not np.any(known):
        return None
    epochs, begins = steps.epoch[known], steps.begin[known]
    # Most frameworks tell how much is done (0.5 in the middle of the first epoch), some programs its number alone.
    numbers = epochs if np.all(epochs == np.floor(epochs)) else np.maximum(1, np.ceil(epochs - 1e-9))
    first = np.flatnonzero(np.concatenate(([True], np.diff(numbers) != 0)))
    edges = np.clip(np.concatenate((begins[first], steps.end[-1:])), begin, end)
    timeline = LabeledTime(np.concatenate(([begin, end], edges)))
    timeline.mark(START_UP, begin, float(edges[0]))
    for number, since, until in zip(numbers[first], edges[:-1], edges[1:], strict=True):
        timeline.mark(f"epoch {number:g}", float(since), float(until))
    return timeline

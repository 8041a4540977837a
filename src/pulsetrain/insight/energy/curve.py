"""Energy over time: one rising curve for each device, of which every figure is a difference."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SIGMAS = 4.0
"""How many standard deviations of a sampling error the bound is wide."""
JUMP_SECONDS = 0.5
"""A wall clock that moves by more than this against the monotonic one was set, or the machine slept."""


@dataclass(frozen=True)
class HostClock:
    """How elapsed seconds and the wall clock of a host belong together: one offset, until somebody sets the clock."""

    since: Array
    """Elapsed seconds from which each offset holds."""
    offsets: Array
    """Seconds since the epoch at elapsed second 0."""

    @staticmethod
    def of(elapsed: Array, wall: Array) -> "HostClock":
        """From the two times of a host's lines, in order. A clock that was set back was wrong until then."""
        offsets = np.minimum.accumulate((wall - elapsed)[::-1])[::-1]
        changed = np.flatnonzero(np.abs(np.diff(offsets)) > JUMP_SECONDS) + 1
        first = np.concatenate(([0], changed)).astype(int)
        return HostClock(elapsed[first], offsets[first])

    def wall_at(self, elapsed: Array) -> Array:
        """Seconds since the epoch."""
        place = np.clip(np.searchsorted(self.since, elapsed, "right") - 1, 0, None)
        return np.asarray(elapsed + self.offsets[place])

    def elapsed_at(self, wall: Array) -> Array:
        """The elapsed seconds at which the clock showed this."""
        # The moments just before and at each change of the offset, and one far beyond either end.
        before = np.stack((self.since[1:] + self.offsets[:-1], self.since[1:] + self.offsets[1:]), axis=1).ravel()
        walls = np.concatenate(([self.offsets[0] - 1e9], before, [self.offsets[-1] + 1e9]))
        elapsed = np.concatenate(([-1e9], np.repeat(self.since[1:], 2), [1e9]))
        return np.asarray(np.interp(wall, np.maximum.accumulate(walls), elapsed))


EPOCH = HostClock(np.zeros(1), np.zeros(1))


@dataclass(frozen=True)
class EnergyCurve:
    """Joules used up to each of many moments, and how far they may be off."""

    times: Array
    """Elapsed seconds, rising; at least two."""
    joules: Array
    """Used since the first of them."""
    variance: Array
    """Of the sampling error, added up in the same way."""
    slack: Array
    """Other errors, added up in the same way; NaN from where nobody can say."""
    edge: Array
    """How far the joules at each moment may be off, seen alone: counters and sensors show the past."""
    limit_watts: float = np.inf
    """No more can be drawn at any moment."""
    clock: HostClock = field(default=EPOCH)

    @property
    def walls(self) -> Array:
        """The moments on the wall clock, in seconds since the epoch."""
        return self.clock.wall_at(self.times)

    def elapsed_at(self, wall: Array) -> Array:
        return self.clock.elapsed_at(wall)

    def joules_at(self, elapsed: Array | float) -> Array:
        """Used up to a moment. Before the first and after the last, nothing is."""
        return np.asarray(np.interp(elapsed, self.times, self.joules))

    def joules_between(self, start: Array | float, end: Array | float) -> Array:
        """Used between moments. Neighboring stretches add up to the whole, whatever their edges."""
        return self.joules_at(end) - self.joules_at(start)

    def used_between(self, start: datetime, end: datetime) -> float:
        """The same for two moments of the wall clock."""
        first, last = self.elapsed_at(np.array([start.timestamp(), end.timestamp()]))
        return float(self.joules_between(first, last))

    def inner_error(self, start: Array | float, end: Array | float) -> Array:
        """How far joules between moments may be off, without their edges; NaN where nobody can say."""
        variance, slack = (
            np.interp(end, self.times, curve) - np.interp(start, self.times, curve)
            for curve in (self.variance, self.slack)
        )
        return np.asarray(SIGMAS * np.sqrt(np.maximum(0, variance)) + slack)

    def edge_error(self, elapsed: Array | float) -> Array:
        """How far joules up to a moment may be off because it lies between two readings, or because they lag."""
        place = np.clip(np.searchsorted(self.times, elapsed, "right") - 1, 0, len(self.times) - 2)
        seconds = self.times[place + 1] - self.times[place]
        joules = self.joules[place + 1] - self.joules[place]
        share = np.clip((elapsed - self.times[place]) / seconds, 0, 1)
        between = spread_error(share, joules, seconds, self.limit_watts)
        lag = np.maximum(self.edge[place] * (share < 1), self.edge[place + 1] * (share > 0))
        return np.asarray(between + lag)

    def error_between(self, start: Array | float, end: Array | float) -> Array:
        """How far joules between moments may be off; NaN where nobody can say."""
        return self.inner_error(start, end) + self.edge_error(start) + self.edge_error(end)

    def shifted(self, seconds: float) -> "EnergyCurve":
        """The same on another host's time."""
        clock = HostClock(self.clock.since + seconds, self.clock.offsets - seconds)
        return replace(self, times=self.times + seconds, clock=clock)


def spread_error(share: Array, joules: Array, seconds: Array, limit_watts: float) -> Array:
    """How far off it may be to give this share of an interval's time the same share of its energy.

    All that was drawn in the interval may have been drawn in that time, or in the rest, as far as the limit allows.
    """
    most_watts = np.maximum(limit_watts, joules / seconds)
    inside, outside = share * seconds, (1 - share) * seconds
    with np.errstate(invalid="ignore"):  # no limit, times no time
        highest = np.where(inside > 0, np.minimum(joules, most_watts * inside), 0)
        lowest = np.where(outside > 0, np.maximum(0, joules - most_watts * outside), joules)
    return np.asarray(np.maximum(highest - share * joules, share * joules - lowest))


def total(curves: Sequence[EnergyCurve], clock: HostClock) -> EnergyCurve:
    """The sum of curves on the same time."""
    times = np.unique(np.concatenate([curve.times for curve in curves])) if curves else np.zeros(0)

    def summed(values: Sequence[Array]) -> Array:
        at_times = (np.interp(times, curve.times, value) for curve, value in zip(curves, values, strict=True))
        return np.asarray(sum(at_times, np.zeros(len(times))))

    return EnergyCurve(
        times,
        summed([curve.joules for curve in curves]),
        summed([curve.variance for curve in curves]),
        summed([curve.slack for curve in curves]),
        summed([curve.edge for curve in curves]),
        sum(curve.limit_watts for curve in curves),
        clock,
    )

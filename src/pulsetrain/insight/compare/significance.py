"""Does one run really differ from another, or is it noise?

Steps that follow each other are alike: a slow moment of the machine lasts for many of them. Tests that take them for
independent call every difference real. Here whole stretches of steps are drawn again and again (a circular block
bootstrap), long enough to hold what neighbors have in common, and the interval comes from how far the result swings.
All values are times, and above 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pulsetrain.insight.steps import Floats

MOST_VALUES = 10_000
"""More are thinned: the interval is narrow enough, and a comparison should take no longer than a moment."""
DRAWS = 1000
VALUES_AT_ONCE = 200_000
"""Held in memory while drawing."""
LEAST_BEYOND = 10
"""So many values must lie on the rarer side of a quantile: 20 for a median, 200 for the 95th percentile."""
RELEVANT = 0.01
"""A difference of less than a per cent may be certain, and still matters to nobody."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one run against that of another: 0.124 is 12.4 % more."""

    change: float
    low: float
    high: float
    """The change lies between these: with a certainty of 95 %, or, of energy, by its error bounds."""

    @property
    def certain(self) -> bool:
        """The interval does not hold "no change"."""
        return self.low > 0 or self.high < 0

    @property
    def real(self) -> bool:
        """Certain, and large enough to matter."""
        return self.certain and abs(self.change) >= RELEVANT


@dataclass(frozen=True)
class BootstrapSample:
    """A figure of a run, and what it might have been."""

    value: float
    draws: Floats


def draw_quantile(values: Floats, share: float) -> BootstrapSample | None:
    """A quantile of values in order of time. None when there are too few to tell."""
    if len(values) * min(share, 1 - share) < LEAST_BEYOND - 1e-9:
        return None
    value = float(np.quantile(values, share))

    def quantile(samples: Floats) -> Floats:
        place = int(share * samples.shape[1])
        return np.partition(samples, place, axis=1)[:, place]

    return _draw(values, value, quantile, lambda kept: kept > value)


def draw_mean(values: Floats) -> BootstrapSample | None:
    """The mean of values in order of time. None when there are too few to tell."""
    if len(values) < 2 * LEAST_BEYOND:
        return None
    return _draw(values, float(values.mean()), lambda samples: samples.mean(axis=1), lambda kept: kept)


def _draw(
    values: Floats, value: float, figure: Callable[[Floats], Floats], influence: Callable[[Floats], npt.NDArray[Any]]
) -> BootstrapSample | None:
    """Resample a figure, from samples in rows. None for one that is 0.

    `influence` is what each value adds to the figure: how alike neighbors are in it tells how long blocks must be.
    """
    rng = np.random.default_rng(len(values))
    kept = _thinned(values, rng)
    count = len(kept)
    # Twice the length that is best for the variance: an interval that is too narrow is the worse mistake.
    length = min(2 * block_length(influence(kept).astype(np.float64)), count // 4)
    blocks = np.lib.stride_tricks.sliding_window_view(np.concatenate([kept, kept[: length - 1]]), length)
    at_once = max(1, VALUES_AT_ONCE // count)
    draws = []
    for first in range(0, DRAWS, at_once):
        starts = rng.integers(count, size=(min(at_once, DRAWS - first), math.ceil(count / length)))
        draws.append(figure(blocks[starts].reshape(len(starts), -1)[:, :count]))
    center = figure(kept[np.newaxis])[0]  # not the value itself, when values were left out
    if not value or not center:
        return None  # of nothing, no other is a multiple
    return BootstrapSample(value, value * (np.concatenate(draws) / center) ** _stretch(count / length))


def difference(base: BootstrapSample | None, other: BootstrapSample | None) -> Difference | None:
    """How far the other lies above or below the base. None when one of them is not known."""
    if base is None or other is None:
        return None
    order = np.random.default_rng(0).permutation(DRAWS)  # the two runs swing independently
    low, high = np.quantile(other.draws[order] / base.draws, [0.025, 0.975]) - 1
    return Difference(change=other.value / base.value - 1, low=float(low), high=float(high))


def block_length(values: Floats) -> int:
    """The length of blocks that keeps what neighbors have in common (Politis and White 2004, corrected 2009)."""
    count = len(values)
    most = max(1, math.ceil(min(3 * math.sqrt(count), count / 3)))
    run = max(5, math.ceil(math.sqrt(math.log10(count))))
    lags = min(count - 1, math.ceil(math.sqrt(count)) + run)
    centred = values - values.mean()
    covariance = np.array([centred[: count - lag] @ centred[lag:] for lag in range(lags + 1)]) / count
    if covariance[0] <= 0:
        return 1
    # The last lag after which `run` correlations in a row cannot be distinguished from none.
    noise = 2 * math.sqrt(math.log10(count) / count)
    small = np.abs(covariance[1:] / covariance[0]) < noise
    quiet = [lag for lag in range(len(small) - run + 1) if small[lag : lag + run].all()]
    last = quiet[0] if quiet else int(np.flatnonzero(~small)[-1]) + 1
    reach = min(2 * max(last, 1), lags)
    lag = np.arange(-reach, reach + 1)
    weight = np.clip(2 * (1 - np.abs(lag) / reach), 0, 1)
    weighted = weight * covariance[np.abs(lag)]
    spread = 4 / 3 * weighted.sum() ** 2
    if spread <= 0:
        return most
    length = (2 * (weighted @ np.abs(lag)) ** 2 / spread) ** (1 / 3) * count ** (1 / 3)
    return int(np.clip(math.ceil(length), 1, most))


def _stretch(blocks: float) -> float:
    """How much wider an interval must be that rests on so few blocks: Student's distribution against the normal one."""
    z, freedom = 1.96, blocks - 1
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return student / z / math.sqrt(1 - 1 / blocks)


def _thinned(values: Floats, rng: np.random.Generator) -> Floats:
    """One of every few, each drawn by lot: a fixed stride could meet the beat of checkpoints or logging."""
    stride = math.ceil(len(values) / MOST_VALUES)
    if stride == 1:
        return values
    groups = len(values) // stride
    places = np.arange(groups) * stride + rng.integers(stride, size=groups)
    return np.take(values, places)

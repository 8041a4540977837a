"""What a handful of runs tell: the middle, how far they scatter, which stand out, and whether others differ.

Repeats of a benchmark are independent and few, five or ten, where the steps of a training are many and alike. So this
is not the block bootstrap of `insight.compare.significance`, but the exact rank test of Mann and Whitney, of which the
interval of Hodges and Lehmann is the other side. It assumes nothing of how times are distributed, and knows when there
are too few runs to tell. What comes out is the same `Difference`.
"""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from pulsetrain.insight.compare.significance import Difference

UNCERTAINTY = 0.05
"""The share of cases in which an interval may miss the truth."""
OUTLIER_DEVIATIONS = 14.8
"""A run this many median absolute deviations from the median is an outlier; hyperfine draws the same line."""
LEAST_DEVIATION = 0.001
"""Of the median: values that are all but equal have no outliers."""
NORMAL_DEVIATION = 1.4826
"""A median absolute deviation, times this, is the standard deviation of what is normally distributed."""
LEAST_FOR_OUTLIERS = 4


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over all runs that count."""

    values: list[float]
    """In the order of the runs."""
    median: float
    lowest: float
    highest: float
    noise: float | None
    """How far single runs lie from the median, as part of it: 0.01 is 1 %. None of one run."""
    outliers: list[int] = []
    """Which values stand out, from 0."""


def describe(values: Sequence[float]) -> Statistics:
    """The statistics of at least one value."""
    median = statistics.median(values)
    deviation = statistics.median(abs(value - median) for value in values)
    limit = OUTLIER_DEVIATIONS * max(deviation, LEAST_DEVIATION * abs(median))
    outliers = [place for place, value in enumerate(values) if abs(value - median) > limit]
    return Statistics(
        values=list(values),
        median=median,
        lowest=min(values),
        highest=max(values),
        noise=NORMAL_DEVIATION * deviation / abs(median) if len(values) > 1 and median else None,
        outliers=outliers if len(values) >= LEAST_FOR_OUTLIERS else [],
    )


def difference_of(base: Sequence[float], other: Sequence[float]) -> Difference | None:
    """How far the others lie above or below the base. None when there are too few runs to tell, or some are 0.

    The change is the median of all ratios of one of the others to one of the base.
    """
    beyond = _values_beyond(len(base), len(other))
    if beyond is None or min(*base, *other, 1.0) <= 0:
        return None
    ratios = sorted(one / another for one in other for another in base)
    return Difference(
        change=statistics.median(ratios) - 1,
        low=ratios[beyond - 1] - 1,
        high=ratios[len(ratios) - beyond] - 1,
    )


def repeats_needed(noise: float, change: float) -> int:
    """About how many repeats on each side show a change of so much, four times out of five."""
    detected, missed = 1.96, 0.84  # quantiles of the normal distribution: 5 % two-sided, 20 %
    efficiency = 3 / math.pi  # of ranks, where noise is normal
    return max(4, math.ceil(2 * ((detected + missed) * noise / change) ** 2 / efficiency))


@lru_cache(maxsize=64)
def _values_beyond(first: int, second: int) -> int | None:
    """Which of the sorted ratios, counted from either end, bounds the interval; None when even the outermost is not
    certain enough.
    """
    ways = _rank_sums(first, second)
    most = UNCERTAINTY / 2 * math.comb(first + second, first)
    beyond, total = 0, 0
    while total + ways[beyond] <= most:
        total += ways[beyond]
        beyond += 1
    return beyond or None


def _rank_sums(first: int, second: int) -> list[int]:
    """In how many orders of `first` and `second` values the statistic of Mann and Whitney is 0, 1, 2, ...

    They are the coefficients of the Gaussian binomial: the product of (1 - q^(second + i)) / (1 - q^i).
    """
    size = first * second + 1
    ways = [1] + [0] * (size - 1)
    for i in range(1, first + 1):
        for place in range(size - 1, second + i - 1, -1):
            ways[place] -= ways[place - second - i]
        for place in range(i, size):
            ways[place] += ways[place - i]
    return ways

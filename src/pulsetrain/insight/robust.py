"""Statistics that a few strange values do not move: medians, deviations, outliers, change points, distances."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NORMAL = 1.4826
"""Times the median absolute deviation: the standard deviation of normal values."""
LEAST_SEGMENT = 10
"""A shift counts when it lasts this many steps,"""
LEAST_SHIFT = 0.05
"""and changes the median by this share."""
SURE = 1e-3
"""How likely a change point may be by chance."""
TURN_SECONDS = 0.1
"""What takes less may be a turn of other programs on the CPU."""
MOST_POINTS = 2000
"""More values than these are put together before change points are looked for."""


def deviation(values: Floats) -> float:
    """A standard deviation, from the median absolute deviation."""
    return NORMAL * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def outlying(values: Floats, deviations: float, ratio: float) -> npt.NDArray[np.bool_]:
    """Which positive values lie so many deviations, and so many times, above the median."""
    if not len(values):
        return np.zeros(0, bool)
    logs = np.log(np.maximum(values, 1e-9))
    middle = float(np.median(logs))
    least = max(deviations * deviation(logs), float(np.log(ratio)))
    return np.asarray(logs - middle > least)


def lasting_share(part: Floats, whole: Floats, window: int = 1) -> float:
    """How much of their time most steps spend in a part, or all of its long stretches take together.

    Steps are looked at in groups of `window`, for a part that comes once in so many. A few short stretches, such as
    those of steps that lost the CPU, do not count, however much of a short run they take.
    """
    groups = len(whole) // window
    if not groups:
        return 0.0
    part = np.nan_to_num(part)
    parts, wholes = (values[: groups * window].reshape(groups, window).sum(axis=1) for values in (part, whole))
    usual = float(np.median(parts / np.maximum(wholes, 1e-9)))
    return max(usual, float(part[part > TURN_SECONDS].sum() / whole.sum()))


def change_points(values: Floats) -> list[int]:
    """Where the median of positive values shifts: Pettitt's rank test, again on both sides of each point found."""
    stride = max(1, len(values) // MOST_POINTS)
    count = len(values) // stride
    if count < 2:
        return []
    medians = np.median(values[: count * stride].reshape(count, stride), axis=1)
    least = max(2, -(-LEAST_SEGMENT // stride))
    return [stride * place for place in sorted(_splits(np.log(np.maximum(medians, 1e-9)), 0, least))]


def _splits(logs: Floats, offset: int, least: int) -> Iterator[int]:
    count = len(logs)
    if count < 2 * least:
        return
    ranks = np.argsort(np.argsort(logs, kind="stable"), kind="stable") + 1.0
    sums = 2 * np.cumsum(ranks) - np.arange(1, count + 1) * (count + 1)
    inside = np.abs(sums[least - 1 : count - least])
    place = int(np.argmax(inside)) + least
    chance = 2 * np.exp(-6 * float(inside.max()) ** 2 / (count**3 + count**2))
    if chance > SURE:
        return
    if abs(float(np.median(logs[place:]) - np.median(logs[:place]))) >= np.log1p(LEAST_SHIFT):
        yield offset + place
    yield from _splits(logs[:place], offset, least)
    yield from _splits(logs[place:], offset + place, least)


def distance(before: Floats, after: Floats) -> float:
    """The Kolmogorov-Smirnov statistic: the largest difference of two distributions, from 0 to 1."""
    both = np.concatenate((before, after))
    first = np.searchsorted(np.sort(before), both, "right") / len(before)
    second = np.searchsorted(np.sort(after), both, "right") / len(after)
    return float(np.abs(first - second).max())

"""A line for a given width in pixels: the least, the most and the last reading of each, so that no spike is lost."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pulsetrain.insight.robust import Floats
from pulsetrain.views.chart_list import GAP

SIGNIFICANT_DIGITS = 6
SAMPLE = 1000
"""Readings by which the usual distance of a line's readings is known."""


@dataclass(frozen=True)
class ThinLine:
    """Times and values of one line, NaN where the record has a gap. Low and high where a point represents several."""

    times: Floats
    last: Floats
    low: Floats | None = None
    high: Floats | None = None
    mean: Floats | None = None
    smooth: Floats | None = None


class Stretches(NamedTuple):
    """A line of which readings are known in stretches alone: where each ends, and what it has. No value is NaN."""

    times: Floats
    low: Floats
    high: Floats
    last: Floats
    mean: Floats


def thin(
    times: Floats,
    values: Floats,
    start: float,
    end: float,
    points: int,
    *,
    smooth_seconds: float = 0.0,
    breaks: bool = True,
) -> ThinLine:
    """The part of a line between two moments, with a reading on either side so that it reaches the edges.

    `times` rise, and no value is NaN. There are never more points than asked for, gaps and edges aside. The line
    breaks at gaps in the record, unless its readings come when they come.
    """
    usual = float(np.median(np.diff(_some(times, start)))) if times.size > 1 and breaks else np.inf
    first, stop = _part(times, start, end)
    smooth = _smoothed(times, values, first, stop, smooth_seconds) if smooth_seconds > 0 else None
    times, values = times[first:stop], values[first:stop]
    if times.size <= points:
        return _broken(times, {"last": values, "smooth": smooth}, GAP * usual)
    return _by_pixel(Stretches(times, values, values, values, values), smooth, points, GAP * usual)


def thin_stretches(
    line: Stretches, start: float, end: float, points: int, *, smooth_seconds: float = 0.0, breaks: bool = True
) -> ThinLine:
    """The same of a line in stretches that are shorter than a pixel."""
    usual = float(np.median(np.diff(_some(line.times, start)))) if line.times.size > 1 and breaks else np.inf
    first, stop = _part(line.times, start, end)
    smooth = _smoothed(line.times, line.mean, first, stop, smooth_seconds) if smooth_seconds > 0 else None
    shown = Stretches(*(column[first:stop] for column in line))
    if shown.times.size <= points:
        columns = shown._asdict() | {"smooth": smooth}
        return _broken(columns.pop("times"), columns, GAP * usual)
    return _by_pixel(shown, smooth, points, GAP * usual)


def _part(times: Floats, start: float, end: float) -> tuple[int, int]:
    """From which place to which, with a reading on either side."""
    first, stop = np.searchsorted(times, (start, end)).tolist()
    return max(0, first - 1), min(times.size, stop + 1)


def _by_pixel(line: Stretches, smooth: Floats | None, points: int, gap_seconds: float) -> ThinLine:
    times = line.times
    edges = np.linspace(times[0], times[-1], points + 1)
    bounds = np.searchsorted(times, edges[:-1])
    filled = np.flatnonzero(np.diff(bounds, append=times.size))
    starts = bounds[filled]
    ends = np.append(starts[1:], times.size) - 1
    columns: dict[str, Floats | None] = {
        "last": line.last[ends],
        "low": np.minimum.reduceat(line.low, starts),
        "high": np.maximum.reduceat(line.high, starts),
        "mean": np.add.reduceat(line.mean, starts, dtype=float) / (ends + 1 - starts),
        "smooth": None if smooth is None else smooth[ends],
    }
    width = edges[1] - edges[0]
    return _broken(edges[filled] + width / 2, columns, max(gap_seconds, 2.5 * width))


def _some(times: Floats, start: float) -> Floats:
    """Enough of them, from a moment on, to know how far apart they usually are."""
    first = max(0, min(int(np.searchsorted(times, start)), times.size - SAMPLE))
    return times[first : first + SAMPLE]


def rounded(values: Floats | None) -> list[float] | None:
    """For JSON: digits that nobody can see are left out."""
    if values is None:
        return None
    values = values.astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = SIGNIFICANT_DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        factor = np.power(10.0, np.where(np.isfinite(places), places, 0.0))
        found = np.where(np.isfinite(factor) & (factor > 0), np.round(values * factor) / factor, values)
    listed: list[float] = found.tolist()
    return listed


def _broken(times: Floats, columns: dict[str, Floats | None], most_seconds: float) -> ThinLine:
    """A line that does not cross gaps in the record."""
    gaps = np.flatnonzero(np.diff(times) > most_seconds) + 1 if most_seconds > 0 else np.empty(0, dtype=int)
    if gaps.size:
        columns = {
            name: None if column is None else np.insert(column.astype(float), gaps, np.nan)
            for name, column in columns.items()
        }
        times = np.insert(times, gaps, (times[gaps - 1] + times[gaps]) / 2)
    last = columns.pop("last")
    assert last is not None
    return ThinLine(times, last, **columns)


def _smoothed(times: Floats, values: Floats, first: int, stop: int, seconds: float) -> Floats:
    """A mean over the neighbors in time on both sides, which does not lag; of means, so that edges are soft."""
    from_index = int(np.searchsorted(times, times[first] - seconds)) if first < times.size else first
    to_index = int(np.searchsorted(times, times[stop - 1] + seconds, "right")) if stop else stop
    near = times[from_index:to_index]
    smooth = values[from_index:to_index].astype(float)
    low = np.searchsorted(near, near - seconds / 2)
    high = np.searchsorted(near, near + seconds / 2, "right")
    for _ in range(2):
        sums = np.concatenate(([0.0], np.cumsum(smooth)))
        smooth = (sums[high] - sums[low]) / (high - low)
    return smooth[first - from_index : stop - from_index]

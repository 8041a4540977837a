"""Charts of one time axis, in as many rows and columns as there is room for."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from pulsetrain.views.live.history import Points
from pulsetrain.views.terminal import braille
from pulsetrain.views.terminal.lines import Line, Span, beside, between, fitted, text
from pulsetrain.views.text import bar_parts, round_duration

LEAST_WIDTH, LEAST_HEIGHT = 24, 3
GOOD_HEIGHT, MOST_HEIGHT = 5, 16


class TextChart(NamedTuple):
    """A metric over the time that is shown."""

    name: str
    points: Callable[[int], Points]
    """Its values, in so many points."""
    value: str = ""
    """What it is at the moment that is shown."""
    low: float | None = 0.0
    high: float | None = None
    """The ends of its scale; None for those of its values."""
    label: Callable[[float], str] = "{:.4g}".format
    """An end of the scale in words."""
    style: str = "accent"


def grid(charts: Sequence[TextChart], width: int, height: int, seconds: float, blocks: bool) -> list[Line]:
    """Charts side by side and above each other, with the time below. Those there is no room for are left out."""
    if not charts or height < LEAST_HEIGHT:
        return []
    across, high = arrangement(len(charts), width, height - 1)
    size = (width - 2 * (across - 1)) // across
    widths = [size] * across
    rows = min((height - 1) // high, math.ceil(len(charts) / across))
    spare = min(height - 1, rows * MOST_HEIGHT) - rows * high
    lines: list[Line] = []
    for number in range(rows):
        own = high + (number < spare)
        row = [chart_lines(chart, size, own, blocks) for chart in charts[number * across : (number + 1) * across]]
        lines += beside(row, widths[: len(row)])
    axis = time_axis(seconds, size)
    return [*lines, *beside([[axis]] * min(across, len(charts)), widths)]


def arrangement(count: int, width: int, height: int) -> tuple[int, int]:
    """How many charts are side by side, and how high each is: as few as leave all of them a good height."""
    most = max(1, min(count, (width + 2) // (LEAST_WIDTH + 2)))
    for across in range(1, most + 1):
        high = height // math.ceil(count / across)
        if high >= GOOD_HEIGHT:
            return across, min(high, MOST_HEIGHT)
    return most, max(min(LEAST_HEIGHT, height), min(height // math.ceil(count / most), MOST_HEIGHT))


def wanted_height(count: int, width: int) -> int:
    """Lines for a grid of so many charts: its charts and the axis."""
    most = max(1, min(count, (width + 2) // (2 * LEAST_WIDTH)))
    return math.ceil(count / most) * (GOOD_HEIGHT + 2) + 1


def chart_lines(chart: TextChart, width: int, height: int, blocks: bool) -> list[Line]:
    """A line with name, value and scale, and the curve below it."""
    points = chart.points(braille.VALUES_PER_CELL * width)
    low, high = scale(points, chart.low, chart.high)
    known = any(point is not None for point in points)
    ends = f"{chart.label(low) if low else 0} to {chart.label(high)}" if known else ""
    head = between([Span(chart.name + " "), Span(chart.value, "title")], text(ends, "dim"), width)
    drawn = _curve(points, width, height - 1, low, high, not blocks)
    return [head, *([Span(line, chart.style)] for line in drawn)]


def scale(points: Points, low: float | None, high: float | None) -> tuple[float, float]:
    """The ends of a chart. They are never the same, and a curve that does not move lies in the middle."""
    known = [point for point in points if point is not None and math.isfinite(point)]
    bottom = min(known, default=0.0) if low is None else low
    top = max(known, default=1.0) if high is None else high
    if top <= bottom:
        room = abs(bottom) / 2 or 1.0
        return (bottom - room if low is None else bottom), bottom + room
    return bottom, top


def time_axis(seconds: float, width: int) -> Line:
    """`-5 min ... now`, below a chart."""
    middle = f"-{round_duration(seconds / 2)}" if width >= 40 else ""
    left, right = f"-{round_duration(seconds)}", "now"
    room = width - len(left) - len(right)
    return fitted(text(left + middle.center(room) + right, "dim"), width)


def spark(points: Callable[[int], Points], width: int, height: int, low: float, high: float, blocks: bool) -> list[str]:
    """A small curve without words."""
    found = points(braille.VALUES_PER_CELL * width)
    return _curve(found, width, height, low, high, not blocks)


@lru_cache(maxsize=256)
def _curve(points: Points, width: int, height: int, low: float, high: float, ascii: bool) -> list[str]:
    """Drawn once for as long as it stays the same; nobody changes the list."""
    return braille.chart(points, width, height, low, high, ascii=ascii)


@lru_cache(maxsize=256)
def combined(several: tuple[Points, ...], how: Callable[[Sequence[float]], float]) -> Points:
    """One curve of several: their sum, mean or maximum, of those that are known."""
    if len(several) == 1:
        return several[0]
    known = ([value for value in values if value is not None] for values in zip(*several, strict=True))
    return tuple(how(values) if values else None for values in known)


def bar(share: float | None, width: int, style: str, blocks: bool) -> Line:
    """A horizontal bar; `share` from 0 to 1."""
    filled, rest = bar_parts(share, width, blocks)
    return [Span(filled, style), Span(rest, "dim")]

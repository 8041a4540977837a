"""Charts as lines of text. A braille cell holds two values side by side, and four dots above each other.

`ascii` is for terminals that cannot show braille: the same charts, a little coarser.
"""

import math
from collections.abc import Sequence

VALUES_PER_CELL = 2
DOTS_PER_CELL = 4
_BRAILLE = 0x2800
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a braille character: its left column and its right one, each from the bottom up."""
_WHOLE = 0xF
"""All dots of one column of a cell."""
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.-=+*%#"
_ASCII_DOTS = "_.-'"
_PARTS = "█▓▒░▚·"
_ASCII_PARTS = "#=+-o."


def chart(
    values: Sequence[float | None],
    width: int,
    height: int,
    low: float,
    high: float,
    *,
    fill: bool = False,
    ascii: bool = False,
) -> list[str]:
    """A line through the last values, two in each of `width` columns, as `height` lines of text; None is a gap.

    What lies beyond `low` or `high` is drawn at the edge. With `fill`, all below the line is drawn too.
    """
    shown = values[len(values) - min(len(values), VALUES_PER_CELL * width) :]
    missing = [None] * (VALUES_PER_CELL * width - len(shown))
    rows = [_row(value, low, high, DOTS_PER_CELL * height) for value in (*missing, *shown)]
    columns = _columns(rows, fill=fill)
    cells = _ASCII_CELLS if ascii else _CELLS
    lines = []
    for bottom in range(DOTS_PER_CELL * (height - 1), -1, -DOTS_PER_CELL):
        dots = [column >> bottom & _WHOLE for column in columns]
        lines.append("".join([cells[left][right] for left, right in zip(dots[::2], dots[1::2], strict=True)]))
    return lines


def sparkline(
    values: Sequence[float | None],
    width: int,
    low: float | None = None,
    high: float | None = None,
    *,
    ascii: bool = False,
) -> str:
    """Values in one line, the mean of several in each column. It reaches from the least to the most of them."""
    means = [_mean(values[start:end]) for start, end in _chunks(len(values), width)]
    known = [mean for mean in means if mean is not None]
    low = min(known, default=0.0) if low is None else low
    high = max(known, default=1.0) if high is None else high
    levels = _ASCII_LEVELS if ascii else _LEVELS
    rows = (_row(mean, low, high, len(levels)) for mean in means)
    return "".join(" " if row is None else levels[row] for row in rows).rjust(width)


def stacked(parts: Sequence[float | None], width: int, *, ascii: bool = False) -> list[str]:
    """The parts of a whole as one bar: a text for each, together `width` columns. Each has a character of its own."""
    characters = _ASCII_PARTS if ascii else _PARTS
    sizes = [part if part is not None and math.isfinite(part) and part > 0 else 0.0 for part in parts]
    whole = sum(sizes)
    if not whole:
        return [""] * len(parts)
    edges = [round(width * sum(sizes[:end]) / whole) for end in range(len(sizes) + 1)]
    return [characters[n % len(characters)] * (edges[n + 1] - edges[n]) for n in range(len(sizes))]


def _row(value: float | None, low: float, high: float, rows: int) -> int | None:
    """In which of the rows a value lies, the lowest being 0."""
    if value is None or math.isnan(value):
        return None
    if not high > low:
        return 0
    share = (value - low) / (high - low)
    return 0 if not share > 0 else rows - 1 if share >= 1 else int(share * rows)


def _columns(rows: Sequence[int | None], *, fill: bool) -> list[int]:
    """For each value the dots of its column, as bits. A step up or down is drawn in the column of the later value."""
    columns: list[int] = []
    before: int | None = None
    for row in rows:
        if row is None:
            columns.append(0)
        else:
            bottom = 0 if fill else row if before is None or abs(before - row) <= 1 else _next_to(before, row)
            least, most = min(bottom, row), max(bottom, row)
            columns.append((1 << most + 1) - (1 << least))
        before = row
    return columns


def _next_to(before: int, row: int) -> int:
    """The dot from which a line goes on to `row`, beside the one it comes from."""
    return before + 1 if row > before else before - 1


def _chunks(count: int, width: int) -> list[tuple[int, int]]:
    """At most `width` stretches, as even as can be, that make up so many values."""
    columns = min(count, width)
    return [(count * n // columns, count * (n + 1) // columns) for n in range(columns)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return sum(known) / len(known) if known else None


def _braille_cell(left: int, right: int) -> str:
    bits = [
        bit for column, own in zip((left, right), _DOTS, strict=True) for n, bit in enumerate(own) if column >> n & 1
    ]
    return chr(_BRAILLE + sum(bits))


def _ascii_cell(left: int, right: int) -> str:
    both = left | right
    if both.bit_count() > 2:
        return "|"
    return _ASCII_DOTS[both.bit_length() - 1] if both else " "


_CELLS = [[_braille_cell(left, right) for right in range(_WHOLE + 1)] for left in range(_WHOLE + 1)]
_ASCII_CELLS = [[_ascii_cell(left, right) for right in range(_WHOLE + 1)] for left in range(_WHOLE + 1)]
"""The character for the dots of a left and a right column."""

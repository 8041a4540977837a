"""Lines of a screen of text: pieces, each with the name of its style and what a click on it does.

Every view is made of these and of nothing else. Textual paints them; `--once` prints them.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from pulsetrain.views.text import COLUMN_GAP, cut, fitting_columns, len_visible


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    style: str = ""
    """A name of `palette.STYLES`."""
    action: str = ""
    """What a click does, in the words of the app: `sort('pid')`."""


Line = list[Span]


class TableColumn(NamedTuple):
    """A column of a table: its title and a cell for each row."""

    title: str
    cells: Sequence[Line]
    align: str = "l"
    rank: int = 0
    """On a screen that is too narrow, columns of the highest rank go first; those of rank 0 stay."""
    least: int = 0
    """Its width does not fall below this, so that it stays in place when figures get shorter."""
    action: str = ""
    """What a click on its title does."""
    stays: bool = False
    """Whether it is there without a value too, so that the others stay in place when one comes."""


def text(value: str, style: str = "") -> Line:
    """A line, or a cell, of one piece."""
    return [Span(value, style)] if value else []


@lru_cache(maxsize=4096)
def columns(value: str) -> int:
    """How many columns of the screen a text takes."""
    return len_visible(value)


def width(line: Line) -> int:
    return sum(columns(span.text) for span in line)


def plain(line: Line) -> str:
    """A line without its styles."""
    return "".join(span.text for span in line)


def fitted(line: Line, exactly: int, align: str = "l") -> Line:
    """A line padded or cut to so many columns."""
    missing = exactly - width(line)
    if missing > 0:
        blank = Span(" " * missing)
        return [blank, *line] if align == "r" else [*line, blank]
    if missing == 0:
        return line
    kept: Line = []
    left = exactly
    for span in line:
        size = columns(span.text)
        if size > left:
            return [*kept, span._replace(text=cut(span.text, left))] if left > 0 else kept
        kept.append(span)
        left -= size
    return kept


def between(left: Line, right: Line, exactly: int) -> Line:
    """Two lines at both ends of one; where there is not room for both, the right one goes."""
    room = exactly - width(left) - width(right)
    return [*left, Span(" " * room), *right] if room > 0 else fitted(left, exactly)


def acting(line: Line, action: str, style: str | None = None) -> Line:
    """The same line as one thing to click on; and all in one style, if one is named."""
    return [Span(span.text, span.style if style is None else style, span.action or action) for span in line]


def beside(blocks: Sequence[Sequence[Line]], widths: Sequence[int], gap: int = COLUMN_GAP) -> list[Line]:
    """Blocks of lines next to each other. The lines of each have its width."""
    space = Span(" " * gap)
    height = max((len(block) for block in blocks), default=0)
    rows: list[Line] = []
    for number in range(height):
        row: Line = []
        for index, block in enumerate(blocks):
            if index:
                row.append(space)
            row += block[number] if number < len(block) else [Span(" " * widths[index])]
        rows.append(row)
    return rows


def table(shown: Iterable[TableColumn], most: int) -> list[Line]:
    """An aligned table, its titles first. Empty columns, and those there is no room for, are left out."""
    known = [column for column in shown if column.stays or any(column.cells)]
    widths = {number: _width(column) for number, column in enumerate(known)}
    spare = sorted((number for number in widths if known[number].rank), key=lambda number: -known[number].rank)
    space = Span(" " * COLUMN_GAP)
    rows: list[Line] = [[] for _ in range(1 + max((len(column.cells) for column in known), default=0))]
    for place, number in enumerate(fitting_columns(widths, spare, most)):
        column = known[number]
        for row, cell in zip(rows, ([Span(column.title, "dim", column.action)], *column.cells), strict=True):
            if place:
                row.append(space)
            row.extend(fitted(cell, widths[number], column.align))
    return rows


def _width(column: TableColumn) -> int:
    return max(column.least, columns(column.title), max(map(width, column.cells), default=0))

"""Charts as text: every value is where it belongs."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.views.terminal.braille import chart, sparkline, stacked

VALUES = st.lists(st.none() | st.floats(0.0, 100.0), max_size=60)
SIZES = st.integers(1, 20)
LEFT, RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)


def dots(lines: list[str]) -> list[set[int]]:
    """The rows that are drawn in each column of dots, counted from the bottom."""
    columns: list[set[int]] = [set() for _ in range(2 * len(lines[0]))]
    for number, line in enumerate(reversed(lines)):
        for place, character in enumerate(line):
            for column, bits in ((2 * place, LEFT), (2 * place + 1, RIGHT)):
                found = {4 * number + row for row, bit in enumerate(bits) if (ord(character) - 0x2800) & bit}
                columns[column] |= found
    return columns


@given(VALUES, SIZES, SIZES)
def test_every_value_is_drawn_in_its_row_and_a_gap_is_empty(
    values: list[float | None], width: int, height: int
) -> None:
    columns = dots(chart(values, width, height, 0.0, 100.0))
    assert len(columns) == 2 * width
    shown = values[-2 * width :]
    for column, value in zip(columns[2 * width - len(shown) :], shown, strict=True):
        if value is None:
            assert column == set()
        else:
            assert min(4 * height - 1, int(value / 100 * 4 * height)) in column


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=40), SIZES)
def test_a_line_has_no_holes(values: list[float], height: int) -> None:
    columns = dots(chart(values, 20, height, 0.0, 100.0))[-len(values) :]
    for before, after in pairwise(columns):
        assert min(abs(a - b) for a in before for b in after) <= 1


@given(VALUES, SIZES, SIZES, st.booleans(), st.booleans())
def test_a_chart_has_the_size_that_was_asked_for(
    values: list[float | None], width: int, height: int, fill: bool, ascii: bool
) -> None:
    lines = chart(values, width, height, 20.0, 80.0, fill=fill, ascii=ascii)
    assert [len(line) for line in lines] == [width] * height
    assert not ascii or all(line.isascii() for line in lines)


def test_what_lies_beyond_the_edges_is_drawn_at_the_edge() -> None:
    assert dots(chart([-5.0, None, 500.0, None, math.inf, math.nan], 3, 2, 0.0, 100.0)) == [
        {0},
        set(),
        {7},
        set(),
        {7},
        set(),
    ]


def test_a_filled_chart_is_drawn_down_to_its_foot() -> None:
    assert dots(chart([0.0, 100.0], 1, 1, 0.0, 100.0, fill=True)) == [{0}, {0, 1, 2, 3}]


def test_a_scale_without_extent_draws_at_the_foot() -> None:
    assert dots(chart([5.0, 5.0], 1, 2, 5.0, 5.0)) == [{0}, {0}]


def test_a_terminal_without_braille_gets_ascii() -> None:
    assert chart([0.0, 0.0, 30.0, 30.0, 60.0, 60.0, 99.0, 99.0, None, None], 5, 1, 0.0, 100.0, ascii=True) == ["_.-' "]


def test_a_sparkline_reaches_from_the_least_to_the_most() -> None:
    assert sparkline([1.0, 2.0, None, 3.0], 4) == "▁▅ █"
    assert sparkline([1.0, 3.0], 4) == "  ▁█"
    assert sparkline([0.0, 1.0, 3.0, 4.0], 2, 0.0, 4.0) == "▂█"
    assert sparkline([None, None], 3) == "   "
    assert sparkline([], 3) == "   "
    assert sparkline([0.0, 7.0], 2, ascii=True) == "_#"


@given(st.lists(st.none() | st.floats(0.0, 1e6), max_size=8), st.integers(0, 80))
def test_the_parts_of_a_bar_make_up_its_width(parts: list[float | None], width: int) -> None:
    bars = stacked(parts, width)
    assert len(bars) == len(parts)
    assert sum(map(len, bars)) in ((width,) if any(parts) else (0,))
    for part, bar in zip(parts, bars, strict=True):
        assert abs(len(bar) - width * (part or 0.0) / (sum(filter(None, parts)) or 1.0)) <= 1


def test_neighboring_parts_of_a_bar_differ_without_colors() -> None:
    first, second, third = stacked([1.0, 2.0, 1.0], 8)
    assert (len(first), len(second), len(third)) == (2, 4, 2)
    assert len({*first, *second, *third}) == 3
    assert all(bar.isascii() for bar in stacked([1.0, 2.0], 8, ascii=True))

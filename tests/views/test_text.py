"""Figures, bars and tables as text."""

import io

import pytest

from pulsetrain.views import text


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def colour(monkeypatch: pytest.MonkeyPatch) -> text.Style:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return text.Style(Terminal())


def test_no_colours_in_a_pipe_with_no_color_or_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text.Style(io.StringIO())("hot", "red") == "hot"
    monkeypatch.setenv("TERM", "dumb")
    assert text.Style(Terminal())("hot", "red") == "hot"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert text.Style(Terminal())("hot", "red") == "hot"


def test_a_stream_without_unicode_gets_bars_it_can_show() -> None:
    plain = text.Style(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert plain.bar(0.5, 8) == "####...."
    assert plain.bar(None, 8) == " " * 8


@pytest.mark.parametrize(("share", "drawn"), [(0, "····"), (1, "████"), (2, "████"), (0.5, "██··"), (0.53, "██▏·")])
def test_bars_are_exact_to_an_eighth_and_stay_in_their_width(colour: text.Style, share: float, drawn: str) -> None:
    assert text.visible(colour.bar(share, 4, "green")) == drawn


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1.0 KiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (999.6 * 2**30, "1.0 TiB"),
        (5e15, "4547 TiB"),
    ],
)
def test_bytes_take_the_unit_that_fits(value: float | None, shown: str) -> None:
    assert text.bytes_text(value) == shown


def test_used_of_shows_both_in_the_unit_of_the_total() -> None:
    assert text.used_of(61.2 * 2**30, 79.6 * 2**30) == "61.2/79.6 GiB"
    assert text.used_of(0.5 * 2**30, 1008 * 2**30) == "0.0/1.0 TiB"
    assert text.used_of(None, 2**30) == "-"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(5.04, "5.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (3725, "1 h 02 min"), (7 * 86400, "7 d 0 h")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("joules", "shown"), [(None, "-"), (490, "490 J"), (7200, "2.00 Wh"), (36e4, "100 Wh"), (72e5, "2.00 kWh")]
)
def test_energy_in_joules_then_watt_hours(joules: float | None, shown: str) -> None:
    assert text.energy(joules) == shown


def test_tables_align_coloured_cells_and_leave_empty_columns_out(colour: text.Style) -> None:
    lines = text.table(("a", "gone", "n"), [(colour("x", "red"), "", "1"), ("long", "", "100")], colour, "llr")
    assert [text.visible(line) for line in lines] == ["a       n", "x       1", "long  100"]


def test_lines_are_cropped_to_columns_and_colours_end(colour: text.Style) -> None:
    line = colour("red", "red") + " and " + colour("green", "green")
    cropped = text.crop(line, 6)
    assert text.visible(cropped) == "red an"
    assert cropped.endswith("\x1b[0m")


def test_parts_flow_into_lines() -> None:
    assert text.flow(["aaaa", "", "bbb", "cc"], 9) == ["aaaa  bbb", "cc"]

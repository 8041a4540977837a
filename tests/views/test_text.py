"""Figures, bars and tables as text."""

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.views import text


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def color(monkeypatch: pytest.MonkeyPatch) -> text.Style:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return text.Style(Terminal())


def test_no_colors_in_a_pipe_with_no_color_or_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_bars_are_exact_to_an_eighth_and_stay_in_their_width(color: text.Style, share: float, drawn: str) -> None:
    assert text.visible(color.bar(share, 4, "green")) == drawn


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


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0:00"), (45.9, "0:45"), (754, "12:34"), (3754, "1:02:34"), (45000, "12.5 h"), (362880, "4.2 d")],
)
def test_running_time_has_at_most_seven_columns(seconds: float, said: str) -> None:
    assert text.running_time(seconds) == said
    assert len(said) <= 7


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
    ("seconds", "shown"),
    [(None, "-"), (2.5e-7, "0.250 µs"), (0.000289, "289 µs"), (0.0158, "15.8 ms"), (0.98, "980 ms"), (1.25, "1.25 s")],
)
def test_short_durations_have_three_digits(seconds: float | None, shown: str) -> None:
    assert text.short_duration(seconds) == shown


def test_pieces_are_listed_with_an_and_before_the_last() -> None:
    assert [text.listed(pieces) for pieces in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("joules", "shown"),
    [
        (None, "-"),
        (0, "0 J"),
        (2.5e-7, "0.250 µJ"),
        (0.0123, "12.3 mJ"),
        (4.56, "4.56 J"),
        (490, "490 J"),
        (7200, "2.00 Wh"),
        (36e4, "100 Wh"),
        (72e5, "2.00 kWh"),
        (4.4e9, "1,222 kWh"),
    ],
)
def test_energy_in_joules_then_watt_hours(joules: float | None, shown: str) -> None:
    assert text.energy(joules) == shown


def test_a_column_has_the_unit_of_its_largest_value() -> None:
    assert text.in_one_unit([680.0, None, 1018.8], text.energy) == ["0.189 Wh", "", "0.283 Wh"]
    assert text.in_one_unit([0.002, 1.25, 0.0], text.short_duration) == ["0.00200 s", "1.25 s", "0 s"]
    assert text.in_one_unit([12.0, 1500.0, 0.0], text.grams) == ["0.0120 kg", "1.50 kg", "0 kg"]
    assert text.in_one_unit([3e5, 2**31, 4096, 0], text.bytes_text) == ["<0.1 GiB", "2.0 GiB", "<0.1 GiB", "0.0 GiB"]
    assert text.in_one_unit([None, None], text.energy, absent="-") == ["-", "-"]
    assert text.in_one_unit([], text.energy) == []
    assert text.short_duration(0) == "0 s"


def test_a_part_is_shown_in_the_unit_of_its_whole() -> None:
    assert text.energy(360, whole=7200) == "0.100 Wh"
    assert text.energy(0, whole=7200) == "0 Wh"
    assert text.energy(360, whole=0) == "360 J"


@pytest.mark.parametrize(
    ("grams", "shown"),
    [(None, "-"), (0, "0 g"), (0.0123, "12.3 mg"), (48.44, "48.4 g"), (1500, "1.50 kg"), (2.5e6, "2.50 t")],
)
def test_emissions_take_the_unit_that_fits(grams: float | None, shown: str) -> None:
    assert text.grams(grams) == shown


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (None, "USD", "-"),
        (0, "USD", "0.00 USD"),
        (0.00123, "EUR", "0.00123 EUR"),
        (12.345, "", "12.35"),
        (1234.5, "USD", "1,234.50 USD"),
    ],
)
def test_a_short_run_is_not_free(amount: float | None, currency: str, shown: str) -> None:
    assert text.money(amount, currency) == shown


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (100, None, ""),
        (0, 1, ""),
        (100, 0, " ± 0.1 %"),
        (100, 0.04, " ± 0.1 %"),
        (100, 1.23, " ± 1.2 %"),
        (100, 40, " ± 40 %"),
        (100, 250, " ± over 100 %"),
    ],
)
def test_a_bound_follows_a_figure_where_one_is_known(value: float, error: float | None, shown: str) -> None:
    assert text.bound(value, error) == shown


@given(st.floats(1e-9, 1e12))
def test_energy_can_be_read_back_to_half_a_percent(joules: float) -> None:
    figure, unit = text.energy(joules).replace(",", "").split()
    scale = {"µJ": 1e-6, "mJ": 1e-3, "J": 1, "Wh": 3600, "kWh": 3.6e6}[unit]
    assert float(figure) * scale == pytest.approx(joules, rel=0.00501)


def test_long_facts_are_wrapped_on_a_terminal_and_not_in_a_pipe(terminal: Callable[[int], text.Style]) -> None:
    words = " ".join(["word"] * 20)
    assert text.wrap(words, terminal(40), 8) == "\n        ".join([" ".join(["word"] * 6)] * 3 + ["word word"])
    assert text.wrap(words, text.PLAIN, 8) == words


def test_tables_align_colored_cells_and_leave_empty_columns_out(color: text.Style) -> None:
    lines = text.table(("a", "gone", "n"), [(color("x", "red"), "", "1"), ("long", "", "100")], color, "llr")
    assert [text.visible(line) for line in lines] == ["a       n", "x       1", "long  100"]


def test_lines_are_cropped_to_columns_and_colors_end(color: text.Style) -> None:
    line = color("red", "red") + " and " + color("green", "green")
    cropped = text.crop(line, 6)
    assert text.visible(cropped) == "red an"
    assert cropped.endswith("\x1b[0m")


def test_spare_columns_go_one_by_one_until_a_table_fits(terminal: Callable[[int], text.Style]) -> None:
    row = ("name", "a" * 10, "b" * 10, "c" * 10)
    for columns, shown in ((40, "abc"), (39, "ac"), (27, "c"), (10, "c")):
        (_, line) = text.table(("h",) * 4, [row], terminal(columns), "llll", spare=(2, 1))
        assert [letter for letter in "abc" if letter * 10 in line] == list(shown)


def test_parts_flow_into_lines() -> None:
    assert text.flow(["aaaa", "", "bbb", "cc"], 9) == ["aaaa  bbb", "cc"]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "-"),
        (0.0, "0.00 EUR"),
        (1234.5, "1,234.50 EUR"),
        (0.00314159, "0.00314 EUR"),
    ],
)
def test_money_is_shown_to_the_cent_and_small_amounts_to_three_digits(amount: float | None, shown: str) -> None:
    assert text.money(amount, "EUR") == shown
    assert text.money(amount, "") == shown.removesuffix(" EUR")


@pytest.mark.parametrize(
    ("text_", "width", "shown"),
    [
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本", 3, "日…"),
        ("ab", 0, ""),
    ],
)
def test_a_text_is_cut_by_the_columns_it_takes(text_: str, width: int, shown: str) -> None:
    assert text.cut(text_, width) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(60, "1 min"), (90, "90 s"), (300, "5 min"), (3600, "1 h"), (5400, "90 min"), (7200, "2 h"), (216000, "2.5 d")],
)
def test_a_stretch_of_time_is_short_on_an_axis(seconds: float, shown: str) -> None:
    assert text.round_duration(seconds) == shown


def test_durations_of_a_column_have_one_form() -> None:
    assert text.durations([0.34, None, 27.9]) == ["0.3 s", "", "27.9 s"]
    assert text.durations([27.9, 65.2, None, 93_784.0]) == ["0:00:28", "0:01:05", "", "26:03:04"]

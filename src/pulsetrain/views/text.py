"""Plain text for terminals: figures with their units, bars, tables, colors. No library: it is drawn on every tick."""

import io
import math
import os
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TextIO, TypeVar

from pulsetrain.units import JOULES_PER_KWH, JOULES_PER_WH, SECONDS_PER_DAY, SECONDS_PER_HOUR

ABSENT = "-"
COLUMN_GAP = 2
"""Blanks between two columns of a table."""
K = TypeVar("K", bound=Hashable)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COLORS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Style:
    """Colors for a stream that is a terminal and wants them; plain text otherwise."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.color = self.terminal and not os.environ.get("NO_COLOR")
        self.width = shutil.get_terminal_size().columns if self.terminal else 110
        # A bar needs characters that an ASCII stream cannot show.
        self.blocks = (stream.encoding or "").lower().replace("-", "").startswith("utf")

    def __call__(self, text: str, *names: str) -> str:
        if not self.color or not names:
            return text
        return f"\x1b[{';'.join(_COLORS[name] for name in names)}m{text}\x1b[0m"

    def bar(self, share: float | None, width: int, *names: str) -> str:
        """A horizontal bar; `share` from 0 to 1."""
        filled, rest = bar_parts(share, width, self.blocks)
        return self(filled, *names) + self(rest, "dim")


PLAIN = Style(io.StringIO())
"""For text outside of a terminal: a file, a page."""


def bar_parts(share: float | None, width: int, blocks: bool) -> tuple[str, str]:
    """The filled part of a horizontal bar and the rest, for a share from 0 to 1; blanks where it is unknown.

    `blocks` are exact to an eighth of a column; without them the bar is ASCII.
    """
    if share is None:
        return "", " " * width
    share = min(max(share, 0.0), 1.0)
    if not blocks:
        filled = "#" * round(share * width)
        return filled, "." * (width - len(filled))
    full, part = divmod(round(share * width * 8), 8)
    filled = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")
    return filled, "·" * (width - len(filled))


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], style: Style, align: str, spare: Sequence[int] = ()
) -> list[str]:
    """Lines of an aligned table. `align` has one letter for each column: l or r. Empty columns are left out.

    On a terminal that is too narrow, so are the `spare` ones, one after the other until it fits.
    """
    shown = [column for column in range(len(head)) if any(visible(row[column]) for row in rows) or not rows]
    widths = {c: max(len_visible(text) for text in (head[c], *(row[c] for row in rows))) for c in shown}
    if style.terminal:
        shown = fitting_columns(widths, spare, style.width)
    lines = [style("  ".join(_pad(head[c], widths[c], align[c]) for c in shown).rstrip(), "dim")]
    lines += ["  ".join(_pad(row[c], widths[c], align[c]) for c in shown).rstrip() for row in rows]
    return lines


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with +---+ between its rows and +===+ under its head."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def rule(character: str) -> str:
        return "+" + "+".join(character * (width + 2) for width in widths) + "+"

    def line(cells: Sequence[str]) -> str:
        return "|" + "|".join(f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True)) + "|"

    body = [text for row in rows for text in (line(row), rule("-"))]
    return "\n".join([rule("-"), line(head), rule("="), *body])


def fitting_columns(widths: Mapping[K, int], spare: Iterable[K], most: int) -> list[K]:
    """The columns of a table that fit side by side: spare ones are left out, in their order, until the rest does."""
    shown = list(widths)
    for column in spare:
        if column in shown and sum(widths[each] + COLUMN_GAP for each in shown) - COLUMN_GAP > most:
            shown.remove(column)
    return shown


def flow(parts: Sequence[str], width: int) -> list[str]:
    """Parts side by side, in as many lines as the width takes; empty ones are left out."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and len_visible(lines[-1]) + 2 + len_visible(part) <= width:
            lines[-1] += "  " + part
        else:
            lines.append(part)
    return lines


def wrap(text: str, style: Style, indent: int) -> str:
    """On a terminal, a text in lines that fit, those after the first set in by `indent`; words stay whole."""
    if not style.terminal:
        return text
    lines = textwrap.wrap(text, max(20, style.width - indent), break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def crop(line: str, width: int) -> str:
    """A line with colors, cut to `width` columns."""
    if len_visible(line) <= width:
        return line
    kept = ""
    for piece in re.split(f"({_ANSI.pattern})", line):
        kept += piece if _ANSI.fullmatch(piece) else piece[: max(0, width - len_visible(kept))]
    return kept


def visible(text: str) -> str:
    """A text without its colors."""
    return _ANSI.sub("", text)


def len_visible(text: str) -> int:
    """How many columns a text takes on a terminal."""
    plain = visible(text)
    return len(plain) if plain.isascii() else sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in plain)


def cut(text: str, width: int) -> str:
    """A text without colors in at most `width` columns; one that was cut ends with an ellipsis."""
    if len_visible(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while kept and len_visible(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…" if width > 0 else ""


def _pad(text: str, width: int, align: str) -> str:
    space = " " * (width - len_visible(text))
    return space + text if align == "r" else text + space


def number(value: float | None, unit: str = "", digits: int = 0) -> str:
    return ABSENT if value is None else f"{value:,.{digits}f}{unit and ' ' + unit}"


def rate(value: float | None) -> str:
    """How many a second."""
    return number(value, digits=0 if value is None or value >= 100 else 1)


def percent(share: float | None) -> str:
    """A share from 0 to 1."""
    return number(None if share is None else 100 * share, "%")


def bytes_text(value: float | None, suffix: str = "", whole: float | None = None) -> str:
    """Bytes in the binary unit that fits, 1.5 GiB; with a `whole`, in the unit of that."""
    if value is None:
        return ABSENT
    size = abs(value if whole is None else whole)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 999.5 or unit == "TiB":
            break
        size, value = size / 1024, value / 1024
    if 0 < value < 0.05:
        return f"<0.1 {unit}{suffix}"
    digits = 0 if unit == "B" or size >= 99.95 else 1
    return f"{value:.{digits}f} {unit}{suffix}"


def used_of(used: float | None, total: float | None) -> str:
    """`61.2/79.6 GiB`, both in the unit of the total."""
    if used is None or total is None:
        return bytes_text(used)
    whole, unit = bytes_text(total).split()
    scale = total / float(whole) if float(whole) else 1.0
    return f"{used / scale:.1f}/{whole} {unit}"


def duration(seconds: float) -> str:
    """A long time, as that of a run: 5.0 s, 1 min 01 s, 1 h 02 min, 7 d 0 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def durations(column: Sequence[float | None]) -> list[str]:
    """The durations of a column in one form: `27.9 s` where all are below a minute, else `0:00:28`. Empty for None."""
    if max((seconds for seconds in column if seconds is not None), default=0.0) < 60:
        return ["" if seconds is None else f"{seconds:.1f} s" for seconds in column]
    return ["" if seconds is None else _clock(round(seconds)) for seconds in column]


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def running_time(seconds: float) -> str:
    """How long a process has run, in at most seven columns: `0:45`, `12:34`, `1:02:34`, `12.5 h`, `4.2 d`."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours >= 48:
        return f"{seconds / SECONDS_PER_DAY:.1f} d"
    if hours >= 10:
        return f"{seconds / SECONDS_PER_HOUR:.1f} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def round_duration(seconds: float) -> str:
    """A stretch of time on an axis: `90 s`, `5 min`, `4 h`, `2.5 d`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size or (seconds >= size and not seconds % size):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def short_duration(seconds: float | None, whole: float | None = None) -> str:
    """A short time, as that of a step, with three digits in the unit that fits: 289 µs, 15.8 ms, 1.25 s.

    With a `whole`, in the unit of that.
    """
    if seconds is None:
        return ABSENT
    size = seconds if whole is None else whole
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    unit, scale = next(((unit, scale) for unit, scale in units if size >= 0.9995 * scale), units[-1 if size else 0])
    value = seconds / scale
    return f"{_three_digits(value) if value >= 0.9995 else _significant(value)} {unit}"


def energy(joules: float | None, whole: float | None = None) -> str:
    """Joules up to a kilojoule, then watt-hours, as on a bill. With a `whole`, in the unit of that."""
    if joules is None:
        return ABSENT
    size = abs(joules if whole is None else whole)
    units = (
        (JOULES_PER_KWH, 999.5 * JOULES_PER_WH, "kWh"),
        (JOULES_PER_WH, 1000.0, "Wh"),
        (1.0, 1.0, "J"),
        (1e-3, 1e-3, "mJ"),
        (1e-6, 0.0, "µJ"),
    )
    scale, unit = next((scale, unit) for scale, least, unit in units if size >= least) if size else (1.0, "J")
    return f"{_significant(joules / scale)} {unit}"


def grams(value: float | None, whole: float | None = None) -> str:
    """A mass of CO2 equivalents, in the unit that fits; with a `whole`, in the unit of that."""
    if value is None:
        return ABSENT
    size = abs(value if whole is None else whole)
    units = ((1e6, 999.5e3, "t"), (1e3, 999.5, "kg"), (1.0, 0.1, "g"), (1e-3, 0.0, "mg"))
    scale, unit = next((scale, unit) for scale, least, unit in units if size >= least) if size else (1.0, "g")
    return f"{_significant(value / scale)} {unit}"


class UnitText(Protocol):
    """Writes a value in the unit that fits a `whole`: `energy`, `grams`, `short_duration`, `bytes_text`."""

    def __call__(self, value: float | None, /, *, whole: float | None) -> str: ...


def in_one_unit(values: Sequence[float | None], text: UnitText, absent: str = "") -> list[str]:
    """The cells of a column, in the unit that fits the largest of them."""
    most = max((abs(value) for value in values if value is not None), default=None)
    return [absent if value is None else text(value, whole=most) for value in values]


def money(amount: float | None, currency: str) -> str:
    """Cents from one unit on, three digits below, so that a short run is not free."""
    if amount is None:
        return ABSENT
    text = f"{amount:,.2f}" if amount == 0 or abs(amount) >= 1 else _significant(amount)
    return f"{text} {currency}".rstrip()


def bound(value: float, error: float | None) -> str:
    """` ± 1.2 %`, to stand behind a figure; empty where nobody can say how far it is off."""
    if error is None or value <= 0:
        return ""
    share = 100 * error / value
    if share > 100:
        return " ± over 100 %"
    if share < 0.1:
        return " ± 0.1 %"
    return f" ± {share:.1f} %" if share < 9.95 else f" ± {share:.0f} %"


def listed(pieces: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(pieces[:-1]), *pieces[-1:])))


def _three_digits(value: float) -> str:
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def _significant(value: float) -> str:
    """At least three digits that mean something, and never an exponent: 0.00123, 12.3, 1,234."""
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, decimals)}f}"

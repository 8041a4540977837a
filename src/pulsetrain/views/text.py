"""Plain text for terminals: figures with their units, bars, tables, colours. No library: it is drawn on every tick."""

import io
import math
import os
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TextIO

ABSENT = "-"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Style:
    """Colours for a stream that is a terminal and wants them; plain text otherwise."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = self.terminal and not os.environ.get("NO_COLOR")
        self.width = shutil.get_terminal_size().columns if self.terminal else 110
        # A bar needs characters that an ASCII stream cannot show.
        self.blocks = (stream.encoding or "").lower().replace("-", "").startswith("utf")

    def __call__(self, text: str, *names: str) -> str:
        if not self.colour or not names:
            return text
        return f"\x1b[{';'.join(_COLOURS[name] for name in names)}m{text}\x1b[0m"

    def bar(self, share: float | None, width: int, *names: str) -> str:
        """A horizontal bar; `share` from 0 to 1."""
        if share is None:
            return " " * width
        share = min(max(share, 0.0), 1.0)
        if not self.blocks:
            return self("#" * round(share * width), *names) + "." * (width - round(share * width))
        eighths = round(share * width * 8)
        full, part = divmod(eighths, 8)
        drawn = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")
        return self(drawn, *names) + self("·" * (width - len(drawn)), "dim")


PLAIN = Style(io.StringIO())
"""For text that is no terminal's: a file, a page."""


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], style: Style, align: str, spare: Sequence[int] = ()
) -> list[str]:
    """Lines of an aligned table. `align` has one letter for each column: l or r. Empty columns are left out.

    On a terminal that is too narrow, so are the `spare` ones, one after the other until it fits.
    """
    shown = [column for column in range(len(head)) if any(visible(row[column]) for row in rows) or not rows]
    widths = {c: max(len_visible(text) for text in (head[c], *(row[c] for row in rows))) for c in shown}
    for column in spare:
        if style.terminal and column in shown and sum(widths[c] + 2 for c in shown) - 2 > style.width:
            shown.remove(column)
    lines = [style("  ".join(_pad(head[c], widths[c], align[c]) for c in shown).rstrip(), "dim")]
    lines += ["  ".join(_pad(row[c], widths[c], align[c]) for c in shown).rstrip() for row in rows]
    return lines


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
    """A line with colours, cut to so many columns."""
    if len_visible(line) <= width:
        return line
    kept = ""
    for piece in re.split(f"({_ANSI.pattern})", line):
        kept += piece if _ANSI.fullmatch(piece) else piece[: max(0, width - len_visible(kept))]
    return kept


def visible(text: str) -> str:
    """A text without its colours."""
    return _ANSI.sub("", text)


def len_visible(text: str) -> int:
    """How many columns a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in visible(text))


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _pad(text: str, width: int, align: str) -> str:
    space = " " * (width - len_visible(text))
    return space + text if align == "r" else text + space


def number(value: float | None, unit: str = "", digits: int = 0) -> str:
    return ABSENT if value is None else f"{value:,.{digits}f}{unit and ' ' + unit}"


def percent(share: float | None) -> str:
    """A share from 0 to 1."""
    return number(None if share is None else 100 * share, "%")


def bytes_text(value: float | None, suffix: str = "") -> str:
    """Bytes in the binary unit that fits: 1.5 GiB."""
    if value is None:
        return ABSENT
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 999.5 or unit == "TiB":
            break
        value /= 1024
    digits = 0 if unit == "B" or abs(value) >= 99.95 else 1
    return f"{value:.{digits}f} {unit}{suffix}"


def used_of(used: float | None, total: float | None) -> str:
    """`61.2/79.6 GiB`, both in the unit of the total."""
    if used is None or total is None:
        return bytes_text(used)
    whole, unit = bytes_text(total).split()
    scale = total / float(whole) if float(whole) else 1.0
    return f"{used / scale:.1f}/{whole} {unit}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def milliseconds(seconds: float | None) -> str:
    """A short time: 0.85 ms, 12 ms, 1.25 s."""
    if seconds is None:
        return ABSENT
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.{2 if seconds < 0.01 else 0}f} ms"


def energy(joules: float | None, whole: float | None = None) -> str:
    """Joules up to a kilojoule, then watt-hours, as on a bill. A part is told in the unit of its `whole`."""
    if joules is None:
        return ABSENT
    size = abs(joules if whole is None else whole)
    units = (
        (3.6e6, 999.5 * 3600, "kWh"),
        (3600.0, 1000.0, "Wh"),
        (1.0, 1.0, "J"),
        (1e-3, 1e-3, "mJ"),
        (1e-6, 0.0, "µJ"),
    )
    scale, unit = next((scale, unit) for scale, least, unit in units if size >= least) if size else (1.0, "J")
    return f"{_significant(joules / scale)} {unit}"


def grams(value: float | None) -> str:
    """A mass of CO2 equivalents, in the unit that fits."""
    if value is None:
        return ABSENT
    if abs(value) >= 999.5e3:
        return f"{_significant(value / 1e6)} t"
    if abs(value) >= 999.5:
        return f"{_significant(value / 1e3)} kg"
    return f"{_significant(value)} g" if value == 0 or abs(value) >= 0.1 else f"{_significant(1e3 * value)} mg"


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


def _significant(value: float) -> str:
    """At least three digits that mean something, and never an exponent: 0.00123, 12.3, 1,234."""
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, decimals)}f}"

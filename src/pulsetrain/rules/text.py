"""Texts of rules, declared once: filled in by Python here, and rendered as Prometheus templates in alerts/.

A text names labels (`{gpu}`), the value (`{value:.0f}`) and thresholds (`{gpu_hot_celsius}`). Formats of the value:
printf's `.0f` and the like, `percent` of a ratio, `duration` of seconds, `si` with a unit prefix. Texts of findings
name their evidence (`{data_wait_share:share}`); `share` is a ratio in whole percents, `time` a duration in two digits,
`amount` any number in three.
"""

import math
import string
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pulsetrain.rules.thresholds import Thresholds

VALUE = "value"


class Piece(NamedTuple):
    """Words, and what follows them."""

    words: str
    name: str | None
    """A label, a threshold or the value; None at the end."""
    format: str = ""


def pieces(text: str) -> Iterator[Piece]:
    for words, name, format, _ in string.Formatter().parse(text):
        yield Piece(words, name, format or "")


def filled(text: str, labels: Mapping[str, str], value: float, thresholds: Thresholds) -> str:
    """A text as a message. A label that is not there leaves nothing, as in Prometheus."""
    return "".join(piece.words + _filling(piece, labels, value, thresholds) for piece in pieces(text))


def finding_text(text: str, values: Mapping[str, float | str], thresholds: Thresholds) -> str:
    """The text of a finding, with the values it rests on."""
    return "".join(piece.words + _telling(piece, values, thresholds) for piece in pieces(text))


def share_text(ratio: float) -> str:
    """As people say it: 78 %."""
    return f"{100 * ratio:.0f} %" if not 0 < abs(ratio) < 0.01 else f"{100 * ratio:.1f} %"


def time_text(seconds: float) -> str:
    """A length in two or three digits: 45 ms, 3.2 s, 12 min, 9.5 h."""
    for unit, least, size in (("ms", 0.0, 1e-3), ("s", 1.0, 1.0), ("min", 120.0, 60.0), ("h", 7200.0, 3600.0)):
        if abs(seconds) >= least:
            found = f"{seconds / size:.3g} {unit}" if abs(seconds) / size < 10 else f"{seconds / size:.0f} {unit}"
    return found


def amount_text(value: float) -> str:
    """Three digits, and no exponent below a million: 0.0123, 4.56, 8,100."""
    return f"{float(f'{value:.3g}'):,.12g}" if 1 <= abs(value) < 1e6 else f"{value:.3g}"


def number_text(value: float | str) -> str:
    """A threshold as a user writes it."""
    return value if isinstance(value, str) else f"{value:.12g}"


def _filling(piece: Piece, labels: Mapping[str, str], value: float, thresholds: Thresholds) -> str:
    if piece.name is None:
        return ""
    if piece.name == VALUE:
        return _formatted(value, piece.format)
    if piece.name in Thresholds.__struct_fields__:
        return number_text(getattr(thresholds, piece.name))
    return labels.get(piece.name, "")


def _telling(piece: Piece, values: Mapping[str, float | str], thresholds: Thresholds) -> str:
    if piece.name is None:
        return ""
    value = values[piece.name] if piece.name in values else getattr(thresholds, piece.name)
    return value if isinstance(value, str) else _formatted(value, piece.format)


def _formatted(value: float, format: str) -> str:
    if format in _FORMATS:
        return _FORMATS[format](value)
    return f"{value:{format}}" if format else number_text(value)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.4g} %"


def _si(value: float) -> str:
    """As Prometheus' humanize: 1.234k, 12m."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.4g}"
    prefix, scaled = "", value
    if abs(value) >= 1:
        for prefix_of_step in "kMGTPEZY":
            if abs(scaled) < 1000:
                break
            prefix, scaled = prefix_of_step, scaled / 1000
    else:
        for prefix_of_step in "munpfazy":
            if abs(scaled) >= 1:
                break
            prefix, scaled = prefix_of_step, scaled * 1000
    return f"{scaled:.4g}{prefix}"


def _duration(seconds: float) -> str:
    """As Prometheus' humanizeDuration: 1d 2h 3m 4s."""
    if not math.isfinite(seconds):
        return f"{seconds:.4g}"
    if abs(seconds) < 1:
        return f"{_si(seconds)}s"
    sign, whole = "-" if seconds < 0 else "", int(abs(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {whole % 60}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {whole % 60}s"
    if minutes:
        return f"{sign}{minutes}m {whole % 60}s"
    return f"{sign}{abs(seconds):.4g}s"


_FORMATS = {
    "percent": _percent,
    "duration": _duration,
    "si": _si,
    "share": share_text,
    "time": time_text,
    "amount": amount_text,
}

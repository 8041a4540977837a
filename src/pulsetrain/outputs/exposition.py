"""Families as text: Prometheus' own format 0.0.4, or OpenMetrics 1.0, as the reader prefers."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

from pulsetrain.outputs.points import Family, Kind, Labels

Format = Literal["text", "openmetrics"]

CONTENT_TYPES: dict[Format, str] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
KEPT_LABELS = 8192
"""They stay the same from scrape to scrape, and take longest to write."""
KEPT_HEADS = 1024
_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
_OPENMETRICS_VERSIONS = ("", "0.0.1", "1.0.0")
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def negotiate(accept: str) -> Format:
    """The format that an Accept header prefers; text when it asks for neither."""
    quality: dict[Format, float] = {}
    for media, parameters in _elements(accept):
        if format := _format(media, parameters.get("version", "")):
            quality[format] = max(quality.get(format, 0.0), _quality(parameters))
    return "openmetrics" if quality.get("openmetrics", 0.0) > quality.get("text", 0.0) else "text"


def accepts_gzip(accept_encoding: str) -> bool:
    return any(
        coding in ("gzip", "*") and _quality(parameters) > 0 for coding, parameters in _elements(accept_encoding)
    )


def render(families: Iterable[Family], format: Format) -> bytes:
    """The whole answer to a scrape."""
    lines: list[str] = []
    for name, kind, unit, help, points in families:
        lines.append(_head(name, kind, unit, help, format))
        lines += [f"{name}{suffix}{_braces(labels)} {number(value)}\n" for labels, value, suffix in points]
    if format == "openmetrics":
        lines.append("# EOF\n")
    return "".join(lines).encode(errors="replace")


def _format(media: str, version: str) -> Format | None:
    if media == "application/openmetrics-text" and version in _OPENMETRICS_VERSIONS:
        return "openmetrics"
    return "text" if media in ("text/plain", "text/*", "*/*") else None


def _elements(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What a header lists, with its parameters: `text/plain;version=0.0.4;q=0.5, */*;q=0.1`."""
    for element in header.lower().split(","):
        value, *pairs = (part.strip() for part in element.split(";"))
        yield value, {name.strip(): text.strip(' "') for name, _, text in (pair.partition("=") for pair in pairs)}


def _quality(parameters: Mapping[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


@lru_cache(KEPT_HEADS)
def _head(name: str, kind: Kind, unit: str, help: str, format: Format) -> str:
    """What comes before the series of a family."""
    if format == "text":
        kind = "gauge" if kind == "info" else kind
        return f"# HELP {name} {help.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"
    # In OpenMetrics a suffix that belongs to the kind is no part of the name, and a counter without it is none.
    suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
    plain = name.removesuffix(suffix)
    unit_line = f"# UNIT {plain} {unit}\n" if unit and plain.endswith(f"_{unit}") else ""
    type_line = f"# TYPE {plain} {kind if name.endswith(suffix) else 'unknown'}\n"
    return f"{type_line}{unit_line}# HELP {plain} {help.translate(_LABEL_ESCAPES)}\n"


@lru_cache(KEPT_LABELS)
def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels]) + "}"


def number(value: float) -> str:
    """A value as both formats spell it, with all its digits."""
    text = repr(value)
    return _SPECIAL.get(text, text)

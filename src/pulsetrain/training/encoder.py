"""JSON lines from reports."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Callable, Union

Report = tuple[float, Union[dict[str, Any], str]]
"""When it was made, on the monotonic clock, and its fields; or these as they are in a line."""

CORE_FIELDS = (
    "step",
    "epoch",
    "loss",
    "learning_rate",
    "gradient_norm",
    "throughput_samples_per_sec",
    "memory_allocated_mb",
    "memory_reserved_mb",
)
"""In every line about a step, null where nothing is known, so that scripts for the older tools keep working."""

RESERVED_FIELDS = frozenset({"timestamp", "elapsed_seconds", "rank", "event", "nonfinite"})
"""What a line says of itself, and no program may."""

_EXACT = 1e12
_LARGEST = int(sys.float_info.max)


class LineEncoder:
    """JSON lines, by a template for each set of fields: several times faster than `json` for short lines of numbers."""

    def __init__(self, started: float, rank: int) -> None:
        self._started = started
        self._head = '{"timestamp":"%%s.%%03dZ","elapsed_seconds":%%.6f,"rank":%d' % rank
        self._text = self._head + "%s}\n"
        self._templates: dict[tuple[str, ...], tuple[str, str]] = {}
        self._second = -1
        self._second_text = ""

    def lines(self, reports: list[Report], skip: Callable[[str, str], object]) -> bytes:
        """A line for each report; `skip` is called with what cannot become one, and why."""
        to_wall_clock = time.time() - time.monotonic()
        try:
            return "".join([self._line(at, fields, at + to_wall_clock) for at, fields in reports]).encode()
        except Exception as error:  # one bad report does not take the others with it
            if len(reports) > 1:
                return b"".join(self.lines([report], skip) for report in reports)
            skip("report", "A report could not be written: %s: %s" % (type(error).__name__, error))
            return b""

    def _line(self, at: float, fields: dict[str, Any] | str, wall: float) -> str:
        second = int(wall)
        if second != self._second:
            self._second, self._second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        head = (self._second_text, (wall - second) * 1000, at - self._started)
        if isinstance(fields, str):
            return self._text % (*head, fields)
        names = tuple(fields)
        quick, careful = self._templates.get(names) or self._template(names)
        try:
            # Of numbers only, all finite, and so small that twelve digits hold the whole ones.
            if -_EXACT < sum(fields.values()) < _EXACT:
                return quick % (*head, *fields.values())
        except (TypeError, OverflowError):
            pass  # text among them, or an integer that no float can hold
        line = careful % (*head, *map(_json, fields.values()))
        odd = {name: _spelling(value) for name, value in fields.items() if not _is_finite(value)}
        # JSON has no NaN: the field is null, and what it was is beside it.
        return '%s,"nonfinite":%s}\n' % (line[:-2], json.dumps(odd)) if odd else line

    def _template(self, names: tuple[str, ...]) -> tuple[str, str]:
        if len(self._templates) > 1000:  # names made up on the fly must not fill the memory
            self._templates.clear()
        absent = [name for name in CORE_FIELDS if name not in names] if "step" in names else []
        tail = "".join(',"%s":null' % name for name in absent) + "}\n"
        quoted = [json.dumps(name).replace("%", "%%") for name in names]
        quick = "".join(",%s:%%.12g" % name for name in quoted)
        careful = "".join(",%s:%%s" % name for name in quoted)
        self._templates[names] = self._head + quick + tail, self._head + careful + tail
        return self._templates[names]


def _json(value: Any) -> str:
    return json.dumps(value, default=str) if _is_finite(value) else "null"


def _is_finite(value: Any) -> bool:
    """Whether it is a number that a float can hold, or not a number at all."""
    if type(value) is float:
        return value - value == 0.0
    return type(value) is not int or -_LARGEST <= value <= _LARGEST


def _spelling(value: float) -> str:
    if value > 0:
        return "inf"
    return "-inf" if value < 0 else "nan"

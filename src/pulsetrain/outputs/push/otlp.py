"""OTLP metrics over HTTP, as JSON: OpenTelemetry collectors, and the many servers that take what those send.

Names stay as they are elsewhere, and `otel_names.py` adds those of OpenTelemetry. Units are left out, because receivers
add them to names.
"""

import gzip
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from pulsetrain import __version__
from pulsetrain.outputs.points import Labels
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.otel_names import otel_series
from pulsetrain.outputs.push.outlet import PushLink
from pulsetrain.outputs.push.sender import Sender
from pulsetrain.outputs.push.series import Halves, PushSeries, halves
from pulsetrain.outputs.push.target import with_path

log = logging.getLogger(__name__)

HEADERS = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
PATH = "/v1/metrics"
CUMULATIVE = 2
NO_VALUE = 1
"""The flag of a point that says that its series has ended."""
_PARTS = ("_bucket", "_sum", "_count")

_Point = dict[str, Any]


def open_outlet(link: PushLink) -> Sender:
    return Sender(link, OtlpChannel(link.client, with_path(link.target.url, PATH)))


class OtlpChannel:
    """A server that takes OTLP metrics at `url`."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, series: Sequence[PushSeries]) -> None:
        body = gzip.compress(msgspec.json.encode(document([*series, *otel_series(series)])), 1)
        answer = self._client.post(self._url, body, HEADERS)
        if words := _refused_in_part(answer):
            log.warning("%s accepted only some: %s", self._client.host, words)

    def halves(self, series: Sequence[PushSeries]) -> Halves | None:
        """A histogram is one point here: its series stay together."""
        parts = [one for one in series if one.kind == "histogram"]
        others = [one for one in series if one.kind != "histogram"]
        if parts and others:
            return others, parts
        return halves(others) if others else None


def document(series: Iterable[PushSeries]) -> dict[str, Any]:
    """An ExportMetricsServiceRequest."""
    service = {"attributes": _attributes((("service.name", "pulsetrain"), ("service.version", __version__)))}
    metrics = list(_metrics(series))
    scope = {"scope": {"name": "pulsetrain", "version": __version__}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": service, "scopeMetrics": [scope]}] if metrics else []}


def _metrics(series: Iterable[PushSeries]) -> Iterator[dict[str, Any]]:
    points: dict[tuple[str, str], list[_Point]] = defaultdict(list)
    parts: dict[str, list[PushSeries]] = defaultdict(list)
    for one in series:
        if one.kind == "histogram":
            parts[_family(one.name)].append(one)
        else:
            points[one.name, one.kind] += _points(one)
    for (name, kind), found in points.items():
        if kind == "counter":
            rising = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True}
            yield {"name": name, "sum": {"dataPoints": found, **rising}}
        else:
            yield {"name": name, "gauge": {"dataPoints": found}}
    for name, histogram in parts.items():
        yield {
            "name": name,
            "histogram": {"dataPoints": _histogram(histogram), "aggregationTemporality": CUMULATIVE},
        }


def _points(one: PushSeries) -> Iterator[_Point]:
    attributes = _attributes(one.labels)
    for time, value in zip(one.times, one.values, strict=True):
        point = {"attributes": attributes, "timeUnixNano": _nanoseconds(time)}
        yield {**point, "flags": NO_VALUE} if value is None else {**point, "asDouble": float(value)}


def _histogram(parts: Iterable[PushSeries]) -> list[_Point]:
    """The points of a histogram, put together from its series."""
    found: dict[tuple[Labels, int], dict[str, float | None]] = defaultdict(dict)
    for one in parts:
        labels = tuple(pair for pair in one.labels if pair[0] != "le")
        which = dict(one.labels).get("le") or one.name.removeprefix(_family(one.name))
        for time, value in zip(one.times, one.values, strict=True):
            found[labels, time][which] = value
    return [_histogram_point(labels, time, values) for (labels, time), values in found.items()]


def _histogram_point(labels: Labels, time: int, values: dict[str, float | None]) -> _Point:
    point: _Point = {"attributes": _attributes(labels), "timeUnixNano": _nanoseconds(time)}
    total, count = values.pop("_sum", None), values.pop("_count", None)
    bounds = sorted(values, key=float)
    if total is None or count is None:  # with its bounds, or a server would end the sum and the count alone
        limits = [float(bound) for bound in bounds if bound != "+Inf"]
        return {**point, "flags": NO_VALUE, "bucketCounts": ["0"] * (len(limits) + 1), "explicitBounds": limits}
    below = [0.0, *(values[bound] or 0.0 for bound in bounds)]
    each = [round(upper - lower) for lower, upper in pairwise(below)]
    return {
        **point,
        "count": str(round(count)),
        "sum": total,
        "bucketCounts": [str(number) for number in each],
        "explicitBounds": [float(bound) for bound in bounds if bound != "+Inf"],
    }


def _family(name: str) -> str:
    return next(name.removesuffix(part) for part in _PARTS if name.endswith(part))


def _attributes(labels: Labels) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in labels]


def _nanoseconds(milliseconds: int) -> str:
    return f"{milliseconds}000000"  # JSON has no room for such a number: OTLP takes it as text


def _refused_in_part(answer: bytes) -> str:
    """What a server says that took some points and not others."""
    try:
        partial = msgspec.json.decode(answer).get("partialSuccess") or {}
    except (msgspec.DecodeError, AttributeError):
        return ""
    refused = int(partial.get("rejectedDataPoints") or 0)
    return f"{refused} points refused: {partial.get('errorMessage', '')}" if refused else ""

"""VictoriaMetrics' own import: JSON lines, packed with gzip; it takes them faster than anything else."""

import gzip
from collections.abc import Sequence

import msgspec

from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.outlet import PushLink
from pulsetrain.outputs.push.sender import Sender
from pulsetrain.outputs.push.series import Halves, PushSeries, halves

HEADERS = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
PATH = "/api/v1/import"
GZIP_LEVEL = 1

_encoder = msgspec.json.Encoder()


def open_outlet(link: PushLink) -> Sender:
    return Sender(link, VictoriaMetricsChannel(link.client, link.target.url))


class VictoriaMetricsChannel:
    """A server, or the `insert` address of a cluster. JSON has no stale marker: those go by remote write."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url + PATH
        self._markers_url = url + remote_write.PATH

    def send(self, series: Sequence[PushSeries]) -> None:
        values, markers = _parted(series)
        if values or not markers:
            self._client.post(self._url, packed(values), HEADERS)
        if markers:
            self._client.post(self._markers_url, remote_write.packed(markers), remote_write.HEADERS)

    def halves(self, series: Sequence[PushSeries]) -> Halves | None:
        return halves(series)


def packed(series: Sequence[PushSeries]) -> bytes:
    """The body of a request."""
    return compressed(b"".join(line(one) for one in series))


def compressed(body: bytes) -> bytes:
    return gzip.compress(body, GZIP_LEVEL)


def line(one: PushSeries) -> bytes:
    metric = {"__name__": one.name, **dict(one.labels)}
    return _encoder.encode({"metric": metric, "values": one.values, "timestamps": one.times}) + b"\n"


def _parted(series: Sequence[PushSeries]) -> tuple[list[PushSeries], list[PushSeries]]:
    """Samples with values, and stale markers."""
    values, markers = [], []
    for one in series:
        if None not in one.values:
            values.append(one)
            continue
        pairs = list(zip(one.times, one.values, strict=True))
        values += _only(one, [pair for pair in pairs if pair[1] is not None])
        markers += _only(one, [pair for pair in pairs if pair[1] is None])
    return values, markers


def _only(one: PushSeries, pairs: list[tuple[int, float | None]]) -> list[PushSeries]:
    """The series with these samples alone; nothing, when there are none."""
    if not pairs:
        return []
    times, values = zip(*pairs, strict=True)
    return [one._replace(times=list(times), values=list(values))]

"""Prometheus remote write 1.0: a protobuf message of series, packed with snappy.

Prometheus (`--web.enable-remote-write-receiver`), Mimir, Thanos, VictoriaMetrics and Grafana Cloud take it.
The message is small enough to be written by hand:

    message WriteRequest { repeated TimeSeries timeseries = 1; }
    message TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    message Label        { string name = 1; string value = 2; }
    message Sample       { double value = 1; int64 timestamp = 2; }
"""

from collections.abc import Sequence
from functools import lru_cache

import cramjam
import numpy as np
import numpy.typing as npt

from pulsetrain.outputs.points import Labels
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.outlet import PushLink
from pulsetrain.outputs.push.sender import Sender
from pulsetrain.outputs.push.series import Halves, PushSeries, halves
from pulsetrain.outputs.push.target import with_path

STALE_BITS = np.uint64(0x7FF0000000000002)
"""Of the NaN by which Prometheus knows that a series has ended."""
HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
PATH = "/api/v1/write"
SAMPLE_BYTES = 18
"""A sample is always as long: its time is written with six digits of 7 bits, which reach to the year 2109."""


def open_outlet(link: PushLink) -> Sender:
    return Sender(link, RemoteWriteChannel(link.client, with_path(link.target.url, PATH)))


class RemoteWriteChannel:
    """A server that takes remote writes at `url`."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, series: Sequence[PushSeries]) -> None:
        self._client.post(self._url, packed(series), HEADERS)

    def halves(self, series: Sequence[PushSeries]) -> Halves | None:
        return halves(series)


def packed(series: Sequence[PushSeries]) -> bytes:
    """The body of a request."""
    times = np.array([time for one in series for time in one.times], np.uint64)
    values = np.array([value for one in series for value in one.values], np.float64)  # None becomes NaN
    values.view(np.uint64)[np.isnan(values)] = STALE_BITS
    lengths = [len(one.times) for one in series]
    return compressed(message([(one.name, one.labels) for one in series], lengths, samples(times, values)))


def compressed(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def message(keys: Sequence[tuple[str, Labels]], lengths: Sequence[int], encoded: bytes) -> bytes:
    """A WriteRequest. `encoded` are the samples of all series, one after the other, `lengths` how many each has."""
    parts: list[bytes] = []
    at = 0
    for (name, labels), length in zip(keys, lengths, strict=True):
        head, size = _labels(name, labels), length * SAMPLE_BYTES
        parts += (b"\x0a", _varint(len(head) + size), head, encoded[at : at + size])
        at += size
    return b"".join(parts)


def samples(times: npt.NDArray[np.uint64], values: npt.NDArray[np.float64]) -> bytes:
    """Samples as parts of a TimeSeries, each with its tag and length. Times are in milliseconds."""
    rows = np.empty((len(times), SAMPLE_BYTES), np.uint8)
    rows[:, :3] = (0x12, SAMPLE_BYTES - 2, 0x09)
    rows[:, 3:11] = values.astype("<f8", copy=False).view(np.uint8).reshape(-1, 8)
    rows[:, 11] = 0x10
    for digit in range(6):
        rows[:, 12 + digit] = (times >> np.uint64(7 * digit)) & np.uint64(0x7F)
    rows[:, 12:17] |= 0x80  # more digits follow
    return rows.tobytes()


@lru_cache(maxsize=50_000)
def _labels(name: str, labels: Labels) -> bytes:
    """The labels of a series, sorted, with its name among them. They are the same in every batch."""
    return b"".join(
        _field(0x0A, _field(0x0A, key.encode()) + _field(0x12, value.encode()))
        for key, value in sorted((("__name__", name), *labels))
    )


def _field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)

"""Columns as the bodies of requests: JSON lines for VictoriaMetrics, remote write for all others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from pulsetrain.outputs.backfill.staleness import SeriesColumn
from pulsetrain.outputs.push import remote_write, victoriametrics
from pulsetrain.runs.database import Array

_EXACT = float(2**53)
"""Up to here a float holds every whole number."""

_encoder = msgspec.json.Encoder()


class BackfillRequest(NamedTuple):
    """What is posted, packed only when it is sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    pack: Callable[[bytes], bytes]
    samples: int
    """With a value: stale markers do not count."""
    columns: Sequence[SeriesColumn] = ()
    """What it was made from, where parts of it may be taken when it is refused whole."""


class BodyFormat(Protocol):
    """How one kind of server takes columns."""

    samples: int
    """Of one request, about."""

    def requests(self, columns: Sequence[SeriesColumn]) -> Iterator[BackfillRequest]: ...

    def fit(self, column: SeriesColumn) -> SeriesColumn:
        """What of a column the server can hold."""


class RemoteWriteFormat:
    """For Prometheus and all that take its remote write. Requests are small, as these servers are used to."""

    samples = 20_000

    def __init__(self, url: str) -> None:
        self._url = url

    def requests(self, columns: Sequence[SeriesColumn]) -> Iterator[BackfillRequest]:
        parts = [_in_order(column) for column in columns]
        times = np.concatenate([times for times, _ in parts] or [np.empty(0)]).astype(np.uint64)
        values = np.concatenate([values for _, values in parts] or [np.empty(0)])
        keys = [(column.name, column.labels) for column in columns]
        body = remote_write.message(keys, [len(times) for times, _ in parts], remote_write.samples(times, values))
        samples = _count(columns)
        yield BackfillRequest(self._url, remote_write.HEADERS, body, remote_write.compressed, samples, columns)

    def fit(self, column: SeriesColumn) -> SeriesColumn:
        return column


class VictoriaMetricsFormat:
    """For VictoriaMetrics: JSON has no infinity and no stale marker, so that these go by remote write."""

    samples = 200_000

    def __init__(self, url: str) -> None:
        self._url = url + victoriametrics.PATH
        self._remote_write = RemoteWriteFormat(url + remote_write.PATH)

    def requests(self, columns: Sequence[SeriesColumn]) -> Iterator[BackfillRequest]:
        plain, odd = [], []
        for column in columns:
            finite = np.isfinite(column.values)
            if finite.all() and not len(column.ends):
                plain.append(column)
                continue
            if finite.any():
                plain.append(column._replace(times=column.times[finite], values=column.values[finite]))
            if not finite.all() or len(column.ends):
                odd.append(column._replace(times=column.times[~finite], values=column.values[~finite]))
        body = b"".join(_lines(column for column in plain if len(column.values)))
        if body or not odd:
            yield BackfillRequest(self._url, victoriametrics.HEADERS, body, victoriametrics.compressed, _count(plain))
        if odd:
            yield from self._remote_write.requests(odd)

    def fit(self, column: SeriesColumn) -> SeriesColumn:
        """It cannot hold NaN."""
        there = ~np.isnan(column.values)
        if there.all():
            return column
        return column._replace(times=column.times[there], values=column.values[there])


def _lines(columns: Iterator[SeriesColumn]) -> Iterator[bytes]:
    """A JSON line for each column. The fields of a GPU mostly have the same times, which are written once."""
    times, written = None, b""
    for column in columns:
        if column.times is not times:
            times, written = column.times, _encoder.encode(column.times.tolist())
        metric = _encoder.encode({"__name__": column.name, **dict(column.labels)})
        values = _encoder.encode(_shortest(column.values).tolist())
        yield b'{"metric":%b,"values":%b,"timestamps":%b}\n' % (metric, values, written)


def _shortest(values: Array) -> Array:
    """Whole numbers without `.0`: fewer bytes to write, send and read."""
    whole = (np.rint(values) == values).all() and np.abs(values).max() < _EXACT
    return values.astype(np.int64) if whole else values


def _in_order(column: SeriesColumn) -> tuple[Array, Array]:
    """Times and values, with the stale markers in their places."""
    if not len(column.ends):
        return column.times, column.values
    values = np.concatenate([column.values, np.zeros(len(column.ends))])
    values.view(np.uint64)[len(column.values) :] = remote_write.STALE_BITS
    times = np.concatenate([column.times, column.ends])
    order = np.argsort(times, kind="stable")
    return times[order], values[order]


def _count(columns: Sequence[SeriesColumn]) -> int:
    return sum(len(column.values) for column in columns)

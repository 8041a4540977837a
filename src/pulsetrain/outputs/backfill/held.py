"""What a server already has of a run: a push may have brought some of it."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

import msgspec
import numpy as np

from pulsetrain.outputs.backfill.staleness import NOTHING, SeriesColumn
from pulsetrain.outputs.points import Labels, make_labels
from pulsetrain.outputs.push.http import Client, PushError
from pulsetrain.runs.database import Array


class MissingSamples(msgspec.Struct, frozen=True):
    """What a server does not have of some series."""

    newer: list[SeriesColumn]
    """Than all that it has of their series: every server takes them."""
    older: list[SeriesColumn]
    """These only a server that takes samples out of order."""
    there: int
    """Samples that it has."""


class HeldSamples:
    """Asks one server for what it has, over the API of Prometheus."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url

    def missing(self, columns: Sequence[SeriesColumn]) -> MissingSamples:
        """Raises PushError when the server cannot be asked."""
        times = self._times(columns)
        newer, older, there = [], [], 0
        for column in columns:
            held = times.get((column.name, column.labels), NOTHING)
            new = ~np.isin(column.times, held)
            there += int(np.count_nonzero(~new))
            last = held.max() if len(held) else -np.inf
            late, after = new & (column.times < last), new & (column.times > last)
            if late.any():
                older.append(column._replace(times=column.times[late], values=column.values[late], ends=NOTHING))
            ends = column.ends[column.ends > last]
            if after.any() or len(ends):
                newer.append(column._replace(times=column.times[after], values=column.values[after], ends=ends))
        return MissingSamples(newer, older, there)

    def _times(self, columns: Sequence[SeriesColumn]) -> dict[tuple[str, Labels], Array]:
        """The times of what it has of these series, in milliseconds, between their first sample and their last."""
        moments = np.concatenate([column.times for column in columns] or [NOTHING])
        if not len(moments):
            return {}
        first, last = int(moments.min()), int(moments.max())
        found: dict[tuple[str, Labels], Array] = {}
        for selector in dict.fromkeys(map(_selector, columns)):
            asked = {"query": f"{selector}[{last - first + 1000}ms]", "time": f"{last / 1000:.3f}", "nocache": "1"}
            found |= _matrix(self._client.request("GET", f"{self._url}?{urlencode(asked)}"))
        return found


def _selector(column: SeriesColumn) -> str:
    wanted = {"__name__": column.name} | {name: value for name, value in column.labels if name in ("host", "run")}
    return "{" + ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in wanted.items()) + "}"


def _matrix(answer: bytes) -> Mapping[tuple[str, Labels], Array]:
    class Series(msgspec.Struct):
        metric: dict[str, str]
        values: list[tuple[float, str]]

    class Data(msgspec.Struct):
        result: list[Series]

    class Answer(msgspec.Struct):
        data: Data

    def series() -> Iterator[tuple[tuple[str, Labels], Array]]:
        for one in msgspec.json.decode(answer, type=Answer).data.result:
            name = one.metric.pop("__name__", "")
            yield (name, make_labels(one.metric)), np.rint(np.array([time for time, _ in one.values]) * 1000)

    try:
        return dict(series())
    except msgspec.MsgspecError:
        raise PushError("the server gave an unexpected answer to a query.") from None

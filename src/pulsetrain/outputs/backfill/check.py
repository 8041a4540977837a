"""Did it arrive? A server may throw samples away and still answer that all is well: count what it has."""

import re
import time
from collections import Counter
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from pulsetrain.outputs.backfill.send import SentTally, SeriesGroup
from pulsetrain.outputs.push import remote_write
from pulsetrain.outputs.push.http import Client, PushError
from pulsetrain.outputs.push.target import PushTarget, with_path

PATIENCE_SECONDS = 15.0
"""Fresh samples may take a moment to be seen: so long without a new one, and the rest is missing."""
FLUSHED_PATIENCE_SECONDS = 2.0
"""The same for a server that was asked to show all that it has, and did."""
LOOK_SECONDS = 0.5
QUERY = "/api/v1/query"
_QUERY_PATHS = {
    "/api/v1/write": QUERY,  # Prometheus, VictoriaMetrics
    "/api/v1/push": f"/prometheus{QUERY}",  # Mimir
    "/api/prom/push": f"/api/prom{QUERY}",  # Grafana Cloud
}
"""Where a server is asked that takes samples at a path that ends so."""
_IGNORED = re.compile(r'^vm_rows_ignored_total\{.*reason="([^"]+)".*\} (\S+)$', re.MULTILINE)


class ArrivalCheck(NamedTuple):
    """What a server has of what was sent."""

    samples: int
    """No more than were sent, of each name."""
    unchecked: str | None = None
    """Why it could not be asked."""


class _Result(msgspec.Struct):
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Result]


class _Answer(msgspec.Struct):
    """To an instant query."""

    data: _Data


def find(sent: SentTally, target: PushTarget, client: Client) -> ArrivalCheck:
    """Count the samples of each name, host and run, until all are there or no more come."""
    url = query_url(target)
    if url is None:
        return ArrivalCheck(0, f"no query address is known for {target.host}")
    found: Counter[SeriesGroup] = Counter()
    waiting = set(sent.groups)
    patience = FLUSHED_PATIENCE_SECONDS if _flush(target, client) else PATIENCE_SECONDS
    deadline = time.monotonic() + patience
    try:
        while waiting:
            before = found.total()
            for group in sorted(waiting):
                found[group] = min(sent.groups[group], _count(client, url, group, sent))
            waiting = {group for group in waiting if found[group] < sent.groups[group]}
            if found.total() > before:
                deadline = time.monotonic() + patience
            if time.monotonic() > deadline:
                break
            if waiting:
                time.sleep(LOOK_SECONDS)
    except PushError as error:
        return ArrivalCheck(0, error.message.rstrip("."))
    except msgspec.MsgspecError:
        return ArrivalCheck(0, f"{target.host} gave an unexpected answer to a query")
    return ArrivalCheck(found.total())


def query_url(target: PushTarget) -> str | None:
    """Where samples can be asked for; None when that does not follow from where they are sent."""
    if target.kind == "victoriametrics":
        return target.url + QUERY
    url = with_path(target.url, remote_write.PATH)
    for end, path in _QUERY_PATHS.items():
        if url.endswith(end):
            return url.removesuffix(end) + path
    return None


def ignored(target: PushTarget, client: Client) -> Counter[str]:
    """How many rows a VictoriaMetrics has thrown away so far, by its reasons; nothing when it does not say."""
    if target.kind != "victoriametrics":
        return Counter()
    address = urlsplit(target.url)
    try:
        text = client.request("GET", f"{address.scheme}://{address.netloc}/metrics").decode(errors="replace")
    except PushError:
        return Counter()
    return Counter({reason: int(float(rows)) for reason, rows in _IGNORED.findall(text)})


def _flush(target: PushTarget, client: Client) -> bool:
    """Ask a VictoriaMetrics to show at once what it has taken: new series else take it ten seconds."""
    if target.kind != "victoriametrics":
        return False
    try:
        client.request("GET", f"{target.url}/internal/force_flush")
    except PushError:  # a proxy in front of it may not let us
        return False
    return True


def _count(client: Client, url: str, group: SeriesGroup, sent: SentTally) -> int:
    labels = {"__name__": group.name, "host": "", "run": ""} | dict(group.labels)
    selector = ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in labels.items())
    window = sent.last - sent.first + 1000
    asked = {
        "query": f"sum(count_over_time({{{selector}}}[{window}ms]))",
        "time": f"{sent.last / 1000:.3f}",
        "nocache": "1",  # VictoriaMetrics else leaves out the last half minute
    }
    answer = msgspec.json.decode(client.request("GET", f"{url}?{urlencode(asked)}"), type=_Answer)
    return sum(int(float(one.value[1])) for one in answer.data.result)

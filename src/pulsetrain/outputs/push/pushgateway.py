"""A Prometheus Pushgateway: holds the last state of a run for Prometheus to scrape, and knows no times.

States of the past are of no use to it, so nothing is kept while it is away.
"""

import base64
import logging
import time
from collections.abc import Collection, Mapping
from urllib.parse import quote

from pulsetrain.outputs.exposition import CONTENT_TYPES, render
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push.http import Client, PushError
from pulsetrain.outputs.push.patience import Patience
from pulsetrain.outputs.push.target import Target

log = logging.getLogger(__name__)

PROMISE = "It gets the state of the moment when it works."


class Pushgateway:
    """An outlet for the group of one run and host. It is deleted at the end, unless it is to be kept."""

    def __init__(self, target: Target, client: Client, scope: Mapping[str, str]) -> None:
        self._target = target
        self._client = client
        self._url = target.url + group_path(scope)
        self._patience = Patience(target.name, PROMISE)
        self._state: Collection[Family] | None = None

    def start(self) -> None:
        """Nothing: the first state comes with the first reading."""

    def add(self, seconds: float, families: Collection[Family], *, late: bool) -> None:
        self._state = families

    def flush(self) -> None:
        if self._state is None or not self._patience.ready:
            return
        try:
            self._client.request("PUT", self._url, render(self._state, "text"), {"Content-Type": CONTENT_TYPES["text"]})
        except PushError as error:
            self._patience.failed(error)
            return
        self._patience.worked()
        self._state = None

    def finish(self, seconds: float) -> None:
        """Send the last state, or delete the group; try no longer than this."""
        deadline = time.monotonic() + seconds
        while not self._end():
            if time.monotonic() > deadline:
                return
            time.sleep(min(0.5, seconds / 10))

    @property
    def left(self) -> str | None:
        if self._patience.trouble is None:
            return None
        trouble = self._patience.trouble.message.rstrip(".")
        if self._target.keep_group:
            return f"the last state could not be sent ({trouble})"
        return f"the group could not be deleted ({trouble}); later: curl -X DELETE {self._url}"

    def _end(self) -> bool:
        self._patience.hurry()
        if self._target.keep_group:
            self.flush()
            return self._state is None
        try:
            self._client.request("DELETE", self._url)
        except PushError as error:
            self._patience.failed(error)
            return False
        self._patience.worked()
        return True


def group_path(labels: Mapping[str, str]) -> str:
    """`/metrics/job/pulsetrain/run/ID/host/NAME`."""
    return "/metrics/job/pulsetrain" + "".join(_pair(name, labels[name]) for name in ("run", "host") if name in labels)


def _pair(name: str, value: str) -> str:
    """A value that would break the path in two is written in base64."""
    if "/" not in value and value:
        return f"/{name}/{quote(value, safe='')}"
    return f"/{name}@base64/{base64.urlsafe_b64encode(value.encode()).decode() or '='}"

"""A Prometheus Pushgateway: holds the last state of a run for Prometheus to scrape, and knows no times.

What `set_training` calls the training is the job and the run of its group. Prometheus shows a job that was pushed as
`exported_job`.

States of the past are of no use to it, so nothing is kept while it is away.
"""

import base64
import logging
import time
from collections.abc import Collection, Mapping
from urllib.parse import quote

from pulsetrain.outputs.exposition import CONTENT_TYPES, render
from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push.backoff import Backoff
from pulsetrain.outputs.push.http import PushError
from pulsetrain.outputs.push.outlet import PushLink

log = logging.getLogger(__name__)

PROMISE = "It gets the current state once it works again."
JOB = "pulsetrain"
"""Where no training has a name."""
MOST_NAME_LETTERS = 200


def open_outlet(link: PushLink) -> "Pushgateway":
    return Pushgateway(link)


class Pushgateway:
    """An outlet for the group of one training and host. It is deleted when the next begins, unless it is to be kept."""

    def __init__(self, link: PushLink) -> None:
        self._target = link.target
        self._client = link.client
        self._labels = link.labels
        self._training_name = link.training_name
        self._url = self._group_url("")
        self._left_url: str | None = None
        """The group of the training before, until it is deleted."""
        self._backoff = Backoff(link.target.name, PROMISE, link.part)
        self._state: Collection[Family] | None = None

    def start(self) -> None:
        """Nothing: the first state comes with the first reading."""

    def add(self, seconds: float, families: Collection[Family], *, late: bool) -> None:
        self._state = families
        url = self._group_url(self._training_name())
        if url != self._url:
            if not self._target.keep_group:
                self._left_url = self._left_url or self._url
            self._url = url

    def flush(self) -> None:
        if self._state is None or not self._backoff.ready:
            return
        try:
            self._delete_left()
            self._client.request("PUT", self._url, render(self._state, "text"), {"Content-Type": CONTENT_TYPES["text"]})
        except PushError as error:
            self._backoff.failed(error)
            return
        self._backoff.succeeded()
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
        if self._backoff.trouble is None:
            return None
        trouble = self._backoff.trouble.message.rstrip(".")
        if self._target.keep_group:
            return f"the last state could not be sent ({trouble})"
        return f"the group could not be deleted ({trouble}); do it later: curl -X DELETE {self._url}"

    def _end(self) -> bool:
        self._backoff.retry_now()
        if self._target.keep_group:
            self.flush()
            return self._state is None
        try:
            self._delete_left()
            self._client.request("DELETE", self._url)
        except PushError as error:
            self._backoff.failed(error)
            return False
        self._backoff.succeeded()
        return True

    def _delete_left(self) -> None:
        if self._left_url is not None:
            self._client.request("DELETE", self._left_url)
            self._left_url = None

    def _group_url(self, training_name: str) -> str:
        return self._target.url + group_path(self._labels, training_name[:MOST_NAME_LETTERS])


def group_path(labels: Mapping[str, str], training_name: str = "") -> str:
    """`/metrics/job/pulsetrain/run/ID/host/HOST`; of a training with a name, that is both job and run."""
    labels = {**labels, "run": training_name} if training_name else labels
    pairs = {"job": training_name or JOB, **{name: labels[name] for name in ("run", "host") if name in labels}}
    return "/metrics" + "".join(_pair(name, value) for name, value in pairs.items())


def _pair(name: str, value: str) -> str:
    """A value that would break the path in two is written in base64."""
    if "/" not in value and value:
        return f"/{name}/{quote(value, safe='')}"
    return f"/{name}@base64/{base64.urlsafe_b64encode(value.encode()).decode() or '='}"

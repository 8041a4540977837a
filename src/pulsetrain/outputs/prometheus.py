"""The exporter: what Prometheus finds at /metrics.

Snapshots are handed to the server's thread, which alone knows the state. A scrape never touches the hardware, nor a
thread that does: it renders the state, once for each snapshot and format, and every other scrape gets the same bytes.
"""

import gzip
import html
import math
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus

from pulsetrain import __version__, catalog
from pulsetrain.live import HOLD_SECONDS, Live
from pulsetrain.outputs import exposition
from pulsetrain.outputs.exposition import Format
from pulsetrain.outputs.families import Facts, Family, facts_of, families, joined
from pulsetrain.outputs.server import Request, Response, Server, plain
from pulsetrain.outputs.web_config import WebConfig
from pulsetrain.runs.folder import Run
from pulsetrain.snapshot import Snapshot

FRESH_SECONDS = 1.0
"""A rendering is used no longer than this, for it tells how old the data are."""
GZIP_LEVEL = 1
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>pulsetrain</title>
<h1>pulsetrain {version}</h1>
<p>{scope}</p>
<p><a href="/metrics">/metrics</a> for Prometheus, <a href="/healthz">/healthz</a> for probes.</p>
</html>
"""


class Exporter:
    """A consumer of snapshots that serves the present state over HTTP."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        names: Collection[str] = ("native",),
        interval: float = 1.0,
        web: WebConfig | None = None,
    ) -> None:
        """Listens at once, and raises when it cannot. `interval` is the time between snapshots."""
        self._names = names
        self._silent_seconds = HOLD_SECONDS + 3 * interval
        self._scope: Mapping[str, str] = {}
        self._machine = _Part({}, None)
        self._runs: dict[str, _Part] = {}
        self._rendered: dict[tuple[Format, bool], bytes] = {}
        self._rendered_at = 0.0
        self._interval = interval
        self._asked: tuple[Format, bool] | None = None
        self._asked_at = 0.0
        self._expected_at = math.inf
        web = web or WebConfig()
        self._server = Server(address, port, self._answer, tls=web.tls, may_pass=web.may_pass)

    def start(self, scope: Mapping[str, str], facts: Facts | None = None) -> None:
        """Answer from now on. `scope` are the labels of every series: the host, and the run if this is one."""
        self._scope = scope
        self._machine = _Part(scope, facts)
        self._server.start()

    @property
    def url(self) -> str:
        return self._server.url

    def __call__(self, snapshot: Snapshot) -> None:
        self._server.call(self._take, snapshot)

    def follow(self, run: Run, snapshot: Snapshot) -> None:
        """Take what was seen of a run that another process watches on this machine, until the last of it."""
        self._server.call(self._take_of_run, run, snapshot)

    def close(self) -> None:
        self._server.close()

    def _take(self, snapshot: Snapshot) -> None:
        self._machine.take(snapshot)
        self._rendered.clear()
        # Prometheus asks at regular times: what it will ask for before the next snapshot comes is made ready.
        if self._asked and self._expected_at < time.monotonic() + self._interval:
            self._expected_at = math.inf
            self._page(*self._asked)

    def _take_of_run(self, run: Run, snapshot: Snapshot) -> None:
        """It is shown with the next reading of the machine, so that one rendering serves them all."""
        if snapshot.last:
            self._runs.pop(run.id, None)
        else:
            if run.id not in self._runs:
                self._runs[run.id] = _Part({**self._scope, "run": run.id}, facts_of(run))
            self._runs[run.id].take(snapshot)

    def _answer(self, request: Request) -> Response:
        if request.path == "/metrics":
            return self._metrics(request)
        if request.path == "/healthz":
            alive = self._machine.age() < self._silent_seconds
            return plain(HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE)
        if request.path == "/":
            scope = html.escape(", ".join(f"{name} {value}" for name, value in self._scope.items()))
            page = PAGE.format(version=__version__, scope=scope)
            return Response(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")
        return plain(HTTPStatus.NOT_FOUND)

    def _metrics(self, request: Request) -> Response:
        format = exposition.negotiate(request.headers.get("accept", ""))
        zipped = exposition.accepts_gzip(request.headers.get("accept-encoding", ""))
        now = time.monotonic()
        self._asked, self._asked_at, self._expected_at = (format, zipped), now, 2 * now - self._asked_at
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if zipped else {})
        return Response(HTTPStatus.OK, self._page(format, zipped), exposition.CONTENT_TYPES[format], headers)

    def _page(self, format: Format, zipped: bool) -> bytes:
        """The answer to a scrape, from memory where nothing is new."""
        now = time.monotonic()
        if not self._rendered or now - self._rendered_at > FRESH_SECONDS:
            self._rendered.clear()
            self._rendered_at = now
        found = self._rendered.get((format, zipped))
        if found is None:
            found = gzip.compress(self._page(format, False), GZIP_LEVEL) if zipped else self._render(format)
            self._rendered[format, zipped] = found
        return found

    def _render(self, format: Format) -> bytes:
        parts = (self._machine, *self._runs.values())
        return exposition.render(joined(part.families(self._names, self._silent_seconds) for part in parts), format)


class _Part:
    """The state of the machine, or of one run on it."""

    def __init__(self, scope: Mapping[str, str], facts: Facts | None) -> None:
        self._scope = scope
        self._facts = facts
        self._live = Live()
        self._taken = time.monotonic()

    def take(self, snapshot: Snapshot) -> None:
        self._live(snapshot)
        self._taken = time.monotonic()

    def age(self) -> float:
        """Seconds since the last snapshot came."""
        return time.monotonic() - self._taken

    def families(self, names: Collection[str], silent_seconds: float) -> list[Family]:
        """When no snapshot has come for so long, the last one is not the present: its age alone is told."""
        age = self.age()
        found = families(self._live, self._scope, names, facts=self._facts, now=self._live.time + age)
        if age < silent_seconds:
            return found
        return [family for family in found if family.name == catalog.DATA_AGE.name]

"""What Prometheus finds: the pages /metrics, /healthz and /, for whichever HTTP server answers.

A scrape never touches the hardware, nor a thread that does: it renders the state, once for each snapshot and format,
and every other scrape gets the same bytes.
"""

import gzip
import html
import math
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus

from pulsetrain import __version__, catalog
from pulsetrain.live import HOLD_SECONDS, Live
from pulsetrain.outputs import Origin, exposition
from pulsetrain.outputs.exposition import Format
from pulsetrain.outputs.families import Family, RunInfo, families, joined, run_info_of
from pulsetrain.runs.folder import Run
from pulsetrain.serving.server import HttpRequest, HttpResponse, plain
from pulsetrain.snapshot import Snapshot
from pulsetrain.supervise import Supervisor

FRESH_SECONDS = 1.0
"""A rendering is used no longer than this, for it tells how old the data are."""
GZIP_LEVEL = 1
INDEX = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>pulsetrain</title>
<h1>pulsetrain {version}</h1>
<p>{scope}</p>
<p><a href="/metrics">/metrics</a> for Prometheus, <a href="/healthz">/healthz</a> for probes.</p>
</html>
"""


class MetricsPages:
    """The present state as pages. It belongs to the thread of its server, which alone calls it."""

    def __init__(self, names: Collection[str], interval_seconds: float) -> None:
        """`names` are the metric naming schemes; `interval_seconds` lie between two snapshots."""
        self._names = names
        self._interval_seconds = interval_seconds
        self._silent_seconds = HOLD_SECONDS + 3 * interval_seconds
        self._labels: Mapping[str, str] = {}
        self._supervisor = Supervisor()
        self._machine = _Part({}, None)
        self._runs: dict[tuple[str, str | None], _Part] = {}
        self._rendered: dict[tuple[Format, bool], bytes] = {}
        self._rendered_at = 0.0
        self._asked: tuple[Format, bool] | None = None
        self._asked_at = 0.0
        self._expected_at = math.inf

    def begin(self, origin: Origin) -> None:
        """Say whose snapshots will come."""
        self._labels = origin.labels
        self._supervisor = origin.supervisor
        self._machine = _Part(origin.labels, run_info_of(origin.run) if origin.run else None)

    def take(self, snapshot: Snapshot) -> None:
        """The machine's newest snapshot."""
        self._machine.take(snapshot)
        self._rendered.clear()
        # Prometheus asks at regular times: what it will ask for before the next snapshot comes is made ready.
        if self._asked and self._expected_at < time.monotonic() + self._interval_seconds:
            self._expected_at = math.inf
            self._page(*self._asked)

    def take_of_run(self, run: Run, snapshot: Snapshot, host: str | None = None) -> None:
        """What was seen of a run that another process watches, on this machine or on this host, until the last of it.

        It is shown with the next reading of the machine, so that one rendering serves them all.
        """
        key = (run.id, host)
        if snapshot.last:
            self._runs.pop(key, None)
        else:
            if key not in self._runs:
                labels = {**self._labels, **({"host": host} if host else {}), "run": run.id}
                self._runs[key] = _Part(labels, run_info_of(run))
            self._runs[key].take(snapshot)

    def answer(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            return self._metrics(request)
        if request.path == "/healthz":
            return self._health()
        if request.path == "/":
            scope = html.escape(", ".join(f"{name} {value}" for name, value in self._labels.items()))
            page = INDEX.format(version=__version__, scope=scope)
            return HttpResponse(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")
        return plain(HTTPStatus.NOT_FOUND)

    def _health(self) -> HttpResponse:
        """OK as long as readings come and no part of this process is down; what is degraded is named."""
        troubled = self._supervisor.troubled()
        silent = self._machine.age() >= self._silent_seconds
        down = silent or any(part.status == "down" for part in troubled)
        answer = plain(HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.OK)
        lines = [f"no reading for {self._machine.age():.0f} s"] * silent + [str(part) for part in troubled]
        return answer._replace(body=answer.body + "".join(f"{line}\n" for line in lines).encode(errors="replace"))

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        format = exposition.negotiate(request.headers.get("accept", ""))
        zipped = exposition.accepts_gzip(request.headers.get("accept-encoding", ""))
        now = time.monotonic()
        self._asked, self._asked_at, self._expected_at = (format, zipped), now, 2 * now - self._asked_at
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if zipped else {})
        return HttpResponse(HTTPStatus.OK, self._page(format, zipped), exposition.CONTENT_TYPES[format], headers)

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

    def __init__(self, scope: Mapping[str, str], run_info: RunInfo | None) -> None:
        self._scope = scope
        self._run_info = run_info
        self._live = Live()
        self._taken = time.monotonic()

    def take(self, snapshot: Snapshot) -> None:
        self._live(snapshot)
        self._taken = time.monotonic()

    def age(self) -> float:
        """Seconds since the last snapshot came."""
        return time.monotonic() - self._taken

    def families(self, names: Collection[str], silent_seconds: float) -> list[Family]:
        """When no snapshot has come for this long, the last one is out of date: only its age is served."""
        age = self.age()
        found = families(self._live, self._scope, names, run_info=self._run_info, now=self._live.time + age)
        if age < silent_seconds:
            return found
        return [family for family in found if family.name == catalog.DATA_AGE.name]

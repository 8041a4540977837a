"""The exporter: /metrics for Prometheus, on a port of its own."""

import sys
from collections.abc import Collection
from http import HTTPStatus
from pathlib import Path

from pulsetrain.outputs import Origin, Output, OutputOptions
from pulsetrain.outputs.metrics_pages import MetricsPages
from pulsetrain.runs.folder import Run
from pulsetrain.serving import web_config
from pulsetrain.serving.server import HttpRequest, HttpResponse, HttpServer, plain
from pulsetrain.serving.web_config import WebConfig
from pulsetrain.snapshot import Snapshot
from pulsetrain.supervise import Supervisor

SWITCH_SECONDS = 0.0005
"""A thread that computes lets others run after so long: a scrape does not wait for a reading to be worked through."""


def open_output(options: OutputOptions, interval_seconds: float) -> Output:
    """Take the port."""
    sys.setswitchinterval(SWITCH_SECONDS)
    exporter = Exporter(
        options.prometheus_address,
        options.prometheus_port or 0,
        names=options.names,
        interval_seconds=interval_seconds,
        protection=web_config.load(Path(options.web_config)) if options.web_config else None,
    )
    if not options.run_folders:
        return exporter
    from pulsetrain.outputs.agent import Agent

    return Agent(exporter, options.run_folders)


class Exporter:
    """An output that serves the present state over HTTP. Snapshots are handed to the thread of the server."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        names: Collection[str] = ("native",),
        interval_seconds: float = 1.0,
        protection: WebConfig | None = None,
    ) -> None:
        """Listens at once, and raises when it cannot. `interval_seconds` lie between two snapshots."""
        self._pages = MetricsPages(names, interval_seconds)
        self._server = HttpServer(address, port, self._answer, protection)
        self._part = Supervisor().part("metrics-server")

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def notice(self) -> str:
        return f"metrics for Prometheus at {self.url}/metrics"

    def start(self, origin: Origin) -> None:
        """Answer from now on."""
        self._part = origin.supervisor.part("metrics-server")
        self._pages.begin(origin)
        self._server.start()

    def __call__(self, snapshot: Snapshot) -> None:
        self._server.call(self._take, snapshot)

    def follow(self, run: Run, snapshot: Snapshot, host: str | None = None) -> None:
        """Show a run that another process watches, on this machine or on this host, until the last of its snapshots."""
        self._server.call(self._take_of_run, run, snapshot, host)

    def close(self) -> None:
        self._server.close()

    # What the thread of the server does

    def _take(self, snapshot: Snapshot) -> None:
        with self._part.attempt("a reading"):
            self._pages.take(snapshot)

    def _take_of_run(self, run: Run, snapshot: Snapshot, host: str | None) -> None:
        with self._part.attempt(f"a reading of the run {run.id}"):
            self._pages.take_of_run(run, snapshot, host)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        with self._part.attempt("a request"):
            return self._pages.answer(request)
        return plain(HTTPStatus.INTERNAL_SERVER_ERROR)

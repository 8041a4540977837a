"""Real servers on the loopback, started for a test and stopped after it.

They come from Debian: prometheus, prometheus-pushgateway, prometheus-alertmanager, victoria-metrics,
prometheus-node-exporter. Where one is missing, a test is skipped with the reason, and fails when CI=true.
"""

import contextlib
import json
import os
import shutil
import socket
import socketserver
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml
from tests.waiting import eventually


def program(name: str) -> str:
    """The path of a program that a test needs."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is missing")
        pytest.skip(f"needs {name}")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get(url: str, **parameters: str) -> Any:
    """A JSON document."""
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    with urllib.request.urlopen(f"{url}{query}") as response:
        return json.load(response)


@contextmanager
def answering(answer: bytes, endless: bytes = b"", pause_seconds: float = 0.0) -> Iterator[str]:
    """The address of a server that answers every request with the same bytes, and then with others without end."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            request: socket.socket = self.request
            with contextlib.suppress(OSError):  # who asked has gone
                while request.recv(65536):
                    request.sendall(answer)
                    while endless:
                        request.sendall(endless)
                        time.sleep(pause_seconds)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextlib.contextmanager
def hanging_up() -> Iterator[str]:
    """The address of a server that takes every request and closes the connection without a word."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Server:
    """A process that answers over HTTP, within a `with`; stop() and start() make it go away for a while.

    What it keeps, it keeps below `folder`: a test neither sees nor changes what the machine's own servers keep.
    """

    name = ""
    ready = "/-/ready"

    environment: dict[str, str] | None = None
    """Ours, where it is None."""

    def __init__(self, folder: Path, path: str | None = None) -> None:
        """`path` is that of the program, where it is not one of the machine's."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.program = path or program(self.name)
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self) -> Sequence[str]:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program, *self.arguments()],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        assert eventually(self._answers), (self.folder / f"{self.name}.log").read_text()[-2000:]

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with urllib.request.urlopen(self.url + self.ready, timeout=2) as response:
            return bool(response.status == 200)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Prometheus(Server):
    """Takes remote writes, old samples too, and scrapes `targets` every second."""

    name = "prometheus"

    def __init__(
        self,
        folder: Path,
        targets: Sequence[str] = (),
        rules: Sequence[Path] = (),
        alertmanager: str | None = None,
    ) -> None:
        super().__init__(folder)
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "storage": {"tsdb": {"out_of_order_time_window": "10y"}},
            "rule_files": [str(rule) for rule in rules],
            "scrape_configs": [{"job_name": "pulsetrain", "static_configs": [{"targets": list(targets)}]}],
        }
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def arguments(self) -> Sequence[str]:
        return [
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
        ]

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """The series of an instant query."""
        moment = {} if at is None else {"time": str(at)}
        found: list[dict[str, Any]] = get(f"{self.url}/api/v1/query", query=expression, **moment)["data"]["result"]
        return found


class VictoriaMetrics(Server):
    name = "victoria-metrics"
    ready = "/health"

    def __init__(self, folder: Path, user: str = "", password: str = "") -> None:
        super().__init__(folder)
        self._login = [f"-httpAuth.username={user}", f"-httpAuth.password={password}"] if user else []

    def arguments(self) -> Sequence[str]:
        return [
            f"-storageDataPath={self.folder}/victoria",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            "-search.latencyOffset=0s",
            *self._login,
        ]


class Pushgateway(Server):
    """It forgets everything when it is stopped."""

    name = "prometheus-pushgateway"

    def arguments(self) -> Sequence[str]:
        # Debian's has a file of the machine by default, in which others may have left something.
        return [f"--web.listen-address=127.0.0.1:{self.port}", "--persistence.file="]


class Alertmanager(Server):
    name = "prometheus-alertmanager"

    def __init__(self, folder: Path, config: str) -> None:
        super().__init__(folder)
        (folder / "alertmanager.yml").write_text(config)

    def arguments(self) -> Sequence[str]:
        return [
            f"--config.file={self.folder}/alertmanager.yml",
            f"--storage.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]


class NodeExporter(Server):
    name = "prometheus-node-exporter"
    ready = "/"

    def arguments(self) -> Sequence[str]:
        return [f"--web.listen-address=127.0.0.1:{self.port}", f"--collector.textfile.directory={self.folder}"]

"""Real servers on the loopback, started for a test and stopped after it.

They come from Debian: prometheus, prometheus-pushgateway, prometheus-alertmanager, victoria-metrics,
prometheus-node-exporter. Where one is missing, a test is skipped with the reason, and fails when CI=true.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

READY_SECONDS = 30.0


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


def eventually(ask: Callable[[], Any], seconds: float = READY_SECONDS) -> Any:
    """Ask until the answer is true; the last answer when it never is. A server that is not up yet is no answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = ask()
        except (OSError, urllib.error.URLError):
            answer = None
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def get(url: str, **parameters: str) -> Any:
    """A JSON document."""
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    with urllib.request.urlopen(f"{url}{query}", timeout=10) as response:
        return json.load(response)


class Server:
    """A process that answers over HTTP, within a `with`; stop() and start() make it go away for a while."""

    name = ""
    ready = "/-/ready"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._program = program(self.name)
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self) -> Sequence[str]:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, *self.arguments()], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
            )
        assert eventually(self._answers), (self.folder / f"{self.name}.log").read_text()[-2000:]

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(10)
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
    name = "prometheus-pushgateway"

    def arguments(self) -> Sequence[str]:
        return [f"--web.listen-address=127.0.0.1:{self.port}"]


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
        return [f"--web.listen-address=127.0.0.1:{self.port}"]

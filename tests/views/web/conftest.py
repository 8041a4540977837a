"""A site with recorded runs, a server of it, and a browser."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.servers import program

from pulsetrain.runs.folder import Home, Host, RunFolder
from pulsetrain.sources import Options
from pulsetrain.views.live.feeds import LocalFeed
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.web.server import WebServer
from pulsetrain.views.web.site import Site
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.session import Session

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
"""For a browser without a screen, run by root, that asks nobody for anything."""

MakeRun = Callable[..., RunFolder]


def readings(seconds: int = 120, gpus: int = 2, spike: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """A training of so many seconds, a step each; one of them may be a spike of the loss."""
    gpu = [
        {
            "elapsed_seconds": float(second),
            "gpu_index": index,
            "uuid": f"GPU-{index}",
            "name": "NVIDIA H100",
            "up": 1,
            "utilization_percent": 90.0 + index,
            "power_draw_watts": 300.0 + 10 * math.sin(second / 9),
            "memory_used_mb": 2048.0,
        }
        for second in range(seconds)
        for index in range(gpus)
    ]
    training = [
        {
            "elapsed_seconds": second + 0.5,
            "rank": 0,
            "step": second + 1,
            "loss": 50.0 if second == spike else 2.0 / (1 + second / 30),
            "step_seconds": 1.0,
            "data_wait_seconds": 0.2,
            "forward_seconds": 0.3,
            "backward_seconds": 0.4,
            "optimizer_seconds": 0.05,
            "other_seconds": 0.05,
            "samples": 32,
            "throughput_samples_per_sec": 32.0,
            "val_accuracy": second / seconds,
        }
        for second in range(seconds)
    ]
    host = [
        {"elapsed_seconds": float(second), "cpu_ratio": 0.5, "cpu_cores": 8, "disk_read_bytes": 1e6 * second}
        for second in range(seconds)
    ]
    events = [{"elapsed_seconds": 60.0, "kind": "xid", "severity": "critical", "message": "XID 79 on GPU 1"}]
    return {"gpu": gpu, "training": training, "host": host, "events": events}


@pytest.fixture
def runs(tmp_path: Path, make_run: MakeRun) -> Path:
    """Two recorded runs."""
    home = tmp_path / "runs"
    boards = [{"gpu_index": index, "name": "NVIDIA H100"} for index in range(2)]
    hosts = {"vm": Host(gpus=boards, cpu_cores=8)}
    about = {"home": home, "hosts": hosts, "seconds": 120.0, "end": datetime(2026, 11, 16, 12, 2, tzinfo=UTC)}
    first = readings(spike=77)
    first["training"].append({"elapsed_seconds": 119.0, "rank": 0, "phase": "evaluation", "phase_seconds": 20.0})
    config = {"model": {"depth": 12}, "optimizer": "adamw"}
    make_run("20261116-120000-first-0001", name="first", tags={"lr": "0.1"}, config=config, **about, **first)
    make_run("20261116-130000-second-0002", name="second", tags={"lr": "0.2"}, **about, **readings())
    return home


@pytest.fixture
def serve(runs: Path) -> Iterator[Callable[..., WebServer]]:
    """Serve the runs: `serve(token=...)`."""
    servers: list[WebServer] = []

    def start(port: int = 0, *, allow_delete: bool = False, **options: Any) -> WebServer:
        server = WebServer(Site(Home(runs), allow_delete=allow_delete), port=port, **options)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(serve: Callable[..., WebServer]) -> WebServer:
    return serve()


@pytest.fixture
def serve_machine(runs: Path) -> Iterator[WebServer]:
    """The same with two simulated GPUs in view."""
    session = Session(WatchOptions(sources=Options(simulate="2xL4"), interval_seconds=0.2))
    session.open()
    machine = WatchedMachine(LocalFeed(session), local=True)
    server = WebServer(Site(Home(runs), machines=[machine]), port=0)
    machine.start()
    server.start()
    yield server
    server.close()
    session.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, for one module: its driver keeps an event loop running, and others need theirs."""
    chromium = program("chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()

"""What a scrape costs: the agent of a node with eight H100 and four runs, beside Prometheus' own node exporter."""

import asyncio
import gzip
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
from tests.nvml.scenario import Scenario

from benchmarks.processes import ROOT, Machine, cpu_seconds, end, memory_kb, spread
from benchmarks.results import Limit, Report, Result
from pulsetrain.runs.folder import Host, Run, RunFolder, host_name

RUNS, RANKS, STEPS_A_SECOND = 4, 2, 10
PAUSE_SECONDS = 1.1
"""Longer than a tick, so that every scrape finds new readings: nothing comes from memory."""
SHORT_PAUSE_SECONDS = 0.1
"""As when several ask: some find new readings, some the answer of another."""
WINDOW_SECONDS = 20.0
"""A whole number of every cadence of ours."""
WARM_SECONDS = 4.0
AT_ONCE = 200
PEER = "node_exporter"
HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}
"""As Prometheus asks."""


def run(machine: Machine, quick: bool) -> Report:
    from tests.servers import NodeExporter, free_port
    from tests.waiting import eventually

    if shutil.which(NodeExporter.name) is None:
        return Report([], [f"scrape: {NodeExporter.name} is not installed"])
    port = free_port()
    runs = TrainingRuns(machine.folder / "scraped")
    command = [sys.executable, "-m", "pulsetrain", "watch", "--quiet", "--prometheus-port", str(port)]
    scenario = Scenario().gpus(8, "H100").pcie_latency(20)
    environment = machine.environment(scenario) | {"PYTHONPATH": str(ROOT)}
    agent = subprocess.Popen([*command, "--runs", str(runs.folder)], cwd=machine.folder, env=environment)
    try:
        with NodeExporter(machine.folder / "node-exporter") as node_exporter:
            url = f"http://127.0.0.1:{port}"
            assert eventually(lambda: _Client(url).series(b"training_loss") == RUNS * RANKS)
            ours, peer = _Client(url), _Client(node_exporter.url)
            time.sleep(WINDOW_SECONDS / 2)
            return _measure(agent.pid, ours, peer, runs, quick)
    finally:
        end([agent])
        runs.close()


def _measure(pid: int, ours: "_Client", peer: "_Client", runs: "TrainingRuns", quick: bool) -> Report:
    peer_pid = _pid_of_listener(peer)
    cpu: list[float] = []
    peer_cpu: list[float] = []
    seconds: list[float] = []
    peer_seconds: list[float] = []
    first: list[float] = []
    for _ in range(1 if quick else 3):
        long = WINDOW_SECONDS / 2 if quick else WINDOW_SECONDS
        idle = _window(pid, runs, None, PAUSE_SECONDS, long)
        scraped = _window(pid, runs, ours, PAUSE_SECONDS, long)
        often = _window(pid, runs, ours, SHORT_PAUSE_SECONDS, long)
        theirs = _window(peer_pid, runs, peer, PAUSE_SECONDS, long)
        cpu.append((scraped.cpu_seconds - idle.cpu_seconds) / len(scraped.seconds))
        peer_cpu.append(theirs.cpu_seconds / len(theirs.seconds))
        seconds += scraped.seconds + often.seconds
        peer_seconds += theirs.seconds
        first.append(scraped.first)
    series, peer_series = ours.series(), peer.series()
    figures = [1e6 * used / series for used in cpu]
    results = [
        Result("scrape", f"99th percentile of {len(seconds)}", *_beside(seconds, peer_seconds, 0.99), Limit(3.0)),
        Result("scrape", "median", *_beside(seconds, peer_seconds, 0.5)),
        Result("scrape", "first after a pause", 1e3 * min(first), "ms", spread=spread(first)),
        Result(
            *("scrape", "CPU, for a series", min(figures), "us", PEER, 1e6 * min(peer_cpu) / peer_series),
            Limit(1.0, "ratio"),
            spread(figures),
        ),
        Result("scrape", f"of {AT_ONCE} at once, failed", asyncio.run(_at_once(ours)), "", target=Limit(0)),
    ]
    rss = memory_kb(pid)["Rss"] / 1024
    note = f"scrape: {series} series, {len(ours.last) / 1024:.0f} KiB zipped, of an agent with an RSS of {rss:.0f} MB; "
    return Report(results, [f"{note}{peer_series} of {PEER}"])


def _beside(seconds: list[float], peer_seconds: list[float], share: float) -> tuple[float, str, str, float]:
    ours, theirs = (sorted(each)[int(share * len(each))] for each in (seconds, peer_seconds))
    return 1e3 * ours, "ms", PEER, 1e3 * theirs


class _Window(NamedTuple):
    """What a process did while it was scraped at regular times, as Prometheus does."""

    cpu_seconds: float
    seconds: list[float]
    """That each scrape took."""
    first: float
    """The same of one that came after a pause. It is not counted, nor are those of the next few seconds."""


def _window(pid: int, runs: "TrainingRuns", client: "_Client | None", pause: float, long: float) -> _Window:
    def scrapes(until: float) -> Iterator[float]:
        while time.monotonic() < until:
            runs.go_on(pause)
            time.sleep(pause)
            yield client.scrape() if client else 0.0

    first, *_ = scrapes(time.monotonic() + WARM_SECONDS)
    before = cpu_seconds(pid)
    seconds = list(scrapes(time.monotonic() + long))
    return _Window(cpu_seconds(pid) - before, seconds, first)


class _Client:
    """Scrapes as Prometheus does: over one connection, OpenMetrics, zipped."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url).netloc
        self.last = b""
        self._connection = http.client.HTTPConnection(self.place, timeout=10)

    def scrape(self) -> float:
        """Seconds that it took."""
        started = time.perf_counter()
        self._connection.request("GET", "/metrics", headers=HEADERS)
        response = self._connection.getresponse()
        self.last = response.read()
        seconds = time.perf_counter() - started
        assert response.status == 200
        return seconds

    def series(self, name: bytes = b"") -> int:
        """How many there are, of this name or of all."""
        self.scrape()
        lines = gzip.decompress(self.last).splitlines()
        return sum(line.startswith(name) and not line.startswith(b"#") for line in lines)


async def _at_once(client: _Client) -> int:
    host, _, port = client.place.rpartition(":")

    async def scrape() -> bool:
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = [f"{name}: {value}" for name, value in {**HEADERS, "Connection": "close"}.items()]
        writer.write("\r\n".join(["GET /metrics HTTP/1.1", *lines, "", ""]).encode())
        answer = await reader.read()
        writer.close()
        return answer.startswith(b"HTTP/1.1 200 OK\r\n")

    answers = await asyncio.gather(*(scrape() for _ in range(AT_ONCE)), return_exceptions=True)
    return sum(answer is not True for answer in answers)


def _pid_of_listener(client: _Client) -> int:
    port = int(client.place.rpartition(":")[2])
    listening = (c.pid for c in psutil.net_connections("tcp4") if c.status == "LISTEN" and c.laddr.port == port)
    pid: int | None = next(listening, None)
    assert pid is not None
    return pid


class TrainingRuns:
    """Trainings of several ranks, as their folders look to the agent while they go on."""

    def __init__(self, folder: Path, runs: int = RUNS, ranks: int = RANKS) -> None:
        self.folder = folder
        self._started = time.monotonic()
        host = Host(pid=os.getpid(), pid_start=psutil.Process().create_time(), started=self._started)
        self._files = []
        for number in range(runs):
            run = RunFolder(folder / f"run-{number}")
            here = run.host_folder(host_name())
            here.mkdir(parents=True)
            run.save(Run(id=run.path.name, name="resnet50", start=datetime.now(UTC), hosts={host_name(): host}))
            for rank in range(ranks):
                self._files.append((rank, (here / f"training_metrics_{number}.rank{rank}.jsonl").open("w")))
            account = {"energy_joules": {"gpu": 5e5, "cpu": 1e4, "dram": 1e3}, "gpu_seconds": 480.0}
            (here / "account_metrics_0.jsonl").write_text(json.dumps({"elapsed_seconds": 0.0, **account}) + "\n")
        self._steps = count(1)
        self.go_on(1.0)

    def go_on(self, seconds: float) -> None:
        """Report the steps of so many seconds."""
        for _ in range(int(seconds * STEPS_A_SECOND)):
            step = next(self._steps)
            for rank, file in self._files:
                file.write(self._line(rank, step))
        for _, file in self._files:
            file.flush()

    def close(self) -> None:
        for _, file in self._files:
            file.close()

    def _line(self, rank: int, step: int) -> str:
        elapsed = time.monotonic() - self._started
        parts = dict.fromkeys(("data_wait_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds"), 0.025)
        loop = {"loss": 1 / step, "learning_rate": 1e-3, "samples": 32, "throughput_samples_per_sec": 320.0}
        line = {"timestamp": "2026-11-16T12:00:00.000Z", "elapsed_seconds": elapsed, "rank": rank, "step": step}
        return json.dumps({**line, "step_seconds": 0.1, **parts, **loop}) + "\n"

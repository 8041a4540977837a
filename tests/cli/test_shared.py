"""Runs on machines whose GPUs others use too: real processes, and the NVML of tests/nvml, which lists them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.nvml.scenario import Scenario, constant
from tests.waiting import eventually

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]",
    reason="elsewhere pids are believed only of processes that hold a GPU",
)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes, one of which is somebody else's."""
    started = [subprocess.Popen(["sleep", "3600"]) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def lines(home: Path, table: str) -> list[dict[str, Any]]:
    files = home.glob(f"runs/*/*/{table}_metrics_*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def report(pulsetrain: Pulsetrain, *options: str) -> dict[str, Any]:
    done = pulsetrain("report", "last", "--json", *options)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def charged(document: dict[str, Any]) -> list[bool]:
    return [device["charged"] for device in document["energy"]["devices"] if device["device"] == "gpu"]


def test_a_script_without_a_gpu_is_not_charged_for_what_others_do_on_it(
    pulsetrain: Pulsetrain, home: Path, tmp_path: Path, nvml_library: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    scenario = Scenario().gpus(1, "H100").curve("util", 0, constant(79)).process(0, processes[0].pid, 3000)
    nvml = scenario.environment(nvml_library, tmp_path / "scenario")
    done = pulsetrain("run", "--interval", "0.5", "--", "sleep", "2", **nvml)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stderr.splitlines() if line.startswith("0 H100"))
    assert row.rstrip().endswith("(sleep 3600), not charged")
    entry = lines(home, "account")[-1]
    assert "gpu" not in entry["energy_joules"] and "gpu_seconds" not in entry
    assert charged(report(pulsetrain)) == [False]
    assert charged(report(pulsetrain, "--charge", "all")) == [True]


def test_of_several_gpus_a_run_is_charged_for_its_own(
    environment: dict[str, str],
    pulsetrain: Pulsetrain,
    home: Path,
    tmp_path: Path,
    nvml_library: Path,
    processes: list[subprocess.Popen[bytes]],
) -> None:
    other, own = processes
    scenario = Scenario().gpus(2, "H100").process(0, other.pid, 3000).process(1, own.pid, 500)
    nvml = scenario.environment(nvml_library, tmp_path / "scenario")
    command = [sys.executable, "-m", "pulsetrain", "attach", str(own.pid), "--quiet", "--interval", "0.5"]
    with subprocess.Popen(command, env={**environment, **nvml}, cwd=tmp_path) as watcher:
        assert eventually(lambda: any("gpu_index" in line for line in lines(home, "process")))
        watcher.terminate()
    document = report(pulsetrain)
    assert charged(document) == [False, True]
    measured = next(d["total"]["joules"] for d in document["energy"]["devices"] if d.get("gpu_index") == 1)
    entry = lines(home, "account")[-1]
    assert entry["gpu_seconds"] == pytest.approx(entry["elapsed_seconds"], abs=0.01)
    assert entry["energy_joules"]["gpu"] == pytest.approx(measured, rel=0.001)

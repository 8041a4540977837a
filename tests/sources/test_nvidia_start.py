"""A driver that hangs or fails at the start: whatever is asked of pulsetrain is done, and the GPUs join later."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.nvml.scenario import Scenario

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]

FOREVER_MS = 3_600_000
HANGS = {
    "nvmlInit": Scenario().gpus(2, "H100").slow("*", "nvmlInitWithFlags", FOREVER_MS),
    "a device handle": Scenario().gpus(2, "H100").slow(1, "nvmlDeviceGetHandleByIndex_v2", FOREVER_MS),
}
UNTIL_GPUS_ARE_RECORDED = "until ls runs/*/*/gpu_metrics_*.jsonl; do sleep 0.2; done 2>/dev/null"
"""A command that ends when GPUs have joined, however long that takes."""

hangs = pytest.mark.parametrize("scenario", HANGS.values(), ids=HANGS.keys())


def about(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("runs/*/run.json")
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


def of_host(folder: Path) -> dict[str, Any]:
    (host,) = about(folder)["hosts"].values()
    return dict(host)


@hangs
def test_a_command_starts_and_ends_though_the_driver_hangs(
    pulsetrain: Pulsetrain, tmp_path: Path, scenario: Scenario
) -> None:
    done = pulsetrain(scenario, "run", "--dir", "runs", "--", "sh", "-c", "echo started; exit 3")
    assert (done.returncode, done.stdout) == (3, "started\n")
    assert about(tmp_path)["status"] == "failed"
    assert "still opening" in of_host(tmp_path)["unavailable"]["nvidia"]
    (host_lines,) = tmp_path.glob("runs/*/*/host_metrics_*.jsonl")
    assert "cpu_ratio" in host_lines.read_text()


@hangs
def test_the_doctor_says_that_the_driver_does_not_answer(pulsetrain: Pulsetrain, scenario: Scenario) -> None:
    done = pulsetrain(scenario, "doctor", "--json")
    checks = {check["part"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 1
    assert checks["nvidia"]["status"] == "broken"
    assert checks["nvidia"]["detail"].startswith("still opening (no answer for ")
    assert checks["host"]["status"] == "works"


@hangs
def test_a_sample_shows_the_host_and_why_there_are_no_gpus(pulsetrain: Pulsetrain, scenario: Scenario) -> None:
    done = pulsetrain(scenario, "sample")
    assert done.returncode == 0
    assert "no GPU: still opening (no answer for " in done.stdout
    assert "CPU" in done.stdout


def test_watching_begins_and_ends_though_the_driver_hangs(nvml_library: Path, tmp_path: Path) -> None:
    environ = os.environ | HANGS["nvmlInit"].environment(nvml_library, tmp_path / "scenario")
    command = [sys.executable, "-m", "pulsetrain", "watch", "--json"]
    with subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout
        first = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        watching.communicate()
    assert (first["gpus"], watching.returncode) == ([], 0)


def test_gpus_of_a_driver_that_was_slow_to_start_join_the_run(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    scenario = Scenario().gpus(2, "H100").slow("*", "nvmlInitWithFlags", 1500)
    done = pulsetrain(scenario, "run", "--dir", "runs", "-q", "--", "sh", "-c", UNTIL_GPUS_ARE_RECORDED)
    assert done.returncode == 0
    host = of_host(tmp_path)
    assert [gpu["gpu_index"] for gpu in host["gpus"]] == [0, 1]
    assert "nvidia" not in host["unavailable"]


def test_a_driver_that_fails_at_the_start_is_tried_again(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    scenario = Scenario().gpus(2, "H100").init_error(9, 0, 3)
    done = pulsetrain(scenario, "run", "--dir", "runs", "-q", "--", "sh", "-c", UNTIL_GPUS_ARE_RECORDED)
    assert done.returncode == 0
    assert "the NVIDIA driver is not loaded" in done.stderr
    host = of_host(tmp_path)
    assert [gpu["gpu_index"] for gpu in host["gpus"]] == [0, 1]
    assert "nvidia" not in host["unavailable"]
    (events,) = tmp_path.glob("runs/*/*/events.jsonl")
    kinds = [json.loads(line)["kind"] for line in events.read_text().splitlines()]
    assert "source_up" in kinds

"""`pulsetrain replay`, as a user meets it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsetrain.runs.folder import Host, RunFolder

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]
MakeRun = Callable[..., RunFolder]
GPU = {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4", "up": 1, "power_draw_watts": 71.0}


@pytest.fixture
def run(make_run: MakeRun, home: Path) -> RunFolder:
    """Ten seconds of one GPU, with an event in the middle."""
    return make_run(
        home=home / "runs",
        gpu=[{**GPU, "utilization_percent": 10.0 * second} for second in range(10)],
        host=[{"cpu_ratio": 0.5}] * 10,
        events=[{"elapsed_seconds": 5.0, "kind": "xid", "severity": "critical", "message": "XID 79"}],
    )


def test_a_run_is_shown_with_its_own_times_and_says_that_it_is_a_replay(pulsetrain: Pulsetrain, run: RunFolder) -> None:
    done = pulsetrain("replay", "last", "--speed", "1000")
    assert done.returncode == 0, done.stderr
    assert f"vm (replay of {run.path.name}, 1000x)  2026-11-16 12:00:09 UTC" in done.stdout
    assert done.stdout.count("replay of") == 10 and "71 W" in done.stdout
    assert "XID 79" in done.stderr and run.path.name in done.stderr


def test_json_has_a_line_for_each_reading_from_where_it_begins(pulsetrain: Pulsetrain, run: RunFolder) -> None:
    done = pulsetrain("replay", str(run.path), "--speed", "inf", "--from", "7", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["timestamp"][17:19] for line in lines] == ["07", "08", "09"]
    assert [line["gpus"][0]["utilization_percent"] for line in lines] == [70, 80, 90]
    assert lines[0]["hostname"] == "vm"


def test_of_several_hosts_one_is_shown_and_it_is_said_which(
    pulsetrain: Pulsetrain, make_run: MakeRun, home: Path
) -> None:
    hosts = {"a": Host(), "b": Host()}
    for host in hosts:
        make_run(home=home / "runs", host_name=host, host=[{"cpu_ratio": 0.5}], hosts=hosts)
    first = pulsetrain("replay", "--speed", "inf")
    assert first.stdout.startswith("a (replay") and "ran on a, b: showing a" in first.stderr
    second = pulsetrain("replay", "--speed", "inf", "--host", "b")
    assert second.stdout.startswith("b (replay") and second.stderr == ""
    assert "no GPU: none recorded" in second.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--speed", "0"), "speed 0"),
        (("--speed", "-1"), "speed -1"),
        (("--speed", "fast"), "fast"),
        (("--from", "-1"), "-1"),
        (("--from", "100"), "has no records on vm after 100 s."),
        (("--host", "elsewhere"), "It ran on vm"),
    ],
)
def test_wrong_usage_is_a_clear_error_with_code_2(
    pulsetrain: Pulsetrain, run: RunFolder, arguments: tuple[str, ...], text: str
) -> None:
    done = pulsetrain("replay", "last", *arguments)
    assert done.returncode == 2
    assert text in done.stderr and "Traceback" not in done.stderr


def test_ctrl_c_ends_it_well(environment: dict[str, str], run: RunFolder) -> None:
    process = _start(environment, run)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


def test_it_ends_quietly_when_its_reader_goes_away(environment: dict[str, str], run: RunFolder) -> None:
    process = _start(environment, run, "--speed", "10")
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def _start(environment: dict[str, str], run: RunFolder, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pulsetrain", "replay", str(run.path), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

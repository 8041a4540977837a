"""`pulsetrain attach` as a user meets it: processes that already run, watched by another."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.waiting import eventually

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]
PROGRAM = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def program(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process of the user's, which ends when its standard input is closed."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.fixture
def attach(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start `pulsetrain attach`; with --json it has begun when its first line is read."""
    started: list[subprocess.Popen[str]] = []

    def start(pid: int, *arguments: str) -> subprocess.Popen[str]:
        words = ("attach", str(pid), "--simulate", "1xL4", "--interval", "0.2", *arguments)
        process = subprocess.Popen(
            [sys.executable, "-m", "pulsetrain", *words],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def introduction(watcher: subprocess.Popen[str]) -> dict[str, Any]:
    assert watcher.stdout
    line = watcher.stdout.readline()
    assert line, watcher.stderr and watcher.stderr.read()
    about: dict[str, Any] = json.loads(line)
    return about


def load(folder: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(folder, "run.json").read_text())
    return document


def lines(folder: str, table: str) -> list[dict[str, Any]]:
    files = Path(folder).glob(f"*/{table}_metrics_*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_process_is_recorded_until_it_ends(program: subprocess.Popen[str], attach: Start) -> None:
    watcher = attach(program.pid, "--json", "--name", "late", "--tag", "team=vision")
    folder = introduction(watcher)["folder"]
    assert load(folder)["status"] == "running"
    assert eventually(lambda: any("job_processes" in line for line in lines(folder, "host")))
    program.communicate()
    reported, _ = watcher.communicate()
    assert watcher.returncode == 0
    run = load(folder)
    assert (run["status"], run["exit_code"]) == ("finished", None)
    assert (run["name"], run["tags"]) == ("late", {"team": "vision"})
    assert run["command"] == [sys.executable, "-c", PROGRAM]
    assert {line["pid"] for line in lines(folder, "process") if "gpu_index" not in line} == {program.pid}
    assert len(lines(folder, "gpu")) >= 2
    report = json.loads(reported)
    assert report["path"] == folder and (report["run"]["name"], report["run"]["status"]) == ("late", "finished")


def test_the_first_json_line_says_where_the_process_may_report(program: subprocess.Popen[str], attach: Start) -> None:
    """`pulsetrain.init` reads it."""
    watcher = attach(program.pid, "--json", "--quiet")
    about = introduction(watcher)
    assert Path(about["folder"]).name == about["id"]
    training = Path(about["training_folder"])
    assert training.parent == Path(about["folder"])
    assert load(about["folder"])["hosts"][training.name]["started"] == about["started"]
    program.communicate()
    watcher.communicate()
    assert [file.name for file in training.glob("gpu_*")] == [f"gpu_metrics_{about['stamp']}.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watching_and_leaves_the_process_alone(
    program: subprocess.Popen[str], attach: Start, number: signal.Signals
) -> None:
    watcher = attach(program.pid, "--json")
    folder = introduction(watcher)["folder"]
    watcher.send_signal(number)
    reported, said = watcher.communicate()
    assert watcher.returncode == 0, said
    assert load(folder)["status"] == json.loads(reported)["run"]["status"] == "detached"
    assert program.poll() is None


def test_a_watcher_that_init_started_ignores_ctrl_c_and_is_detached_when_stopped_without_a_word(
    program: subprocess.Popen[str], attach: Start
) -> None:
    watcher = attach(program.pid, "--json", "--quiet", "--for-init", "none")
    folder = introduction(watcher)["folder"]
    watcher.send_signal(signal.SIGINT)
    before = len(lines(folder, "gpu"))
    assert eventually(lambda: len(lines(folder, "gpu")) > before + 3)
    watcher.terminate()
    out, said = watcher.communicate()
    assert (watcher.returncode, out, said) == (0, "", "")
    assert load(folder)["status"] == "detached"


def test_what_a_process_used_before_is_not_counted(attach: Start, environment: dict[str, str]) -> None:
    busy = "import time\nwhile time.process_time() < 2: pass\n" + PROGRAM
    with subprocess.Popen(
        [sys.executable, "-c", busy], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        watcher = attach(process.pid, "--json", "--quiet")
        folder = introduction(watcher)["folder"]
        assert eventually(lambda: any("job_cpu_seconds" in line for line in lines(folder, "host")))
        process.communicate()
        watcher.communicate()
    counted = [line["job_cpu_seconds"] for line in lines(folder, "host") if "job_cpu_seconds" in line]
    assert counted[0] == 0 and counted[-1] < 1


def test_a_process_that_nobody_waits_for_counts_as_ended(program: subprocess.Popen[str], attach: Start) -> None:
    watcher = attach(program.pid, "--json", "--quiet")
    folder = introduction(watcher)["folder"]
    os.kill(program.pid, signal.SIGKILL)  # a zombie from here on: its parent, this test, does not ask for it
    out, said = watcher.communicate()
    assert (watcher.returncode, out, said) == (0, "", "")
    assert load(folder)["status"] == "finished"


def test_a_process_that_does_not_exist_is_an_error_and_leaves_no_run(pulsetrain: Pulsetrain, home: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    done = pulsetrain("attach", str(gone.pid))
    assert done.returncode == 2
    assert done.stderr == f"error: there is no process {gone.pid}, or you are not allowed to watch it.\n"
    assert not (home / "runs").exists()


def test_a_port_that_is_taken_is_an_error_and_leaves_no_run(
    program: subprocess.Popen[str], attach: Start, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        watcher = attach(program.pid, "--prometheus-port", str(port))
        _, said = watcher.communicate()
    assert watcher.returncode == 1
    assert f"port {port}" in said and "Traceback" not in said
    assert list((home / "runs").iterdir()) == []


def test_prometheus_sees_the_process_and_its_run(program: subprocess.Popen[str], attach: Start) -> None:
    watcher = attach(program.pid, "--json", "--prometheus-port", "0")
    about = introduction(watcher)
    assert watcher.stderr
    url = watcher.stderr.readline().removeprefix("metrics for Prometheus at ").strip()

    def scraped() -> str:
        with urlopen(url) as answer:
            text: str = answer.read().decode()
        return text

    assert eventually(lambda: f'pid="{program.pid}",run="{about["id"]}"' in scraped())
    assert f'run="{about["id"]}"' in scraped()

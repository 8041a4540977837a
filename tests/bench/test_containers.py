"""Containers as benchmarks, against a real engine."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engine import BUSYBOX, Engine
from tests.waiting import eventually

from pulsetrain.bench.engine import sees_gpu

Bench = Callable[..., "subprocess.CompletedProcess[str]"]
Command = Callable[..., list[str]]
CONTAINERS = Path(__file__).parents[2] / "containers"


def repeats(folder: Path, benchmark: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())["benchmarks"][benchmark]["repeats"]
    return found


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_container_is_measured_and_leaves_its_results_and_nothing_else(
    bench: Bench, engine: Engine, tmp_path: Path
) -> None:
    script = (
        "echo out; echo err >&2; mkdir /results/deep; echo 42 > /results/deep/answer; "
        "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo accuracy: $ACCURACY"
    )
    options = ("--repeat", "2", "--env", "ACCURACY=0.5", "--score", r"accuracy: (\S+)", "--memory", "200m")
    done = bench(BUSYBOX, *options, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert "GPU and Carbon Performance Results" in done.stdout and f"{BUSYBOX}: 2 runs" in done.stdout
    first, second = repeats(tmp_path / "results")
    assert first["image_id"].startswith("sha256:") and first["exit_code"] == 0
    assert {"create", "start"} <= first["stages"].keys()
    assert first["figures"]["score"] == 0.5
    assert 0 < second["figures"]["cpu_seconds"] <= second["figures"]["seconds"] + 0.1
    assert 0 < second["figures"]["memory_bytes"] < 200 * 2**20
    assert (tmp_path / "results/repeat-2/files/deep/answer").read_text() == "42\n"
    assert sorted((tmp_path / "results/repeat-1/output.log").read_text().split()) == ["0.5", "accuracy:", "err", "out"]
    metrics = yaml.safe_load((tmp_path / "results/metrics.yml").read_text())
    assert metrics["benchmark_image"] == BUSYBOX and metrics["benchmark"]["repeat"]["image_id"] == first["image_id"]
    assert engine.containers() == []


def test_a_suite_of_containers_continues_after_one_that_fails_hangs_or_is_missing(
    bench: Bench, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "suite.toml").write_text(
        f"""
        repeat = 2
        [benchmarks.fails]
        image = "{BUSYBOX}"
        network = "none"
        command = ["sh", "-c", "echo oops; exit 3"]
        [benchmarks.hangs]
        image = "{BUSYBOX}"
        network = "none"
        command = ["sh", "-c", "trap 'exit 5' TERM; while true; do sleep 0.1; done"]
        timeout = 1
        [benchmarks.missing]
        image = "localhost:1/nowhere"
        [benchmarks.good]
        image = "{BUSYBOX}"
        network = "none"
        command = ["true"]
        """
    )
    done = bench("suite.toml")
    assert done.returncode == 1, done.stderr
    states = [[(one["status"], one["exit_code"]) for one in repeats(tmp_path / "results", place)] for place in range(4)]
    assert states == [[("failed", 3)], [("timed out", 124)], [("failed", 1)], [("finished", 0), ("finished", 0)]]
    assert (tmp_path / "results/fails/repeat-1/output.log").read_text() == "oops\n"
    assert yaml.safe_load((tmp_path / "results/hangs/metrics.yml").read_text())["status"] == "timed out"
    for text in ("fails", "2/2", "timed out", "missing"):
        assert text in done.stdout
    assert engine.containers() == []


def test_a_flood_of_output_neither_holds_the_container_nor_fills_the_disk(
    bench: Bench, engine: Engine, tmp_path: Path
) -> None:
    done = bench(BUSYBOX, "--", "sh", "-c", "yes | head -c 100000000; echo; echo end")
    assert done.returncode == 0, done.stderr
    (one,) = repeats(tmp_path / "results")
    assert one["output_bytes"] == 100_000_005
    log = (tmp_path / "results/repeat-1/output.log").read_bytes()
    assert len(log) < 20_000_000 and log.endswith(b"end\n") and b"bytes omitted" in log


def test_a_progress_bar_moves_on_the_screen_while_it_runs(
    environment: dict[str, str], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "go").mkdir()
    script = "printf '\\r 10%%'; while [ ! -e /go/on ]; do sleep 0.1; done; printf '\\r 90%%'; sleep 600"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(BUSYBOX, "--mount", f"{tmp_path}/go:/go:ro", "--", "sh", "-c", script),
        cwd=tmp_path,
        env={**environment, "TERM": "xterm", "LINES": "40", "COLUMNS": "120"},
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    shown = bytearray()
    with process:
        while b" 10%" not in shown:
            shown += os.read(ours, 65536)
        (tmp_path / "go/on").touch()
        while not all(text in shown for text in (b" 90%", b"Current GPU Metrics as of", b"so far: power")):
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while os.read(ours, 65536):
                pass
    os.close(ours)
    assert process.returncode == 130
    assert b"run 1 of 1" in shown


def test_ctrl_c_stops_the_container_in_order(
    environment: dict[str, str], command: Command, engine: Engine, tmp_path: Path
) -> None:
    script = "trap 'echo bye > /results/word; echo bye; exit 7' TERM; echo ready; while true; do sleep 0.1; done"
    with started(command(BUSYBOX, "--repeat", "5", "--", "sh", "-c", script), environment, tmp_path) as process:
        assert eventually(lambda: engine.containers() == ["running"])
        assert eventually(lambda: list(tmp_path.glob("home/runs/*/*/host_metrics_*")))
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate()
    assert process.returncode == 130, text
    (one,) = repeats(tmp_path / "results")
    assert one["status"] == "interrupted"
    if (tmp_path / "results/repeat-1/output.log").read_text():  # it had come as far as its trap
        assert (tmp_path / "results/repeat-1/files/word").read_text() == "bye\n"
    assert engine.containers() == []


def test_what_a_killed_benchmark_left_is_removed_by_the_next_and_what_is_in_use_is_not(
    bench: Bench, environment: dict[str, str], command: Command, engine: Engine, tmp_path: Path
) -> None:
    with started(command(BUSYBOX, "--", "sleep", "600"), environment, tmp_path) as process:
        assert eventually(lambda: engine.containers() == ["running"])
        done = bench("--results", "other", BUSYBOX, "--", "true")
        assert "removed" not in done.stderr and engine.containers() == ["running"]
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert engine.containers() == ["running"]
    done = bench("--results", "other", BUSYBOX, "--", "true")
    assert done.returncode == 0 and "which an earlier benchmark left behind" in done.stderr
    assert engine.containers() == []


def test_an_engine_that_stops_meanwhile_leaves_results_marked_so(
    environment: dict[str, str], command: Command, tmp_path: Path
) -> None:
    with (
        Engine() as own,
        started(
            command(BUSYBOX, "--", "sleep", "600"), {**environment, "DOCKER_HOST": own.address}, tmp_path
        ) as process,
    ):
        assert eventually(lambda: own.containers() == ["running"])
        own.stop()
        text, _ = process.communicate()
    assert process.returncode == 1, text
    assert "Traceback" not in text
    (one,) = repeats(tmp_path / "results")
    assert one["status"] == "failed" and one["reason"]
    assert (tmp_path / "results/metrics.yml").exists()


def test_an_image_or_engine_that_is_not_there_is_a_clear_error(bench: Bench, tmp_path: Path) -> None:
    done = bench("localhost:1/nowhere")
    assert done.returncode == 1 and "cannot get the image localhost:1/nowhere" in done.stderr
    done = bench(BUSYBOX, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert (
        done.returncode == 1 and "no container engine responds" in done.stderr and "hint: Start Docker" in done.stderr
    )
    done = bench(BUSYBOX, "--", "no-such-program")
    assert (
        done.returncode == 1 and "no-such-program" in done.stderr and "hint: Give a command to run in it" in done.stderr
    )
    assert not list((tmp_path / "home").glob("runs/*/run.json")) or "Traceback" not in done.stderr


def test_images_are_listed_as_the_older_tool_did(bench: Bench) -> None:
    done = bench("--benchmark_image", "")
    assert done.returncode == 0 and BUSYBOX in done.stdout


def test_gpus_that_the_engine_cannot_pass_are_a_clear_error(
    environment: dict[str, str], nvml_library: Path, tmp_path: Path, engine: Engine
) -> None:
    (tmp_path / "scenario").write_text("gpus 1 H100\n")
    machine = {"LD_LIBRARY_PATH": str(nvml_library), "PULSETRAIN_TEST_NVML": str(tmp_path / "scenario")}
    call = [sys.executable, "-m", "pulsetrain", "bench", "--network", "none", "--carbon-region", "250", "--no-plot"]
    arguments = [BUSYBOX, "--", "sleep", "0.1"]
    done = subprocess.run([*call, *arguments], env=environment | machine, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "it has no NVIDIA runtime" in done.stderr, done.stderr
    done = subprocess.run(
        [*call, "--no-gpus", *arguments], env=environment | machine, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "NVIDIA H100" in done.stdout, done.stderr
    assert engine.containers() == []


def test_a_container_without_a_gpu_is_noticed(engine: Engine) -> None:
    client = engine.client()
    container = client.containers.run(BUSYBOX, ["sleep", "600"], network_mode="none", detach=True)
    try:
        assert sees_gpu(container) is False
        container.exec_run(["sh", "-c", "echo > /dev/nvidia0"])
        assert sees_gpu(container) is True
    finally:
        container.remove(force=True)
        client.close()


@pytest.fixture(scope="session")
def images(engine: Engine) -> list[str]:
    """The two images whose bases can be made here, built from what the repository has."""
    client = engine.client()
    names = ["synthetic_regression", "dummy"]
    try:
        for name in names:
            client.images.build(
                path=str(CONTAINERS / name), tag=f"{name}:latest", buildargs={"BASE": BUSYBOX}, network_mode="none"
            )
    finally:
        client.close()
    return names


def test_the_training_loop_inside_a_container_is_recorded_without_a_change(
    bench: Bench, tmp_path: Path, user_python: str, images: list[str]
) -> None:
    environment = Path(user_python).parents[1].resolve()
    folders = ["/usr", "/lib", "/lib64", "/etc", str(Path(os.path.realpath(user_python)).parents[1]), str(environment)]
    options = [word for folder in dict.fromkeys(folders) for word in ("--mount", f"{folder}:{folder}:ro")]
    options += ["--env", f"PATH={environment}/bin:/bin", "--env", "OMP_NUM_THREADS=1"]
    done = bench(*options, "synthetic_regression", "--", "--steps", "20", "--width", "16", "--batch-size", "8")
    assert done.returncode == 0, done.stderr + (tmp_path / "results/repeat-1/output.log").read_text()
    assert "GPU and Carbon Performance Results" in done.stdout and "synthetic_regression" in done.stdout
    (one,) = repeats(tmp_path / "results")
    (file,) = Path(one["path"]).glob("*/training_metrics_*.jsonl")
    losses = [line["loss"] for line in map(json.loads, file.read_text().splitlines()) if "loss" in line]
    assert len(losses) == 20
    metrics = yaml.safe_load((tmp_path / "results/metrics.yml").read_text())
    assert metrics["summary"]["training"]["steps"] == 20
    assert "step 20/20, loss" in (tmp_path / "results/repeat-1/output.log").read_text()


def test_the_older_command_line_works_as_it_was(environment: dict[str, str], images: list[str], tmp_path: Path) -> None:
    older = "import sys; from pulsetrain.cli.older import iris_gpubench; sys.argv[0] = 'iris-gpubench'; iris_gpubench()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", older, "--benchmark_image", "dummy", "--interval", "5", "--carbon_region", "DE"),
            *("--no_live_monitor", "--no_plot", "--timeout", "1", "--network", "none"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "repeat-1 timed out: stopped after 1 s" in done.stdout, done.stderr
    assert (tmp_path / "results/formatted_metrics.txt").exists() and not (
        tmp_path / "results/metrics_plot.png"
    ).exists()


def test_ctrl_c_ends_the_search_for_an_image_at_once(
    environment: dict[str, str], command: Command, tmp_path: Path
) -> None:
    """An engine that answers no more, as one that pulls for an hour."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        address = {"DOCKER_HOST": f"unix://{tmp_path}/silent.sock"}
        with started(command(BUSYBOX, "--", "true"), {**environment, **address}, tmp_path) as process:
            asked, _ = silent.accept()
            with asked:
                process.send_signal(signal.SIGINT)
                text, _ = process.communicate()
    assert process.returncode == 130, text

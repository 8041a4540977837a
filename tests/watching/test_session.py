"""Watching without a command line, as a notebook, a benchmark or a server does it."""

import io
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.insight.report import make_report
from pulsetrain.outputs import OutputOptions
from pulsetrain.runs.folder import host_name
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources import Options
from pulsetrain.views.summary import summary_lines
from pulsetrain.views.text import Style
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.process import WatchedProcess
from pulsetrain.watching.recording import claim_run, name_of
from pulsetrain.watching.session import Session


@pytest.fixture
def options(tmp_path: Path) -> WatchOptions:
    return WatchOptions(
        sources=Options(simulate="2xL4"),
        interval_seconds=0.1,
        directory=str(tmp_path / "runs"),
        tags={"team": "vision"},
    )


def run_json(options: WatchOptions) -> dict[str, Any]:
    (file,) = Path(options.directory or "").glob("*/run.json")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def test_a_session_records_from_open_to_finish(options: WatchOptions) -> None:
    session = Session(options)
    session.open(claim_run(options, ["python", "train.py"]))
    assert run_json(options)["status"] == "running"
    seen: list[Snapshot] = []
    session.add(seen.append)
    session.start()
    assert eventually(lambda: len(seen) > 2)
    session.stop()
    assert seen[-1].last
    session.finish("failed", 3)
    run = run_json(options)
    assert (run["name"], run["command"], run["tags"]) == ("train", ["python", "train.py"], {"team": "vision"})
    assert (run["status"], run["exit_code"], run["simulated"]) == ("failed", 3, True)
    assert "nvidia" in run["hosts"][host_name()]["unavailable"]
    assert session.recording
    (file,) = session.recording.host_folder.glob("gpu_metrics_*.jsonl")
    assert len(file.read_text().splitlines()) == 2 * len(seen)


def test_what_a_part_left_out_is_in_the_record_and_in_the_summary(options: WatchOptions) -> None:
    session = Session(options)
    session.open(claim_run(options, ["python", "train.py"]))
    seen: list[Snapshot] = []

    def view(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 2:
            raise ValueError("no such column")

    session.add(view)
    session.start()
    trouble = "view: degraded, 1 item skipped: a reading: ValueError: no such column"
    assert eventually(lambda: run_json(options)["hosts"][host_name()].get("troubled") == [trouble])  # at once
    session.stop()
    session.finish()
    assert run_json(options)["hosts"][host_name()]["troubled"] == [trouble]
    assert session.recording
    report = make_report(session.recording.folder)
    assert f"trouble {trouble}" in " ".join(" ".join(summary_lines(report, Style(io.StringIO()))).split())


def made_pipe(path: Path) -> bool:
    """False while run.json is being written."""
    try:
        os.mkfifo(path)
    except FileExistsError:
        return False
    return True


def test_a_disk_that_hangs_holds_up_neither_the_readings_nor_the_end(
    options: WatchOptions, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(options)
    session.open(claim_run(options, ["python", "train.py"]))
    assert session.recording
    pipe = session.recording.folder.path / f".run.json.{os.getpid()}"
    assert eventually(lambda: made_pipe(pipe))  # whoever writes run.json now, waits for somebody who reads
    seen: list[Snapshot] = []
    session.add(seen.append)
    session.start()
    assert eventually(lambda: len(seen) > 5)
    session.stop()
    assert seen[-1].last
    session.finish("failed", 3)
    assert session.recording.hangs
    assert "samples and the end of the run could not be written" in caplog.text
    assert run_json(options)["status"] == "running"
    os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)


def test_without_a_claim_nothing_is_recorded(options: WatchOptions) -> None:
    session = Session(options)
    session.open()
    seen: list[Snapshot] = []
    session.add(seen.append)
    session.start()
    assert eventually(lambda: seen)
    session.stop()
    session.finish()
    assert session.recording is None
    assert not Path(options.directory or "").exists()


def test_what_cannot_be_opened_leaves_no_run(options: WatchOptions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outputs = OutputOptions(prometheus_port=taken.getsockname()[1])
        blocked = WatchOptions(sources=options.sources, directory=options.directory, outputs=outputs)
        session = Session(blocked)
        with pytest.raises(PulsetrainError, match="cannot listen on"):
            session.open(claim_run(blocked))
    assert list(Path(options.directory or "").iterdir()) == []


def test_a_session_says_where_its_metrics_are(options: WatchOptions) -> None:
    session = Session(WatchOptions(sources=options.sources, outputs=OutputOptions(prometheus_port=0)))
    session.open()
    (notice,) = session.notices
    assert notice.startswith("metrics for Prometheus at http://127.0.0.1:")
    session.start()
    session.stop()
    session.finish()


def test_a_process_is_watched_until_it_ends(options: WatchOptions) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        watched = WatchedProcess(process.pid, options)
        seen: list[Snapshot] = []
        watched.session.add(seen.append)
        watching = threading.Thread(target=watched.run, args=(threading.Event(),))
        watching.start()
        assert eventually(lambda: seen)
        assert watching.is_alive()
        process.kill()
        watching.join()
    assert run_json(options)["status"] == "finished"


def test_an_event_ends_the_watching_of_a_process(options: WatchOptions) -> None:
    stop = threading.Event()
    stop.set()
    WatchedProcess(os.getpid(), options).run(stop)
    assert run_json(options)["status"] == "detached"


def test_a_process_that_is_gone_cannot_be_watched(options: WatchOptions) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with pytest.raises(UsageError, match=f"no process {gone.pid}"):
        WatchedProcess(gone.pid, options)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python resnet50.py --lr 0.1", "resnet50"),
        ("torchrun --nproc-per-node 8 train/llama.py", "llama"),
        ("python -m trainer.main --fast", "main"),
        ("bash jobs/night.sh", "night"),
        ("./train --config x.py", "train"),
        ("--flag", "run"),
        ("", "run"),
    ],
)
def test_a_run_is_named_after_what_its_command_runs(command: str, name: str) -> None:
    assert name_of(command.split()) == name


def test_watching_needs_neither_the_command_line_nor_views() -> None:
    code = """
import sys
import pulsetrain.watching.command, pulsetrain.watching.process
print([name for name in sys.modules if name == "click" or name.startswith(("pulsetrain.cli", "pulsetrain.views"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

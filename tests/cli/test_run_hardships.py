"""`pulsetrain run` where things go wrong around it: signals at bad moments, closed streams, odd bytes."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.disks import mounted, small

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]
RUN = (sys.executable, "-m", "pulsetrain", "run", "--simulate", "2xL4")
PATIENCE_SECONDS = 300.0
"""For what must come at some time, however slow the machine is."""


def test_a_run_can_be_read_by_its_owner_alone_unless_it_is_shared(pulsetrain: Pulsetrain, home: Path) -> None:
    pulsetrain("run", "-q", "--simulate", "1xL4", "--name", "mine", "--", "true")
    pulsetrain("run", "-q", "--simulate", "1xL4", "--name", "ours", "--shared", "--", "true")
    modes = {run.name.split("-")[2]: stat.S_IMODE(run.stat().st_mode) for run in (home / "runs").iterdir()}
    assert modes == {"mine": 0o700, "ours": 0o2750}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon full."""
    with small(tmp_path / "disk", "512k") as folder:
        yield folder


def runs(home: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(home.glob("runs/*/run.json"))]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_pulsetrain_that_is_stopped_and_continued_keeps_watching(environment: dict[str, str], home: Path) -> None:
    with subprocess.Popen([*RUN, "-q", "--", "sh", "-c", "sleep 6; exit 3"], env=environment) as process:
        wait_until(lambda: psutil.Process(process.pid).children())
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
            time.sleep(1.2)  # beyond any deadline that it waits with
            process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        assert process.wait(PATIENCE_SECONDS) == 3
    assert [(run["status"], run["exit_code"]) for run in runs(home)] == [("failed", 3)]


def test_ctrl_c_works_before_the_command_has_started(environment: dict[str, str], home: Path, tmp_path: Path) -> None:
    (home / "runs/.job-shared").mkdir(parents=True)  # somebody has begun this job's run, and never says which it is
    started = tmp_path / "started"
    with subprocess.Popen(
        [*RUN, "--run-id", "shared", "--", "touch", str(started)], env=environment, stderr=subprocess.PIPE
    ) as process:
        wait_until(lambda: holds_signals_back(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
    assert not started.exists()
    assert runs(home) == []


def test_ctrl_c_after_the_command_has_ended_leaves_its_exit_code_and_a_run_in_order(
    environment: dict[str, str], home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts, and never answers: pushing the rest takes long
        push = f"victoriametrics:http://127.0.0.1:{deaf.getsockname()[1]}"
        with subprocess.Popen(
            [*RUN, "-q", "--push", push, "--", "sh", "-c", "exit 7"], env=environment, stderr=subprocess.DEVNULL
        ) as process:
            wait_until(lambda: any(run["status"] != "running" for run in runs(home)))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 7
    assert [(run["status"], run["exit_code"]) for run in runs(home)] == [("failed", 7)]


def test_the_exit_code_is_the_commands_own_when_nobody_can_read_our_words(environment: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, "--", "sh", "-c", "exit 5"], env=environment, stderr=full)
    assert done.returncode == 5


def test_with_standard_error_closed_our_words_go_nowhere(environment: dict[str, str]) -> None:
    command = f"exec {' '.join(RUN)} -- sh -c 'echo out; exit 6' 2>&-"
    done = subprocess.run(["sh", "-c", command], env=environment, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (6, "out\n")


def test_bytes_of_any_encoding_in_command_folder_name_and_tags_are_recorded(
    environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9t\xe9"))
    folder.mkdir()
    run = [word.encode() for word in RUN] + [b"--name", b"na\xefve", b"--tag", b"k\xe9y=v\xe9"]
    done = subprocess.run([*run, b"--", b"sh", b"-c", b": \xe9; exit 4"], cwd=folder, env=environment)
    assert done.returncode == 4
    (found,) = runs(home)
    assert found["name"] == "na\ufffdve" and found["command"][-1] == ": \ufffd; exit 4"
    assert found["directory"].endswith("\ufffdt\ufffd") and found["tags"] == {"k\ufffdy": "v\ufffd"}


def test_a_working_directory_that_is_gone_does_not_matter(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec {' '.join(RUN)} -q -- sh -c 'exit 9'"
    assert subprocess.run(["sh", "-c", command], env=environment).returncode == 9


def test_a_secret_in_the_command_or_a_tag_reaches_neither_the_disk_nor_the_summary(
    pulsetrain: Pulsetrain, home: Path
) -> None:
    secret = "hunter2hunter2"
    done = pulsetrain(
        "run", "--simulate", "1xL4", "--tag", f"api_key={secret}", "--",
        "sh", "-c", "sleep 1; exit 0", "--password", secret, f"https://me:{secret}@example.org",
    )  # fmt: skip
    assert done.returncode == 0
    assert secret not in done.stderr
    assert [file for file in home.rglob("*") if file.is_file() and secret in file.read_text()] == []


def holds_signals_back(pid: int) -> bool:
    blocked = re.search(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return blocked is not None and bool(int(blocked[1], 16) & 1 << signal.SIGINT - 1)


def test_a_disk_that_is_full_at_the_first_reading_costs_nothing_once_there_is_room_again(
    environment: dict[str, str], small_disk: Path
) -> None:
    fill = f"until test -d {small_disk}/runs/*/*/; do sleep 0.1; done; cat /dev/zero > {small_disk}/filler; sleep 4"
    script = f"{fill}; rm {small_disk}/filler; sleep 4; exit 3"
    command = [*RUN, "--interval", "0.5", "--", "sh", "-c", script]
    done = subprocess.run(
        command, env={**environment, "PULSETRAIN_HOME": str(small_disk)}, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 3
    (run,) = runs(small_disk)
    assert run["status"] == "failed" and run["lost_samples"] == 0
    assert [gpu["gpu_index"] for host in run["hosts"].values() for gpu in host["gpus"]] == [0, 1]
    (lines,) = small_disk.glob("runs/*/*/gpu_metrics_*.jsonl")
    elapsed = [json.loads(line)["elapsed_seconds"] for line in lines.read_text().splitlines()]
    assert elapsed[0] < 4.0 and elapsed[-1] > 7.0  # from the time in which the disk was full, and after it


def test_a_run_whose_end_finds_a_full_disk_is_not_reported_as_killed(
    environment: dict[str, str], small_disk: Path
) -> None:
    fill = f"until test -d {small_disk}/runs/*/*/; do sleep 0.1; done; cat /dev/zero > {small_disk}/filler; exit 3"
    done = subprocess.run(
        [*RUN, "--", "sh", "-c", fill],
        env={**environment, "PULSETRAIN_HOME": str(small_disk)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 3
    assert "sh ended with exit code 3; no report: " in done.stderr and "died" not in done.stderr


def test_a_disk_that_is_full_at_the_start_is_a_clear_error(
    environment: dict[str, str], small_disk: Path, tmp_path: Path
) -> None:
    subprocess.run(["sh", "-c", f"cat /dev/zero > {small_disk}/filler"], stderr=subprocess.DEVNULL)
    done = subprocess.run(
        [*RUN, "--", "touch", str(tmp_path / "started")],
        env={**environment, "PULSETRAIN_HOME": str(small_disk)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert not (tmp_path / "started").exists()


def test_run_ends_with_the_commands_exit_code_when_the_disk_hangs(environment: dict[str, str], home: Path) -> None:
    hang = 'cd "$PULSETRAIN_HOME"/runs/*/; until mkfifo .run.json.$PPID 2>&-; do :; done'  # who writes it now, waits
    with subprocess.Popen(
        [*RUN, "--", "sh", "-c", f"{hang}; echo out; exit 3"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, words = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (3, "out\n")
    assert "samples and the end of the run could not be written" in words and "no report" in words
    assert [run["status"] for run in runs(home)] == ["running"]


@pytest.fixture
def freezable(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which can be frozen: reading from it works then, and writing waits."""
    if not (shutil.which("mkfs.ext4") and shutil.which("fsfreeze")):
        pytest.skip("needs mkfs.ext4 and fsfreeze")
    image = tmp_path / "image"
    image.write_bytes(bytes(16 * 2**20))
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted(tmp_path / "disk", "-o", "loop", image) as folder:
        yield folder
        subprocess.run(["fsfreeze", "--unfreeze", folder], capture_output=True)


def test_a_frozen_disk_delays_neither_the_command_nor_our_last_words(
    environment: dict[str, str], freezable: Path
) -> None:
    home = freezable / "home"
    ready = 'until cat "$PULSETRAIN_HOME"/runs/*/*/gpu_metrics_*; do sleep 0.1; done >/dev/null 2>&1'
    with subprocess.Popen(
        [*RUN, "--", "sh", "-c", f"{ready}; fsfreeze --freeze {freezable}; echo out; exit 3"],
        env={**environment, "PULSETRAIN_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == "out\n"
        words = iter(process.stderr.readline, "")
        assert any("samples and the end of the run could not be written" in line for line in words)
        assert any("no report" in line for line in words)
        subprocess.run(["fsfreeze", "--unfreeze", freezable], check=True)  # the kernel lets go of its writer only now
        assert process.wait(PATIENCE_SECONDS) == 3
    (lines,) = home.glob("runs/*/*/gpu_metrics_*.jsonl")
    assert all(json.loads(line)["up"] == 1 for line in lines.read_text().splitlines())

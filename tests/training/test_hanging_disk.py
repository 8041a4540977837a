"""A disk that stops answering, by a library in front of the C library: a training does not wait for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

BEGIN = """
import glob, os, sys, time
sys.path.insert(0, sys.argv[1])
from pulsetrain.training import process
import pulsetrain
process.record_into(sys.argv[2], "1", time.monotonic())
pulsetrain.log(step=0)
while not any(map(os.path.getsize, glob.glob(sys.argv[2] + "/*.jsonl"))):
    time.sleep(0.01)
open(os.environ["TEST_HANG"], "w").close()
"""


@pytest.fixture(scope="session")
def hanging_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("hang") / "hanging_disk.so"
    flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")
    subprocess.run(["gcc", *flags, "-o", str(library), str(HERE / "hanging_disk.c"), "-ldl"], check=True)
    return library


def run(library: Path, tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + body, str(HERE.parents[1] / "src"), str(tmp_path / "run")],
        env={**os.environ, "LD_PRELOAD": str(library), "TEST_HANG": str(tmp_path / "hang")},
        capture_output=True,
        text=True,
    )


def test_reports_never_wait_for_the_disk_and_what_is_dropped_is_said(hanging_disk: Path, tmp_path: Path) -> None:
    done = run(hanging_disk, tmp_path, "for i in range(1, 130_000): pulsetrain.log(step=i)\nprint('trained')")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "129999 reports were not written: the disk or a device does not answer" in done.stderr


def test_finish_does_not_wait_for_ever(hanging_disk: Path, tmp_path: Path) -> None:
    body = "pulsetrain.log(step=1)\npulsetrain.finish()\nprint('went on')"
    done = run(hanging_disk, tmp_path, body)
    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert "1 reports were not written" in done.stderr


def test_reports_that_waited_are_written_when_the_disk_answers_again(hanging_disk: Path, tmp_path: Path) -> None:
    body = """
for i in range(1, 60_000): pulsetrain.log(step=i)
from pulsetrain.training.recorder import FLUSH_SECONDS
time.sleep(4 * FLUSH_SECONDS)
os.remove(os.environ["TEST_HANG"])
"""
    done = run(hanging_disk, tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = (tmp_path / "run").glob("training_metrics_*.jsonl")
    assert '"step":59999' in file.read_text() and "reports were dropped" in file.read_text()

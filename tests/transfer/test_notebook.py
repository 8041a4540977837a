"""A notebook that sends its run: executed by `jupyter nbconvert` in a real kernel, which is killed, and once more."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transfer.network import kill_tree
from tests.views.notebook.conftest import jupyter, kernel_environment, write_notebook
from tests.waiting import eventually

from pulsetrain.runs.folder import Home, RunFolder

__all__ = ["jupyter"]

CELLS = (
    """import os, pathlib, time, pulsetrain
run = pulsetrain.init("notebook", to=os.environ["STORE"], quiet=True)
pathlib.Path("kernel").write_text(str(os.getpid()))""",
    """for step in range(1, 100_000):
    pulsetrain.log(step=step, loss=1 / step)
    time.sleep(0.02)
    if pathlib.Path("enough").exists():
        break""",
    "pulsetrain.finish()",
)


def training_lines(run: RunFolder) -> list[bytes]:
    return b"".join(file.read_bytes() for file in run.files("training")).splitlines()


def steps(run: RunFolder) -> list[int]:
    return [line["step"] for line in map(json.loads, training_lines(run)) if line.get("step")]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that end with the test."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        if process.poll() is None:
            kill_tree(process.pid)
            process.communicate()


def test_what_a_notebook_logged_before_its_kernel_was_killed_arrives_and_the_next_kernel_sends_on(
    tmp_path: Path,
    jupyter: str,
    started: list[subprocess.Popen[str]],
) -> None:
    notebook = write_notebook(tmp_path / "notebook.ipynb", *CELLS)
    environment = {**kernel_environment(tmp_path), "STORE": str(tmp_path / "store")}
    there, home = Home(tmp_path / "home/runs"), Home(tmp_path / "at_home")

    def execute() -> subprocess.Popen[str]:
        command = [jupyter, "nbconvert", "--to", "notebook", "--execute", "--output", "done.ipynb", str(notebook)]
        started.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
        return started[-1]

    def fetch() -> None:
        command = [sys.executable, "-m", "pulsetrain", "fetch", str(tmp_path / "store"), "--dir", str(home.path)]
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def has_steps(runs: int) -> bool:
        found = list(there.runs())
        return len(found) == runs and len(steps(found[-1])) > 50

    first = execute()
    assert eventually(lambda: has_steps(1))
    written = training_lines(killed := there.resolve("last"))
    os.kill(int((tmp_path / "kernel").read_text()), signal.SIGKILL)
    assert "died" in first.communicate()[1]
    assert first.returncode != 0
    assert eventually(lambda: killed.load().status != "running")
    assert killed.load().status == "died"

    second = execute()
    assert eventually(lambda: has_steps(2))
    (tmp_path / "enough").touch()
    _, said = second.communicate()
    assert second.returncode == 0, said
    fetch()
    runs = list(home.runs())
    assert [run.load().status for run in runs] == ["died", "finished"]
    for run, recorded in zip(runs, there.runs(), strict=True):
        assert training_lines(run) == training_lines(recorded)
        assert (found := steps(run)) == list(range(1, len(found) + 1))
    assert training_lines(runs[0])[: len(written)] == written

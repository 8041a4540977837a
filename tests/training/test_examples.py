"""The examples, unmodified, under `pulsetrain run`: what a user sees of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pulsetrain.insight.parts import STEP_PARTS

EXAMPLES = Path(__file__).parents[2] / "examples"


class Watched:
    """Runs commands of the user's environment under `pulsetrain run`."""

    def __init__(self, python: Path, home: Path) -> None:
        self.bin = python.parent
        self.home = home
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
        self.environment = {
            **kept,
            "PULSETRAIN_HOME": str(home),
            "PULSETRAIN_SIMULATE": "1xL4",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, program: str, *arguments: str) -> dict[str, Any]:
        """The report of the run, as JSON."""
        done = self._pulsetrain("run", "--", str(self.bin / program), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        report: dict[str, Any] = json.loads(self._pulsetrain("report", "last", "--json").stdout)
        assert report["damaged_lines"] == 0
        assert self.events() == []
        return report

    def events(self) -> list[str]:
        """What could not be seen; nothing, in these programs."""
        last = sorted((self.home / "runs").iterdir())[-1]
        lines = [json.loads(line) for file in last.glob("*/events.jsonl") for line in file.read_text().splitlines()]
        return [line["message"] for line in lines if line["severity"] != "info"]

    def _pulsetrain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulsetrain", *arguments],
            env=self.environment,
            cwd=EXAMPLES.parent,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def watched(user_python: Path, tmp_path: Path) -> Watched:
    return Watched(Path(user_python), tmp_path / "home")


def check(training: dict[str, Any], *, ranks: int = 1) -> None:
    assert training["steps"] > 10
    assert training["loss_last"] < training["loss_first"]
    assert 0 < training["step_seconds_p50"] <= training["step_seconds_p95"]
    assert training["samples_per_second"] > 0
    assert training["ranks"] == ranks
    shares = [training[f"{part}_share"] for part in STEP_PARTS]
    assert sum(share for share in shares if share is not None) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("script", ["mlp.py", "hf_trainer.py", "lightning_mlp.py", "keras_mlp.py"])
def test_an_unmodified_program_shows_its_steps_loss_times_and_throughput(watched: Watched, script: str) -> None:
    check(watched.run("python", str(EXAMPLES / script))["summary"]["training"])


def test_a_slow_data_loader_shows_as_waiting(watched: Watched) -> None:
    training = watched.run("python", str(EXAMPLES / "mlp.py"), "--slow")["summary"]["training"]
    assert training["data_wait_share"] > 0.5


def test_torchrun_records_each_rank(watched: Watched) -> None:
    report = watched.run("torchrun", "--nproc_per_node", "2", str(EXAMPLES / "torchrun_ddp.py"))
    check(report["summary"]["training"], ranks=2)


def test_accelerate_launch_is_seen_too(watched: Watched) -> None:
    check(watched.run("accelerate", "launch", "--cpu", str(EXAMPLES / "mlp.py"))["summary"]["training"])


def test_a_notebook_run_by_nbconvert_is_seen_too(watched: Watched, tmp_path: Path) -> None:
    # A kernel has arguments of its own, which the script must not take for its.
    source = "import sys; sys.argv = ['mlp.py']\n" + (EXAMPLES / "mlp.py").read_text()
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps(notebook))
    arguments = ("nbconvert", "--execute", "--to", "notebook", "--output", "done.ipynb", str(path))
    check(watched.run("jupyter", *arguments)["summary"]["training"])


def test_the_api_example_records_what_it_logs(watched: Watched) -> None:
    training = watched.run("python", str(EXAMPLES / "api.py"))["summary"]["training"]
    assert training["loss_last"] < training["loss_first"]


@pytest.mark.parametrize(
    ("script", "steps", "logged"),
    [
        ("jax_flax.py", 320, "accuracy"),
        ("xgboost_trees.py", 60, "test_rmse"),
        ("lightgbm_trees.py", 60, "test_l2"),
    ],
)
def test_loops_that_no_hook_sees_show_their_steps_loss_and_metrics(
    watched: Watched, script: str, steps: int, logged: str
) -> None:
    report = watched.run("python", str(EXAMPLES / script))
    training = report["summary"]["training"]
    assert training["steps"] == steps
    assert training["loss_last"] < training["loss_first"]
    assert training["step_seconds_p50"] > 0
    assert f'"{logged}"' in json.dumps(report)


def test_workers_of_ray_train_are_ranks(watched: Watched, tmp_path: Path) -> None:
    watched.environment |= {"HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": "/tmp"}
    report = watched.run("python", str(EXAMPLES / "ray_train.py"))
    check(report["summary"]["training"], ranks=2)

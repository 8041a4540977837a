"""Runs in trackers: every value once, in order, with the right step, whoever was away or killed meanwhile."""

import json
import math
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.outputs.trackers.conftest import Command, MlflowServer

from pulsetrain.runs.folder import RunFolder

STEPS = 30
PROGRAM = f"""
import os, time, pulsetrain
for step in range(1, {STEPS + 1}):
    pulsetrain.log(step=step, loss=1 / step, accuracy=step / 100)
    time.sleep(0.1)
while not os.path.exists("server-is-up"):
    time.sleep(0.1)
"""
KILLED = Path(__file__).with_name("killed.py")
PULSETRAIN = [sys.executable, "-m", "pulsetrain"]

ReadBack = Callable[[str, object], Any]


class Mlflow:
    """What a server has of its only run, by its REST API."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/api/2.0/mlflow"
        experiment = self._ask("experiments/get-by-name?experiment_name=vision")["experiment"]
        (self.run,) = self._ask("runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
        self.id = self.run["info"]["run_id"]
        self.tags = {tag["key"]: tag["value"] for tag in self.run["data"]["tags"]}
        self.params = {param["key"]: param["value"] for param in self.run["data"].get("params", [])}
        self.names = {metric["key"] for metric in self.run["data"]["metrics"]}

    def history(self, key: str) -> list[tuple[int, float]]:
        found = self._ask(f"metrics/get-history?run_id={self.id}&metric_key={key}")["metrics"]
        return [(int(metric.get("step", 0)), float(metric["value"])) for metric in found]

    def artifacts(self) -> set[str]:
        found = self._ask(f"artifacts/list?run_id={self.id}&path=pulsetrain")
        return {file["path"] for file in found["files"]}

    def _ask(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(f"{self._url}/{path}", headers={"Content-Type": "application/json"})
        if body:
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request) as response:
            return json.load(response)


def test_a_run_is_in_all_trackers_at_its_end_with_a_server_that_came_late(
    command: Command, read_back: ReadBack, mlflow: MlflowServer, tmp_path: Path
) -> None:
    def start_late() -> None:
        mlflow.start()
        (tmp_path / "server-is-up").touch()

    late = threading.Timer(4.0, start_late)
    late.start()
    places = [f"mlflow:{mlflow.url}", "wandb:vision", f"tensorboard:{tmp_path}/boards", "trackio:vision", "aim:repo"]
    done = command(
        *PULSETRAIN, "run", "--simulate", "1xL4", "--project", "vision", "--tag", "team=blue", "--price", "2 EUR/GPUh",
        *(word for place in places for word in ("--to", place)), "--", sys.executable, "-c", PROGRAM,
    )  # fmt: skip
    late.join()
    try:
        assert done.returncode == 0, done.stderr
        assert "not all of the run was sent" not in done.stderr
        losses: list[tuple[int, Any]] = [(step, pytest.approx(1 / step)) for step in range(1, STEPS + 1)]

        found = Mlflow(mlflow.url)
        assert found.history("loss") == losses
        assert [step for step, _ in found.history("accuracy")] == list(range(1, STEPS + 1))
        assert {"system/gpu_0/utilization_percent", "system/host/cpu_ratio", "run/energy_joules", "run/cost"} <= (
            found.names
        )
        assert found.tags["team"] == "blue"
        assert found.tags["pulsetrain.verdict"]
        assert found.run["info"]["status"] == "FINISHED"
        assert "pulsetrain/report.html" in found.artifacts()
    finally:
        mlflow.stop()

    (board,) = (tmp_path / "boards").iterdir()
    board = read_back("tensorboard", board)
    assert [tuple(point) for point in board["scalars"]["loss"]] == losses
    assert "verdict" in board["texts"]["pulsetrain"]

    offline = read_back("wandb", tmp_path / "wandb")
    assert [(row["step"], row["loss"]) for row in offline["rows"] if "loss" in row] == losses
    assert [row["_step"] for row in offline["rows"]] == list(range(1, len(offline["rows"]) + 1))
    assert offline["summary"]["run/energy_joules"] > 0

    database = read_back("trackio", "vision")
    assert [(row["step"], row["loss"]) for row in database["rows"] if "loss" in row] == losses
    assert any("system/gpu_0/power_draw_watts" in row for row in database["system"])
    assert database["config"]["team"] == "blue"

    repository = read_back("aim", tmp_path / "repo")
    assert [tuple(point) for point in repository["scalars"]["loss"]] == losses
    assert "system/gpu_0/power_draw_watts" in repository["scalars"]
    assert (repository["tags"], bool(repository["config"]["pulsetrain"]["verdict"])) == (["team:blue"], True)


@pytest.fixture
def recorded(make_run: Callable[..., RunFolder], tmp_path: Path) -> RunFolder:
    """Two minutes of a run, with a NaN, a report without a step, and settings."""
    training: list[dict[str, Any]] = [
        {"rank": 0, "step": step, "loss": 1 / step, "step_seconds": 1.0} for step in range(1, 121)
    ]
    training[59] |= {"loss": None, "nonfinite": {"loss": "nan"}}
    training.append({"rank": 0, "val/accuracy": 0.9, "elapsed_seconds": 120.0})
    gpu = [{"gpu_index": 0, "uuid": "GPU-1", "utilization_percent": float(second % 10)} for second in range(120)]
    return make_run(
        home=tmp_path / "home/runs", project="vision", seconds=121.0, config={"lr": 3e-4, "model": {"depth": 12}},
        training=training, gpu=gpu,
    )  # fmt: skip


def export(command: Command, run: RunFolder, to: str, *, killed: bool = False) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, KILLED] if killed else [*PULSETRAIN, "export"]
    done = command(*program, run.path, "--to", to)
    assert done.returncode == (7 if killed else 0), done.stderr
    return done


def test_a_recorded_run_is_in_a_server_of_mlflow_once_though_sending_was_killed(
    command: Command, mlflow: MlflowServer, recorded: RunFolder
) -> None:
    with mlflow:
        export(command, recorded, f"mlflow:{mlflow.url}", killed=True)
        assert len(Mlflow(mlflow.url).history("loss")) == 120
        for _ in range(2):
            export(command, recorded, f"mlflow:{mlflow.url}")
        found = Mlflow(mlflow.url)
        losses = found.history("loss")
        assert [step for step, _ in losses] == list(range(1, 121))
        assert math.isnan(losses[59][1])
        assert found.history("val/accuracy") == [(120, 0.9)]
        assert found.params == {"lr": "0.0003", "model.depth": "12"}
        windows = found.history("system/gpu_0/utilization_percent")
        assert windows == [(10 * window + 9, 4.5) for window in range(12)]
        assert found.history("run/seconds") == [(0, 121.0)]


def test_a_recorded_run_is_on_disk_once_though_sending_was_killed(
    command: Command, read_back: ReadBack, recorded: RunFolder, tmp_path: Path
) -> None:
    for to in (f"tensorboard:{tmp_path}/boards", "wandb:vision", "trackio:vision", f"aim:{tmp_path}/repo"):
        export(command, recorded, to, killed=True)
        export(command, recorded, to)
    shutil.rmtree(recorded.path / ".trackers")  # as on another machine that has fetched the run
    export(command, recorded, f"aim:{tmp_path}/repo")
    steps = list(range(1, 121))

    board = read_back("tensorboard", tmp_path / "boards" / recorded.name)
    assert [step for step, _ in board["scalars"]["loss"]] == steps
    assert board["scalars"]["val/accuracy"] == [[120, pytest.approx(0.9)]]
    assert board["scalars"]["run/seconds"] == [[0, 121.0]]
    assert "lr" in board["texts"]["config"]

    assert len(list((tmp_path / "wandb").rglob("*.wandb"))) == 2  # of the one that was killed, and of the next
    offline = read_back("wandb", tmp_path / "wandb")
    assert [row["step"] for row in offline["rows"] if "loss" in row] == steps
    assert offline["config"]["model"] == {"depth": 12}
    (report,) = (tmp_path / "wandb").rglob("report.html")
    assert "<html" in report.read_text()
    assert [row["elapsed_seconds"] for row in offline["rows"] if "elapsed_seconds" in row] == list(range(9, 120, 10))

    database = read_back("trackio", "vision")
    assert [row["step"] for row in database["rows"] if "loss" in row] == steps
    assert len(database["system"]) == 12
    assert database["config"]["model.depth"] == 12

    repository = read_back("aim", tmp_path / "repo")
    assert [step for step, _ in repository["scalars"]["loss"]] == steps
    assert math.isnan(repository["scalars"]["loss"][59][1])
    begin = recorded.load().start.timestamp()
    assert repository["times"]["loss"][0] == pytest.approx(begin, abs=2)
    assert repository["scalars"]["val/accuracy"] == [[120, 0.9]]
    assert repository["scalars"]["system/gpu_0/utilization_percent"] == [[10 * at + 9, 4.5] for at in range(12)]
    assert repository["scalars"]["run/seconds"] == [[0, 121.0]]
    assert repository["config"]["hparams"] == {"lr": 3e-4, "model": {"depth": 12}}


def test_a_dead_server_is_named_and_what_was_sent_is_kept(command: Command, recorded: RunFolder) -> None:
    done = command(*PULSETRAIN, "export", recorded.path, "--to", "mlflow:http://127.0.0.1:9")
    assert done.returncode == 1
    assert "was sent to mlflow" in done.stderr
    assert "hint" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_an_error_with_the_command_that_installs_it(command: Command, recorded: RunFolder) -> None:
    for words, kind in ((["export", recorded.path, "--to"], "wandb"), (["import"], "mlflow")):
        done = command(*PULSETRAIN, *words, f"{kind}:place", PYTHONPATH="")  # beside a folder that is called wandb
        assert done.returncode == 2
        assert f"hint: pip install 'pulsetrain[{kind}]'" in done.stderr

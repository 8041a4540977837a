"""Old runs of trackers become ordinary runs, once."""

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import Home
from pulsetrain.transfer.trackers.old_run import OldPoint, OldRun, import_run
from pulsetrain.wandb_files import wandb_records

ROOT = Path(__file__).parents[2]
MAKE = """
import mlflow, wandb
from tensorboardX import SummaryWriter

with SummaryWriter("boards/first") as board:
    for step in range(1, 31):
        board.add_scalar("train/loss", 1 / step, step)
        board.add_scalar("val/accuracy", step / 30, step)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("vision")
with mlflow.start_run(run_name="second"):
    mlflow.log_params({"lr": 0.1, "api_key": "sk-0123456789abcdef0123"})
    for step in range(1, 31):
        mlflow.log_metric("loss", 1 / step, step=step)
    mlflow.log_metric("system/cpu", 5.0, step=1)
run = wandb.init(project="vision", id="third", name="third", mode="offline", config={"depth": {"of": 3}})
for step in range(1, 31):
    run.log({"loss": 1 / step if step != 7 else float("nan"), "picture": "text"}, step=step)
run.finish()
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in each of three trackers."""
    python = ROOT / ".venv-trackers/bin/python"
    if not python.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("make .venv-trackers/ready")
        pytest.skip("needs .venv-trackers: make .venv-trackers/ready")
    folder = tmp_path_factory.mktemp("old")
    environment = {**os.environ, "HOME": str(folder), "WANDB_SILENT": "true"}
    subprocess.run([python, "-c", MAKE], cwd=folder, env=environment, check=True, capture_output=True)
    return folder


def imported(place: str, folder: Path, home: Path) -> list[dict[str, Any]]:
    packages = next((ROOT / ".venv-trackers").glob("lib/python*/site-packages"))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pulsetrain", "import", place, "--json"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(packages), "PULSETRAIN_HOME": str(home)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_old_runs_have_reports_and_a_second_import_adds_nothing(old: Path, tmp_path: Path) -> None:
    places = {"first": "tensorboard:boards", "second": "mlflow:sqlite:///mlflow.db", "third": "wandb:wandb"}
    for name, place in places.items():
        (found,) = imported(place, old, tmp_path)
        assert found["outcome"] == "imported"
        report = make_report(Home(tmp_path / "runs").resolve(found["id"]))
        assert report.run.name == name
        assert report.run.status == "finished"
        assert report.summary.training and report.summary.training.loss_last == pytest.approx(1 / 30)
    runs = {run.load().name: run for run in Home(tmp_path / "runs").runs()}
    assert runs["second"].load().config == {"lr": "0.1", "api_key": "***"}
    assert runs["third"].load().config == {"depth": {"of": 3}}
    (lines,) = runs["third"].path.glob("*/training_metrics_*.jsonl")
    steps = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, 31))
    assert steps[6]["loss"] is None and steps[6]["nonfinite"] == {"loss": "nan"}
    assert "api_key" in (tmp_path / "runs" / runs["second"].name / "run.json").read_text()
    assert [found["outcome"] for found in imported("wandb:wandb", old, tmp_path)] == ["unchanged"]
    assert len(list(Home(tmp_path / "runs").runs())) == 3


def test_a_run_that_has_grown_is_brought_up_to_date(tmp_path: Path) -> None:
    points = [OldPoint(1e9 + step, step, {"loss": 1.0, "step": 5.0}) for step in range(5)]
    home = Home(tmp_path)
    folder, outcome = import_run(OldRun("wandb", "x", "run", points[:3]), home)
    assert outcome == "imported"
    assert import_run(OldRun("wandb", "x", "run", points), home)[1] == "updated"
    assert [run.path for run in home.runs()] == [folder.path]
    (lines,) = folder.path.glob("*/*.jsonl")
    assert len(lines.read_text().splitlines()) == 5


def test_what_is_damaged_in_a_strangers_run_is_left_out(tmp_path: Path) -> None:
    points = [
        OldPoint(float("nan"), 1, {"loss": 1.0}),
        OldPoint(1e9, 2**70, {"loss": 1.0}),
        OldPoint(1e9 + 1, None, {"a" * 5000: 1.0, "timestamp": 2.0, "\ud800": 3.0}),
    ]
    folder, _ = import_run(OldRun("wandb", "../../x", "../../evil", points), Home(tmp_path))
    assert folder.path.parent == tmp_path
    (lines,) = folder.path.glob("*/*.jsonl")
    (line,) = map(json.loads, lines.read_text().splitlines())
    assert line["logged_timestamp"] == 2.0
    assert max(map(len, line)) <= 200


def test_records_of_a_wandb_file_end_where_it_is_damaged(tmp_path: Path) -> None:
    def framed(data: bytes, kind: int = 1) -> bytes:
        return struct.pack("<IHB", zlib.crc32(data, zlib.crc32(bytes([kind]))), len(data), kind) + data

    file = tmp_path / "run.wandb"
    head = b":W&B\xe1\xbe\x00"
    file.write_bytes(head + framed(b"one") + framed(b"tw", 2) + framed(b"o", 4) + framed(b"three")[:-1])
    assert list(wandb_records(file)) == [b"one", b"two"]
    file.write_bytes(b"something else")
    assert list(wandb_records(file)) == []

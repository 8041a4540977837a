"""A recorded run in Python."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pulsetrain
from pulsetrain.errors import UsageError
from pulsetrain.runs.description import Code, NotedFile
from pulsetrain.runs.folder import RunFolder


@pytest.fixture
def home(make_run: Callable[..., RunFolder]) -> str:
    lines = [{"rank": 0, "step": 1, "step_seconds": 0.5, "loss": 2.0}, {"rank": 0, "val_loss": 3.0}]
    return str(make_run(training=lines, gpu=[{"gpu_index": 0, "power_draw_watts": 70.0}]).path.parent)


def test_series_are_arrays_of_the_lines_that_have_a_value(home: str) -> None:
    run = pulsetrain.load("last", home)
    assert run.about.name == "test"
    assert run.series("val_loss")["val_loss"].tolist() == [3.0]
    both = run.series("loss", "val_loss")
    assert both["elapsed_seconds"].tolist() == [0.0, 1.0] and np.isnan(both["loss"][1])
    assert run.series("power_draw_watts", table="gpu")["power_draw_watts"].tolist() == [70.0]


def test_what_a_run_was_is_at_hand(make_run: Callable[..., RunFolder]) -> None:
    made = make_run(
        config={"lr": 0.1, "model": {"depth": 12}},
        versions={"torch": "2.13.0"},
        code=Code(commit="3f9c", branch="main", dirty=True, diff="code.diff"),
        files=[NotedFile(path="/data/best.pt", bytes=7, step=40)],
    )
    (made.path / "code.diff").write_text("-old\n+new\n")
    run = pulsetrain.load("last", str(made.path.parent))
    assert (run.config["model"]["depth"], run.versions) == (12, {"torch": "2.13.0"})
    assert run.code and run.code.commit == "3f9c" and (run.path / run.code.diff).read_text() == "-old\n+new\n"
    assert [(file.path, file.step) for file in run.files] == [("/data/best.pt", 40)]


def test_the_report_is_that_of_the_command(home: str) -> None:
    training = pulsetrain.load("test", home).report.summary.training
    assert training is not None and training.steps == 1
    assert pulsetrain.load("test", home).to_dict()["summary"]["training"]["steps"] == 1


def test_what_is_not_there_is_refused_with_what_is(home: str) -> None:
    run = pulsetrain.load("last", home)
    with pytest.raises(UsageError, match="no column 'nonsense'"):
        run.series("nonsense")
    with pytest.raises(UsageError, match="no table 'nonsense'"):
        run.series("loss", table="nonsense")
    with pytest.raises(UsageError, match="no run 'other'"):
        pulsetrain.load("other", home)


def test_pulsetrain_torch_can_be_imported_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class Tensor: ...")
    script = "import pulsetrain.torch; print(pulsetrain.torch.__name__)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "pulsetrain.torch\n", done.stderr

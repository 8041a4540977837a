"""What a program logs to trackers is in the run, once, with its step; so are its settings, and the cost of logging."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Home

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="session")
def trackers() -> Path:
    """The packages of the trackers."""
    found = next((ROOT / ".venv-trackers").glob("lib/python*/site-packages"), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("make .venv-trackers/ready")
        pytest.skip("needs .venv-trackers: make .venv-trackers/ready")
    return found


def test_a_script_that_uses_four_trackers_has_each_value_once(user_python: str, trackers: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ, "TRACKERS": str(trackers), "HOME": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "trackio"),
        "PULSETRAIN_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "WANDB_SILENT": "true",
    }  # fmt: skip
    command = [sys.executable, "-m", "pulsetrain", "run", "--"]
    done = subprocess.run(
        [*command, user_python, str(SCRIPTS / "four_trackers.py")],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = Home(tmp_path / "home/runs").runs()
    database = Database([folder])

    def logged(name: str) -> list[tuple[Any, Any]]:
        found = database.rows(f'SELECT step, "{name}" AS value FROM training WHERE "{name}" IS NOT NULL')
        return [(row["step"], row["value"]) for row in found]

    steps = range(1, 21)
    assert logged("shared") == [(step, pytest.approx(step / 10)) for step in steps]
    for name in ("nested.deep", "both/a", "only_trackio", "only_mlflow", "only_x"):
        assert logged(name) == [(step, step) for step in steps], name
    names = set(database.columns("training"))
    assert not {"system/cpu", "picture"} & names

    run = folder.load()
    assert {"lr": 0.1, "depth": 3, "width": 8, "batch": "16"}.items() <= run.config.items()
    events = database.rows("SELECT tracker, tracker_run FROM events WHERE kind = 'tracker'")
    found = {(event["tracker"], event["tracker_run"]) for event in events}
    assert {("wandb", "abc123"), ("trackio", "mine"), ("tensorboard", "board"), ("tensorboard", "other")} <= found
    assert any(tracker == "mlflow" for tracker, _ in found)
    (ledger,) = database.rows("SELECT sum(logging_seconds) AS seconds FROM training")
    assert ledger["seconds"] > 0
    assert "shared" in done.stderr

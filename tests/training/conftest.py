"""What the tests of the training side share: the user's interpreter, and trainings run in it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.training.trained import Train, Trained

from pulsetrain.training import process

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@pytest.fixture(scope="session")
def train(user_python: str, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Run a script of `scripts/` under `pulsetrain run`, or, with `instrument=False`, with the recorder alone.

    With `errors=True` our hooks may fail in it.
    """

    def train(
        script: str, *arguments: str, instrument: bool = True, errors: bool = False, **environment: str
    ) -> Trained:
        folder = tmp_path_factory.mktemp(script)
        command = [user_python, str(HERE / "scripts" / script), *arguments]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
        kept |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PULSETRAIN_HOME": str(folder / "home"), **environment}
        if instrument:
            command = [sys.executable, "-m", "pulsetrain", "run", "--simulate", "1xL4", "--", *command]
        else:
            kept |= {**process.environment(str(folder / "home"), "1", time.monotonic()), "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        files = sorted((folder / "home").rglob("training_metrics_*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert errors or [line["message"] for line in lines if line.get("event") == "instrumentation_error"] == []
        printed = done.stdout.strip().splitlines()
        return Trained(json.loads(printed[-1]) if printed else None, lines, done.stdout + done.stderr, folder / "home")

    return train

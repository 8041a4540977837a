"""The older tools' classes, called as programs written for them do."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.training.trained import Train

SCRIPT = str(Path(__file__).parent / "scripts/legacy_loop.py")
Line = dict[str, Any]


def run(home: Path, *command: str) -> tuple[Any, list[Line]]:
    """What the script tells, and the lines of its training."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    done = subprocess.run(
        [*command, sys.executable, "-W", "ignore", SCRIPT],
        env={**kept, "PULSETRAIN_HOME": str(home), "PULSETRAIN_SIMULATE": "2xL4"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (file,) = home.rglob("training_metrics_*.jsonl")
    return json.loads(done.stdout.splitlines()[-1]), [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Line]]:
    return run(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Line]]:
    command = (sys.executable, "-m", "pulsetrain", "run", "--quiet", "--")
    return run(tmp_path_factory.mktemp("watched"), *command)


def test_a_monitor_reads_its_gpu_from_its_start_on(alone: tuple[Any, list[Line]]) -> None:
    told, _ = alone
    assert told["before"] == {}
    for reading in (told["during"], told["after"]):
        assert reading["gpu_index"] == 0
        assert {"utilization_percent", "memory_used_mb", "temperature_celsius", "power_draw_watts"} <= set(reading)


def test_the_callback_records_what_each_step_tells(alone: tuple[Any, list[Line]]) -> None:
    steps = [line for line in alone[1] if "step_seconds" in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert [line["loss"] for line in steps] == pytest.approx([1.0, 0.5, 1 / 3])
    last = {name: steps[-1][name] for name in ("epoch", "learning_rate", "gradient_norm", "throughput_samples_per_sec")}
    assert last == {"epoch": 0.3, "learning_rate": 0.01, "gradient_norm": 2.0, "throughput_samples_per_sec": 100.0}


def test_a_monitor_that_started_the_recording_ends_it(alone: tuple[Any, list[Line]]) -> None:
    assert not [line for line in alone[1] if line.get("step") == 4]


def test_under_run_a_monitor_leaves_the_recording_on_and_a_callback_needs_none(watched: tuple[Any, list[Line]]) -> None:
    told, lines = watched
    assert told["during"]["gpu_index"] == 0
    assert [line["loss"] for line in lines if line.get("step") == 4] == [0.1]
    assert [line["loss"] for line in lines if "step_seconds" in line][3:] == [0.5]


def test_no_framework_is_imported_for_them_and_none_is_needed(alone: tuple[Any, list[Line]]) -> None:
    assert alone[0]["imported"] == []
    assert alone[0]["without transformers"] is True


def test_the_trainers_callback_logs_the_gpu_at_its_interval_and_counts_no_step_twice(train: Train) -> None:
    trained = train("legacy_trainer.py")
    assert trained.values("step") == [1, 2, 3, 4, 5, 6]
    assert [message.split(":")[0] for message in trained.told] == ["step 2", "step 4", "step 6"]
    assert "utilization_percent" in trained.told[0]

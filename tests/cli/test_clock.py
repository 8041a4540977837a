"""A wall clock that is set while a command runs: its length and its price are those of the time that passed."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsetrain.views.text import money

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]

SOURCE = Path(__file__).parents[1] / "clock/step.c"
RUN = ("run", "--simulate", "1xL4", "--interval", "0.5", "--price", "3600 USD/h", "--carbon-region", "250", "--")
STEP = """
until grep -qs '"elapsed_seconds":[1-9]' home/runs/*/*/host_metrics_*.jsonl; do sleep 0.1; done
echo %d > clock
until grep -qs '"kind":"clock_jump"' home/runs/*/*/events.jsonl; do sleep 0.1; done
"""
"""A command that sets the clock after a second at least, and ends when pulsetrain has noticed."""


@pytest.fixture(scope="session")
def settable_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library for LD_PRELOAD, which reads how far the clock is off from a file."""
    if shutil.which("gcc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("gcc is missing")
        pytest.skip("needs gcc to compile a clock that can be set")
    library = tmp_path_factory.mktemp("clock") / "step.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, SOURCE], check=True)
    return library


@pytest.fixture(params=[3600, -7200], ids=["set forward", "set back"])
def stepped(request: pytest.FixtureRequest, pulsetrain: Pulsetrain, settable_clock: Path, tmp_path: Path) -> str:
    """What the end of a run says, during which the clock was set."""
    clock = {"LD_PRELOAD": str(settable_clock), "PULSETRAIN_TEST_CLOCK": str(tmp_path / "clock")}
    done = pulsetrain(*RUN, "sh", "-c", STEP % request.param, **clock)
    assert done.returncode == 0, done.stderr
    return done.stderr


def elapsed(home: Path) -> float:
    """The time that passed up to the last reading, by the monotonic clock."""
    (file,) = home.glob("runs/*/*/host_metrics_*.jsonl")
    return float(json.loads(file.read_text().splitlines()[-1])["elapsed_seconds"])


def test_length_and_price_of_a_run_are_those_of_the_time_that_passed(
    stepped: str, pulsetrain: Pulsetrain, home: Path
) -> None:
    (file,) = home.glob("runs/*/run.json")
    run: dict[str, Any] = json.loads(file.read_text())
    passed = elapsed(home)
    assert passed <= run["seconds"] < passed + 1800
    assert run["start"] < run["end"]
    report = json.loads(pulsetrain("report", "last", "--json").stdout)
    assert report["cost"]["amount"] == pytest.approx(run["seconds"])
    assert report["carbon"]["grams"] == pytest.approx(report["energy"]["total"]["joules"] / 3.6e6 * 250)
    assert money(run["seconds"], "USD") in stepped

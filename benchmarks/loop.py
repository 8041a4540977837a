"""What watching an unmodified PyTorch loop adds to its steps: the same program with and without instrumentation.

Needs the interpreter that users train with: `.venv-user`, or PULSETRAIN_TEST_PYTHON.
"""

import json
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.processes import ROOT, Machine, in_rounds, spread
from benchmarks.results import Limit, Report, Result
from pulsetrain.cli import instrument
from pulsetrain.runs.folder import RunFolder

STEPS = {"tiny": 6000, "mlp": 1000, "transformer": 600}
FIVE_MS_US = 5000.0


def run(machine: Machine, quick: bool) -> Report:
    python = Path(os.environ.get("PULSETRAIN_TEST_PYTHON", ROOT / ".venv-user/bin/python"))
    if not python.exists():
        return Report([], [f"loop: no {python}; make .venv-user/ready"])
    results = []
    for model, steps in STEPS.items():

        def measure(name: str, model: str = model, steps: int = steps) -> float:
            count = steps // 3 if quick else steps
            return _step_us(python, machine.folder, model, count, watched=name == "watched")

        times = in_rounds(("plain", "watched"), 3 if quick else 9, measure)
        plain, watched = min(times["plain"]), min(times["watched"])
        noise = spread(times["plain"])
        results.append(Result("loop", f"a step of {model}", watched, "us", "unwatched", plain, None, noise))
        if model == "tiny":  # where noise is smallest in absolute terms
            added = max(0.0, watched - plain)
            results.append(Result("loop", "added to a step", added, "us", target=Limit(15.0)))
            share = 100 * added / FIVE_MS_US
            results.append(Result("loop", "added to a step of 5 ms", share, "%", target=Limit(1.0)))
    return Report(results)


def _step_us(python: Path, folder: Path, model: str, steps: int, *, watched: bool) -> float:
    """Step time in a fresh process: the fastest tenth, which other programs on the machine disturb least."""
    run = RunFolder(folder / f"training-{time.monotonic_ns()}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    if watched:
        environment = instrument.environment(run, datetime.now(UTC), time.monotonic(), True)
    command = [str(python), str(Path(__file__).with_name("loop_script.py")), model, str(steps)]
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, check=True)
    found: float = json.loads(done.stdout)["p10_us"]
    if watched and not run.files("training"):
        raise RuntimeError("the loop was not watched")
    return found

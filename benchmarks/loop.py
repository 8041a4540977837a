"""What watching an unmodified PyTorch loop adds to its steps: the same program with and without instrumentation.

Each part ends after so many rounds, or when its time is up: all of it takes about eight minutes, `--quick` about one.
Needs the interpreter that users train with: `.venv-user`, or PULSETRAIN_TEST_PYTHON.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from benchmarks.processes import ROOT, Failed, Machine
from benchmarks.results import Limit, Report, Result
from pulsetrain.runs.folder import RunFolder
from pulsetrain.training import process
from pulsetrain.watching import instrument

R = TypeVar("R")
STEPS = {"1 ms": 2000, "10 ms": 300, "transformer": 500}
QUICK_MODELS = ("1 ms", "10 ms")


class Bound(NamedTuple):
    """How long one part of the benchmark goes on."""

    least: int
    """Rounds that are run whatever they take."""
    most: int
    seconds: float
    """No further round begins after so long."""


PARTS_BOUND, QUICK_PARTS_BOUND = Bound(2, 5, 60.0), Bound(1, 1, 0.0)
BOUND, QUICK_BOUND = Bound(3, 15, 130.0), Bound(1, 2, 12.0)
"""For each model."""
SWITCHED_PAIRS, QUICK_SWITCHED_PAIRS, SWITCHED_STEPS = 60, 8, 300
"""How often the hooks are switched on and off within a process, and for how many timed steps: over a quarter of a
second, in which our threads do their share at least once."""
MOST_US, MOST_PERCENT = 15.0, 1.5
"""Added to a step in the mean; the share is that of a step of about 1 ms."""


class Cost(NamedTuple):
    """Of one step, in the mean of a process: of all its threads."""

    wall_us: float
    cpu_us: float


class Parts(NamedTuple):
    """CPU time of our own code for one step."""

    hooks_us: float
    """On the training thread, with warm caches."""
    cold_hooks_us: float
    """The same with cold ones."""
    threads_us: float
    """Of our threads, later."""


class Round(NamedTuple):
    """Three processes, one after the other."""

    plain: Cost
    watched: Cost
    again: Cost
    """Unwatched once more: what it differs from the first is what the machine adds by itself."""


def run(machine: Machine, quick: bool) -> Report:
    python = Path(os.environ.get("PULSETRAIN_TEST_PYTHON", ROOT / ".venv-user/bin/python"))
    if not python.exists():
        return Report([], [f"loop: no {python}; make .venv-user/ready"])
    results = _parts_results(
        rounds_within(lambda: _parts(python, machine), QUICK_PARTS_BOUND if quick else PARTS_BOUND)
    )
    results += _switched_results(**_switched(python, machine, QUICK_SWITCHED_PAIRS if quick else SWITCHED_PAIRS))
    notes = []
    for model, steps in STEPS.items():
        if quick and model not in QUICK_MODELS:
            continue
        count = steps // 4 if quick else steps
        try:
            rounds = rounds_within(partial(_round, python, machine, model, count), QUICK_BOUND if quick else BOUND)
        except subprocess.TimeoutExpired as error:  # what the others gave is kept
            reason = f"no answer in {error.timeout:g} s"
            results.append(Result("loop", f"{model}: mean of a step", None, "us", failure=reason))
            continue
        results += _results(model, rounds)
        notes.append(f"loop: {model}: {len(rounds)} rounds of {count} steps")
    return Report(results, notes)


def rounds_within(measure: Callable[[], R], bound: Bound, clock: Callable[[], float] = time.monotonic) -> list[R]:
    """What each round gave."""
    until, found = clock() + bound.seconds, list[R]()
    while len(found) < bound.least or (len(found) < bound.most and clock() < until):
        found.append(measure())
    return found


def _round(python: Path, machine: Machine, model: str, steps: int) -> Round:
    return Round(*(_cost(python, machine, model, steps, watched=watched) for watched in (False, True, False)))


def _parts_results(rounds: list[Parts]) -> list[Result]:
    """The lowest of the rounds: other programs on the machine can only add to CPU time."""
    hooks, cold, threads = (min(figures) for figures in zip(*rounds, strict=True))
    return [
        Result("loop", "our code in a step: CPU of hooks", hooks, "us"),
        Result("loop", "our code in a step: hooks with cold caches", cold, "us"),
        Result("loop", "our code in a step: CPU of threads", threads, "us"),
        Result("loop", "our code in a step: both", hooks + threads, "us", target=Limit(MOST_US)),
    ]


def _results(model: str, rounds: list[Round]) -> list[Result]:
    """The median over the rounds: what a busy moment does to one of them does not count."""
    found = []
    for what, cost in (("mean", _wall_us), ("CPU", _cpu_us)):
        plain = median((cost(one.plain) + cost(one.again)) / 2 for one in rounds)
        added = median(cost(one.watched) - (cost(one.plain) + cost(one.again)) / 2 for one in rounds)
        noise = median(abs(cost(one.again) - cost(one.plain)) for one in rounds)
        name = f"{model}: {what} of a step"
        found.append(Result("loop", name, plain + added, "us", "unwatched", plain))
        found.append(Result("loop", f"{name}, added", added, "us", "two unwatched apart", noise, _limit(model)))
        if model == "1 ms":
            share = Result("loop", f"{name}, added share", 100 * added / plain, "%", target=Limit(MOST_PERCENT))
            found.append(share)
    return found


def _limit(model: str) -> Limit:
    """At 10 ms it must not show: no more than two unwatched runs differ by."""
    return Limit(1.0, "ratio") if model == "10 ms" else Limit(MOST_US)


def _wall_us(cost: Cost) -> float:
    return cost.wall_us


def _cpu_us(cost: Cost) -> float:
    return cost.cpu_us


def _parts(python: Path, machine: Machine) -> Parts:
    return Parts(**_answer(python, machine, "loop_parts.py"))


def _switched(python: Path, machine: Machine, pairs: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = _answer(python, machine, "loop_switched.py", str(pairs), str(SWITCHED_STEPS))
    return found


def _switched_results(unwatched_us: list[float], watched_us: list[float]) -> list[Result]:
    """The median over pairs of neighbors; its uncertainty (95 %) from how far the pairs lie apart."""
    added = [watched - unwatched for unwatched, watched in zip(unwatched_us, watched_us, strict=True)]
    middle = median(added)
    deviation = 1.4826 * median(abs(one - middle) for one in added)
    error = 1.96 * 1.2533 * deviation / len(added) ** 0.5
    share = 100 * middle / median(unwatched_us)
    return [
        Result("loop", "1 ms, in one process: added", middle, "us", "uncertainty", error, Limit(MOST_US)),
        Result("loop", "1 ms, in one process: added share", share, "%", target=Limit(MOST_PERCENT)),
    ]


def _answer(python: Path, machine: Machine, script: str, *arguments: str) -> Any:
    """What a script that hooks itself prints, in a fresh process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    folder = machine.folder / f"{script}-{time.monotonic_ns()}"
    environment |= {**process.environment(str(folder), "1", time.monotonic()), "PYTHONPATH": str(ROOT / "src")}
    command = [str(python), str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=machine.most_seconds)
    return json.loads(done.stdout)


def _cost(python: Path, machine: Machine, model: str, steps: int, *, watched: bool) -> Cost:
    """In a fresh process."""
    run = RunFolder(machine.folder / f"training-{time.monotonic_ns()}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PULSETRAIN_")}
    if watched:
        environment = instrument.environment(run, datetime.now(UTC), time.monotonic(), True)
    command = [str(python), str(Path(__file__).with_name("loop_script.py")), model, str(steps)]
    done = subprocess.run(
        command, env=environment, cwd=machine.folder, stdout=subprocess.PIPE, check=True, timeout=machine.most_seconds
    )
    if watched and not run.files("training"):
        raise Failed("the loop was not watched")
    return Cost(**json.loads(done.stdout))

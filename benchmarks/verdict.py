"""How well the verdict finds injected faults: precision and recall over real trainings on the CPU.

Every kind of `tests/faults/runs.py`, with seeds and sizes that no threshold was chosen by, on the machine as
it is and with one core kept busy. A fault is found when it is first in the verdict. Any other first warning is a false
one, and so is any warning on a healthy run. Needs the interpreter that users train with: `.venv-user`, or
PULSETRAIN_TEST_PYTHON.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.runs import RUNS, FaultyRun, record

from benchmarks.processes import ROOT, Machine
from benchmarks.results import Limit, Report, Result

HELD_OUT_SEEDS, HELD_OUT_SIZES = (1, 2, 3), (0.7, 1.5)
"""Thresholds were looked at with seed 0 and size 1 alone."""
MOST_WRONG = 0.05
_FIXED_SIZE = ("tiny_batch", "exploding", "nan")
"""Faults whose size is not one of degree: they are there or not."""


@dataclass(frozen=True)
class Outcome:
    """What the verdict said of one run."""

    run: FaultyRun
    conditions: str
    said: str
    """The main finding; empty where there is none."""

    @property
    def found(self) -> bool:
        return bool(self.run.rule) and self.said == self.run.rule

    @property
    def false(self) -> bool:
        return bool(self.said) and self.said != self.run.rule


def run(machine: Machine, quick: bool) -> Report:
    python = os.environ.get("PULSETRAIN_TEST_PYTHON", str(ROOT / ".venv-user/bin/python"))
    if not Path(python).exists():
        return Report([], [f"verdict: no {python}; make .venv-user/ready"])
    results, notes = [], []
    for busy in (False, True):
        conditions = "one core kept busy" if busy else "quiet"
        with busy_core() if busy else contextlib.nullcontext():
            outcomes = list(_outcomes(machine, python, conditions, quick))
        faulty = [outcome for outcome in outcomes if outcome.run.rule]
        found, false = sum(o.found for o in outcomes), sum(o.false for o in outcomes)
        missed = 1 - found / len(faulty)
        results += [
            Result("verdict", f"faults missed ({conditions})", missed, "ratio", target=Limit(MOST_WRONG)),
            Result("verdict", f"warnings that are false ({conditions})", false / max(1, found + false), "ratio",
                   target=Limit(MOST_WRONG)),
        ]  # fmt: skip
        notes.append(f"{conditions}: recall {1 - missed:.2f} of {len(faulty)} faults, precision "
                     f"{found / max(1, found + false):.2f} of {found + false} warnings, "
                     f"{len(outcomes) - len(faulty)} healthy runs")  # fmt: skip
        notes += [
            f"  {o.run.name} ({o.conditions}): {o.said or 'nothing'}" for o in outcomes if o.false or not _right(o)
        ]
    return Report(results, notes)


def _right(outcome: Outcome) -> bool:
    return outcome.said == outcome.run.rule


def _outcomes(machine: Machine, python: str, conditions: str, quick: bool) -> Iterator[Outcome]:
    for number, seed in enumerate(HELD_OUT_SEEDS[:1] if quick else HELD_OUT_SEEDS):
        for kind in RUNS:
            size = 1.0 if kind.fault in _FIXED_SIZE else HELD_OUT_SIZES[number % len(HELD_OUT_SIZES)]
            folder = machine.folder / f"{kind.name}-{seed}-{conditions}".replace(" ", "-")
            folder.mkdir(parents=True)
            verdict = record(kind, python, folder, machine.library, size=size, seed=seed).verdict
            said = verdict.main.rule if verdict and verdict.main else ""
            yield Outcome(kind, f"{conditions}, seed {seed}, size {size:g}", said)


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Another program that computes all the time. Schedulers share the CPUs by sessions: it has one of its own."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as spinner:
        try:
            yield
        finally:
            spinner.kill()

"""How well the verdict finds injected faults: precision and recall over real trainings on the CPU.

Every kind of `tests/faults/runs.py`, with seeds and sizes that no threshold was chosen by, on the machine as it is and
with one core kept busy. A fault is found when it is first in the verdict. Any other first warning is a false one, and
so is any warning on a healthy run. Needs the interpreter that users train with: `.venv-user`, or
PULSETRAIN_TEST_PYTHON.

`python -m benchmarks.verdict [--seeds 11,12] [--kinds stall,nan] [--minutes 10] [--outcomes FILE]` runs a part of it.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.runs import RUNS, FaultyRun, record
from tests.nvml.build import build

from benchmarks.processes import ROOT, Machine
from benchmarks.results import Limit, Report, Result, table

HELD_OUT_SEEDS, HELD_OUT_SIZES = (11, 12, 13), (0.8, 1.3)
"""Thresholds were looked at with seed 0 and size 1, and results with seeds 1 to 3 and sizes 0.7 and 1.5."""
MOST_WRONG = 0.05
BUDGET_SECONDS, QUICK_BUDGET_SECONDS = 1380.0, 300.0
"""No case begins after so long. What has not run by then is counted, and left out of the figures."""
CASE_SECONDS = 120.0
"""A training that takes longer hangs."""
_FIXED_SIZE = ("tiny_batch", "exploding", "nan")
"""Faults whose size is not one of degree: they are there or not."""


@dataclass(frozen=True)
class Case:
    """One run."""

    kind: FaultyRun
    seed: int
    size: float
    busy: bool

    @property
    def name(self) -> str:
        return f"{self.kind.name}, seed {self.seed}, size {self.size:g}, {conditions(self.busy)}"


@dataclass(frozen=True)
class Outcome:
    """What the verdict said of one run."""

    case: Case
    said: str
    """The main finding; empty where there is none."""

    @property
    def found(self) -> bool:
        return bool(self.case.kind.rule) and self.right

    @property
    def false(self) -> bool:
        return bool(self.said) and not self.right

    @property
    def right(self) -> bool:
        return self.said == self.case.kind.rule


Judge = Callable[[Case], str]
"""Runs a case; the main finding of its verdict."""


def run(machine: Machine, quick: bool) -> Report:
    python = os.environ.get("PULSETRAIN_TEST_PYTHON", str(ROOT / ".venv-user/bin/python"))
    if not Path(python).exists():
        return Report([], [f"verdict: no {python}; make .venv-user/ready"])
    planned = cases(HELD_OUT_SEEDS[:1] if quick else HELD_OUT_SEEDS)
    budget = QUICK_BUDGET_SECONDS if quick else BUDGET_SECONDS
    return summary(planned, list(outcomes(planned, _judge(machine.folder, machine.library, python), budget)))


def cases(seeds: Sequence[int], kinds: Sequence[FaultyRun] = RUNS) -> list[Case]:
    """In the order in which they run: a budget that ends too soon leaves out the last seeds, and no kind."""
    return [
        Case(kind, seed, 1.0 if kind.fault in _FIXED_SIZE else HELD_OUT_SIZES[number % len(HELD_OUT_SIZES)], busy)
        for number, seed in enumerate(seeds)
        for busy in (False, True)
        for kind in kinds
    ]


def outcomes(
    planned: Iterable[Case], judge: Judge, budget_seconds: float, kept: Path | None = None
) -> Iterator[Outcome]:
    """Run what is not in the file `kept` yet, and add it there, until the budget is used up."""
    until = time.monotonic() + budget_seconds
    known = _known(kept)
    for case in planned:
        if case.name in known:
            yield Outcome(case, known[case.name])
        elif time.monotonic() < until:
            with busy_core() if case.busy else contextlib.nullcontext():
                said = judge(case)
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps({"case": case.name, "said": said}) + "\n")
            yield Outcome(case, said)


def summary(planned: Sequence[Case], found: Sequence[Outcome]) -> Report:
    """Recall and precision in each condition, and every case in which the verdict was wrong."""
    results, notes = [], [f"{len(found)} of {len(planned)} cases ran"]
    for busy in (False, True):
        here = [outcome for outcome in found if outcome.case.busy is busy]
        faulty = sum(bool(outcome.case.kind.rule) for outcome in here)
        if not faulty:
            continue
        right, false = sum(outcome.found for outcome in here), sum(outcome.false for outcome in here)
        missed, wrong = 1 - right / faulty, false / max(1, right + false)
        for what, value in (("faults missed", missed), ("warnings that are false", wrong)):
            name = f"{what} ({conditions(busy)})"
            results.append(Result("verdict", name, value, "ratio", target=Limit(MOST_WRONG)))
        notes.append(
            f"{conditions(busy)}: recall {1 - missed:.2f} of {faulty} faults, precision {1 - wrong:.2f} of "
            f"{right + false} warnings, {len(here) - faulty} healthy runs"
        )
    notes += [f"  {outcome.case.name}: {outcome.said or 'nothing'}" for outcome in found if not outcome.right]
    return Report(results, notes)


def conditions(busy: bool) -> str:
    return "one core kept busy" if busy else "quiet"


def _known(kept: Path | None) -> dict[str, str]:
    lines = kept.read_text().splitlines() if kept and kept.exists() else []
    return {one["case"]: one["said"] for one in map(json.loads, lines)}


def _judge(folder: Path, library: Path, python: str) -> Judge:
    def judge(case: Case) -> str:
        place = Path(tempfile.mkdtemp(dir=folder))
        report = record(
            case.kind, python, place, library, size=case.size, seed=case.seed, most_seconds=CASE_SECONDS
        )  # fmt: skip
        return report.verdict.main.rule if report.verdict and report.verdict.main else ""

    return judge


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Another program that computes all the time. Schedulers share the CPUs by sessions: it has one of its own."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as spinner:
        try:
            yield
        finally:
            spinner.kill()


def main() -> None:
    names = sorted({run.fault for run in RUNS})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", default=",".join(map(str, HELD_OUT_SEEDS)), help="separated by commas")
    parser.add_argument("--kinds", default=",".join(names), help="faults, separated by commas; all by default")
    parser.add_argument("--minutes", type=float, default=BUDGET_SECONDS / 60, help="no case begins after so long")
    parser.add_argument("--outcomes", type=Path, metavar="FILE", help="keep what was found there, and continue from it")
    asked = parser.parse_args()
    if unknown := set(asked.kinds.split(",")) - set(names):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    try:
        seeds = [int(seed) for seed in asked.seeds.split(",")]
    except ValueError:
        parser.error(f"seeds are whole numbers: {asked.seeds}")
    planned = cases(seeds, [run for run in RUNS if run.fault in asked.kinds.split(",")])
    python = os.environ.get("PULSETRAIN_TEST_PYTHON", str(ROOT / ".venv-user/bin/python"))
    with tempfile.TemporaryDirectory(prefix="pulsetrain-verdict-", ignore_cleanup_errors=True) as folder:
        judge = _judge(Path(folder), build(Path(folder) / "nvml").parent, python)
        found = []
        for outcome in outcomes(planned, judge, 60 * asked.minutes, asked.outcomes):
            found.append(outcome)
            print(f"{len(found)}/{len(planned)} {outcome.case.name}: {outcome.said or 'nothing'}", flush=True)
    report = summary(planned, found)
    print(table(report.results), *report.notes, sep="\n")


if __name__ == "__main__":
    main()

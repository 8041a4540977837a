"""The benchmarks' own machinery: what a contestant that hangs or fails costs, and what is said of it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from benchmarks import record
from benchmarks.loop import Bound, rounds_within
from benchmarks.processes import Failed, Machine, in_rounds
from benchmarks.record import Record
from benchmarks.results import Limit, Report, Result, beside, table
from benchmarks.verdict import Case, cases, outcomes, summary
from tests.faults.runs import BY_NAME
from tests.waiting import eventually

SOLO = Result("log", "a call", 2.0, "us", spread=0.5)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine that can ask the modules in tmp_path."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield Machine(tmp_path / "machine", tmp_path, most_seconds=300)


def test_a_contestant_that_hangs_is_ended_with_all_that_it_started(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        f"import pathlib, subprocess, time\n"
        f"child = subprocess.Popen(['sleep', '3600'])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        f"time.sleep(3600)\n"
    )
    with pytest.raises(Failed, match="no answer in 5 s"):
        machine.ask("hangs", environment=os.environ, most_seconds=5)
    if (tmp_path / "pid").exists():  # a very busy machine may not have come so far
        child = int((tmp_path / "pid").read_text())
        assert eventually(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")


def test_a_contestant_that_fails_gives_its_last_word_and_code(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('no such index')")
    with pytest.raises(Failed, match=r"ValueError: no such index \(exit code 1\)"):
        machine.ask("fails", environment=os.environ)


def test_what_a_contestant_prints_is_its_answer(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "works.py").write_text("import sys; print('[1, 2]'); print('noise', file=sys.stderr)")
    assert machine.ask("works", environment=os.environ) == [1, 2]


def test_a_contestant_that_failed_is_not_asked_again_and_the_others_continue() -> None:
    asked = []

    def measure(name: str) -> float:
        asked.append(name)
        if name == "aim":
            raise Failed("no answer in 300 s")
        return float(len(asked))

    found = in_rounds(("ours", "aim", "csv"), 3, measure, needed=("ours",))
    assert asked == ["ours", "aim", "csv", "ours", "csv", "ours", "csv"]
    assert (found.figures, found.failed) == ({"ours": [1, 4, 6], "csv": [3, 5, 7]}, {"aim": "no answer in 300 s"})


def test_without_our_own_figure_there_is_nothing_to_compare() -> None:
    def measure(name: str) -> float:
        raise Failed("exit code 1")

    with pytest.raises(Failed, match="exit code 1"):
        in_rounds(("ours", "csv"), 3, measure, needed=("ours",))


def test_a_peer_that_failed_has_a_row_with_the_reason() -> None:
    rows = beside(
        SOLO, {"csv": 4.0}, {"aim": "no answer in 300 s"}, {"csv": Limit(1, "ratio"), "aim": Limit(1, "ratio")}
    )
    _, csv, aim = table(rows).splitlines()
    assert "log: a call" in csv and "met" in csv
    assert aim.split() == ["aim", "failed:", "no", "answer", "in", "300", "s"]
    assert [row.met for row in rows] == [True, None]


def test_what_is_recorded_says_where_when_and_how_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FILE", tmp_path / "RESULTS.md")
    run = Record(("log", "loop", "top"), quick=True)
    run.add("log", Report(beside(SOLO, {"csv": 4.0}, {"aim": "no answer in 60 s"})))
    run.add("loop", Report([], ["loop: no .venv-user"]))
    assert not run.failed
    run.add("top", Report([Result("top", "did not run to its end", None, "", failure="TimeoutError: x")]))
    assert run.failed
    run.write()
    text = (tmp_path / "RESULTS.md").read_text()
    assert "3 of 3 benchmarks, a quick one" in text
    assert f"{os.cpu_count()} cores" in text and f"Python {sys.version.split()[0]}" in text
    assert len(run.about()["load_1m"]) == 4
    assert "## loop\n\n```text\nloop: no .venv-user\n```\n" in text
    assert "failed: no answer in 60 s" in text and "failed: TimeoutError: x" in text


def test_a_benchmark_of_rounds_ends_when_its_time_is_up_but_not_before_the_least() -> None:
    seconds = iter(range(100))
    measured = iter("abcdefgh")

    def rounds(bound: Bound) -> str:
        return "".join(rounds_within(lambda: next(measured), bound, lambda: float(next(seconds))))

    assert rounds(Bound(least=1, most=3, seconds=50.0)) == "abc"
    assert rounds(Bound(least=2, most=9, seconds=0.0)) == "de"
    assert rounds(Bound(least=1, most=9, seconds=2.5)) == "fgh"


def test_the_verdict_benchmark_ends_with_its_budget_says_how_many_cases_ran_and_continues_from_its_file(
    tmp_path: Path,
) -> None:
    planned = cases((11, 12), [BY_NAME["Stalled-stall"], BY_NAME["healthy-scheduled"]])
    kept = tmp_path / "outcomes.jsonl"
    asked: list[Case] = []

    def judge(case: Case) -> str:
        asked.append(case)
        if case.busy:
            raise KeyboardInterrupt
        return case.kind.rule

    with pytest.raises(KeyboardInterrupt):
        list(outcomes(planned, judge, 3600.0, kept))
    assert [case.name for case in asked[:2]] == [
        "Stalled-stall, seed 11, size 0.8, quiet",
        "healthy-scheduled, seed 11, size 0.8, quiet",
    ]
    found = list(outcomes(planned, judge, 0.0, kept))  # nothing more begins
    assert [outcome.case for outcome in found] == asked[:2]
    wrong = list(outcomes(planned, lambda case: "LossSpike", 3600.0, kept))
    assert summary(planned, found).notes == [
        "2 of 8 cases ran",
        "quiet: recall 1.00 of 1 faults, precision 1.00 of 1 warnings, 1 healthy runs",
    ]
    quiet, busy = [result.ours for result in summary(planned, wrong).results[::2]]
    assert (quiet, busy) == (0.5, 1.0)

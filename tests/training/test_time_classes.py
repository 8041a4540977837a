"""Trainings in which the time of each thing is known: the ledger has it where it belongs, and nowhere else."""

from pathlib import Path

import pytest
from tests.training.trained import Line, Train, Trained

from pulsetrain.insight.report import make_report
from pulsetrain.insight.time_ledger import TimeLedger
from pulsetrain.runs.folder import RunFolder


def ledger_of(trained: Trained) -> TimeLedger:
    (folder,) = (trained.home / "runs").iterdir()
    ledger = make_report(RunFolder(Path(folder))).ledger
    assert ledger is not None
    return ledger


def test_each_sleep_is_in_its_own_class(train: Train) -> None:
    trained = train("time_classes.py")
    ledger = ledger_of(trained)
    for name, slept in trained.told.items():
        assert ledger.classes[name].seconds >= slept, name
    assert sum(part.seconds for part in ledger.classes.values()) == pytest.approx(ledger.seconds)

    def without_the_sleep(line: Line, *parts: str) -> bool:
        return all((line.get(f"{part}_seconds") or 0.0) < trained.told["tail"] for part in parts)

    collected = max(trained.steps, key=lambda line: line.get("gc_seconds") or 0.0)
    assert without_the_sleep(collected, "data_wait", "forward", "backward", "optimizer", "other")
    waited = max(trained.steps, key=lambda line: line["data_wait_seconds"])
    assert without_the_sleep(waited, "forward", "backward", "optimizer", "gc", "other")
    assert [line["phase"] for line in trained.lines if line.get("phase")] == ["checkpoint", "loading", "checkpoint"]


def test_compiling_is_not_part_of_the_forward_pass(train: Train) -> None:
    trained = train("compiles.py")
    ledger = ledger_of(trained)
    assert ledger.classes["compile"].seconds >= trained.told["compile"] > 0
    assert trained.steps[0]["forward_seconds"] < trained.steps[0]["step_seconds"] - trained.told["compile"]

"""Steps that a program logs itself, and those that hooks or callbacks measure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.training.trained import Train

from pulsetrain.training import loop as loops
from pulsetrain.training import process
from pulsetrain.training.logged_steps import LoggedSteps


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[loops.Loop]:
    process.record_into(str(tmp_path), "1", 0.0)
    loop = loops.current()
    assert loop is not None
    yield loop
    loops.finish()
    process.close()


def taken(steps: LoggedSteps, **fields: Any) -> dict[str, Any]:
    steps.take(fields)
    return fields


def timed(*reports: dict[str, Any]) -> list[bool]:
    steps = LoggedSteps(since=0.0)
    return ["step_seconds" in taken(steps, **report) for report in reports]


def test_every_new_number_is_a_step_from_the_first_on() -> None:
    assert timed({"step": 0}, {"step": 1}, {"step": 1, "accuracy": 0.5}, {"step": 2}, {"val_loss": 0.1}) == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_numbers_that_restart_with_each_epoch_are_steps() -> None:
    assert timed({"step": 0}, {"step": 1}, {"step": 0}, {"step": 1}) == [True] * 4


def test_without_numbers_calls_with_a_loss_are_steps_in_order() -> None:
    steps = LoggedSteps(since=0.0)
    assert [taken(steps, loss=1.0)["step"] for _ in range(3)] == [1, 2, 3]
    assert taken(steps, accuracy=0.9) == {"accuracy": 0.9}


def test_a_loss_without_a_number_among_numbered_steps_is_not_a_step() -> None:
    assert timed({"step": 7}, {"loss": 0.5}) == [True, False]


def test_the_time_between_calls_is_shared_by_the_steps_between_them() -> None:
    steps = LoggedSteps(since=0.0)
    first = taken(steps, step=100)["step_seconds"]
    assert first > 0
    assert taken(steps, step=200)["step_seconds"] < first / 100


def test_a_time_that_the_program_measured_itself_is_kept() -> None:
    assert taken(LoggedSteps(since=0.0), step=1, step_seconds=0.25)["step_seconds"] == 0.25


def test_a_number_that_cannot_be_read_is_not_a_step() -> None:
    assert timed({"step": "seven"}, {"step": 1}) == [False, True]


def test_an_update_that_hooks_saw_is_the_step_and_the_call_after_it_is_not(loop: loops.Loop) -> None:
    loop.handle(loop.backward_begin)
    loop.handle(loop.backward_end)
    loop.handle(loop.optimizer_begin, "a")
    loop.handle(loop.optimizer_end, "a")
    assert timed({"step": 1, "loss": 0.5}) == [False]


def test_a_framework_that_says_when_steps_are_done_is_the_one_that_counts(loop: loops.Loop) -> None:
    loop.handle(loop.updates.expect_step_done)
    assert timed({"step": 1}) == [False]


def test_phases_alone_do_not_keep_logged_steps_from_counting(loop: loops.Loop) -> None:
    loop.handle(loop.phases.begin, "validation")
    loop.handle(loop.phases.end)
    assert timed({"step": 1}) == [True]


def test_an_instrumented_training_that_logs_as_well_has_each_step_once(train: Train) -> None:
    trained = train("logs_its_steps.py")
    steps = [line for line in trained.lines if "step_seconds" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5]
    assert [line["accuracy"] for line in trained.lines if "accuracy" in line] == [0, 1, 2, 3, 4]

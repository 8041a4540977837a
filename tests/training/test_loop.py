"""What counts as a step, and that the parts of its time add up, from events alone."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.training import loop as loops
from pulsetrain.training import process, spans
from pulsetrain.training.batches import DataPass
from pulsetrain.training.loop import Loop
from pulsetrain.training.recorder import Recorder
from pulsetrain.training.step_lines import ExpectedFlops
from pulsetrain.training.values import Pending

PARTS = ("data_wait_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "other_seconds")
ASIDES = ("logging_seconds", "gc_seconds")


class Kept(Recorder):
    """Keeps reports instead of writing them."""

    def __init__(self) -> None:
        super().__init__("nowhere", "0", 0.0)
        self.lines: list[dict[str, Any]] = []
        self.times: list[float] = []

    def add(self, fields: dict[str, Any], now: Callable[[], float] = lambda: 0.0) -> None:
        self.lines.append(fields)
        self.times.append(now())


KEPT = Kept()


class ScriptedLoop:
    """A training loop on a clock that moves only where a test says so."""

    def __init__(self) -> None:
        KEPT.lines.clear()
        self.time = 1000.0
        self.loop = Loop(KEPT, lambda: self.time)
        self.handle, self.note = self.loop.handle, self.loop.note
        self.batches, self.updates = self.loop.batches, self.loop.updates

    def passes(self, seconds: float) -> None:
        self.time += seconds

    def batch(self, wait: float = 1.0, samples: int = 8, source: str | None = "train") -> None:
        self.handle(self.batches.requested)
        self.time += wait
        self.handle(self.batches.ready, (samples, None, None), source)

    def backward(self, seconds: float = 3.0, forward: float = 2.0, loss: Any = None, divided_by: float = 1.0) -> None:
        self.time += forward
        self.handle(self.updates.backward_begin, loss, divided_by)
        self.time += seconds
        self.handle(self.updates.backward_end)

    def update(self, key: str = "adam", seconds: float = 1.0) -> None:
        self.handle(self.updates.optimizer_begin, key)
        self.time += seconds
        self.handle(self.updates.optimizer_end, key, 0.1)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return KEPT.lines

    def steps(self, field: str = "step") -> list[Any]:
        """A field of all steps, once the training is over."""
        self.loop.finish()
        return [line.get(field) for line in KEPT.lines if "step_seconds" in line]


@pytest.fixture
def training() -> ScriptedLoop:
    return ScriptedLoop()


def test_a_step_ends_with_the_update_and_its_parts_are_distinguished(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.batch(wait=1)
        training.backward(seconds=3, forward=2)
        training.passes(4)
        training.update(seconds=5)
        training.passes(6)
    assert training.steps() == [1, 2]
    first, second = training.lines
    assert [first[part] for part in PARTS] == [1, 2, 3, 5, 4]
    assert [second[part] for part in PARTS] == [1, 2, 3, 5, 10]
    assert second["step_seconds"] == 21
    assert (second["samples"], second["throughput_samples_per_sec"]) == (8, 8 / 21)
    assert (second["accumulation"], second["optimizers"], second["learning_rate"]) == (1, 1, 0.1)


def test_a_step_is_recorded_at_its_end_once_it_is_known_what_a_step_is(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.backward()
        training.update()
    assert [line["step"] for line in training.lines] == [1, 2]
    training.backward()
    assert len(training.lines) == 2
    training.update()
    assert len(training.lines) == 3


def test_micro_batches_of_one_update_are_one_step(training: ScriptedLoop) -> None:
    for _ in range(2):
        for _ in range(4):
            training.batch(wait=1, samples=8)
            training.backward(seconds=3, forward=2)
        training.update()
    assert training.steps("accumulation") == [4, 4]
    assert training.steps("samples") == [32, 32]
    assert training.steps("data_wait_seconds") == [4, 4]
    assert training.steps("forward_seconds") == [8, 8]
    assert training.steps("backward_seconds") == [12, 12]


def test_the_loss_of_a_step_is_the_mean_of_its_micro_batches(training: ScriptedLoop) -> None:
    for losses in ((1.0, 3.0), (5.0, 7.0)):
        for loss in losses:
            training.backward(loss=loss)
        training.update()
    assert training.steps("loss") == [2.0, 6.0]


def test_a_loss_that_was_divided_for_the_accumulation_is_made_whole(training: ScriptedLoop) -> None:
    for divided_by in (2.0, 32.0):  # the second is a mean over samples, and part of the loss
        for loss in (1.0, 3.0):
            training.backward(loss=loss, divided_by=divided_by)
        training.update()
    assert training.steps("loss") == [4.0, 2.0]


def test_backward_passes_on_one_batch_add_up_to_its_loss(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.batch()
        training.backward(loss=1.0)
        training.backward(loss=3.0)
        training.update()
    assert training.steps("loss") == [4.0, 4.0]


def test_each_optimizer_has_its_loss_also_where_one_comes_less_often(training: ScriptedLoop) -> None:
    for number in range(1, 7):
        training.batch()
        training.backward(loss=float(number))
        training.update("critic")
        if number % 3 == 0:
            training.backward(loss=100.0 + number)
            training.update("generator")
    assert training.steps("loss") == [1, 2, 3, 4, 5, 6]
    assert training.steps("loss/2") == [None, None, None, 103, None, None]  # its update begins the next step


def test_a_new_optimizer_of_a_second_training_has_no_other_name_for_its_loss(training: ScriptedLoop) -> None:
    for key in ("one", "one", "two", "two"):
        training.backward(loss=1.0)
        training.update(key)
    assert training.steps("loss") == [1.0] * 4


def test_what_a_closure_gave_first_is_the_loss_of_its_update(training: ScriptedLoop) -> None:
    for number in (1.0, 2.0):
        training.batch()
        training.handle(training.updates.optimizer_begin, "lbfgs")
        for evaluation in range(3):
            training.backward(loss=number - evaluation / 10)
        training.handle(training.updates.optimizer_end, "lbfgs")
    assert training.steps("loss") == [1.0, 2.0]


def test_two_optimizers_that_take_turns_make_one_step(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.batch()
        training.backward()
        training.update("discriminator")
        training.backward()
        training.update("generator")
    assert training.steps() == [1, 2, 3]
    assert training.steps("optimizers") == [2, 2, 2]
    assert training.steps("accumulation") == [2, 2, 2]
    assert training.steps("samples") == [8, 8, 8]


def test_two_optimizers_after_one_backward_pass_make_one_step(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.backward()
        training.update("muon")
        training.update("adam")
    assert training.steps("optimizers") == [2, 2, 2]


def test_each_update_of_the_discriminator_is_a_step_when_the_generator_has_fewer(training: ScriptedLoop) -> None:
    for _ in range(3):
        for _ in range(5):
            training.batch()
            training.backward()
            training.update("discriminator")
        training.backward()
        training.update("generator")
    assert len(training.steps()) == 15
    assert sum(training.steps("optimizers")) == 17  # the very last one of the generator has no later step to join
    assert sum(training.steps("step_seconds")) == training.time - 1000 - 6


def test_a_late_actor_makes_no_steps_of_its_own(training: ScriptedLoop) -> None:
    for number in range(12):
        training.batch()
        training.backward()
        training.update("critic")
        if number % 2:
            training.backward()
            training.update("actor")
    assert len(training.steps()) == 12


def test_optimizers_inside_a_backward_pass_make_one_step(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.batch(wait=1)
        training.passes(2)
        training.handle(training.updates.backward_begin)
        for parameter in ("weight", "bias"):
            training.passes(3)
            training.update(parameter, seconds=1)
        training.passes(3)
        training.handle(training.updates.backward_end)
    assert training.steps() == [1, 2, 3]
    assert training.steps("optimizers") == [2, 2, 2]
    assert training.steps("backward_seconds") == [9, 9, 9]
    assert training.steps("optimizer_seconds") == [2, 2, 2]
    assert training.steps("forward_seconds") == [2, 2, 2]
    assert training.steps("other_seconds") == [0, 0, 0]


def test_an_optimizer_that_evaluates_a_closure_makes_one_step(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.batch(wait=1)
        training.handle(training.updates.optimizer_begin, "lbfgs")
        for _ in range(3):
            training.backward(seconds=3, forward=2)
        training.passes(1)
        training.handle(training.updates.optimizer_end, "lbfgs")
    assert training.steps("accumulation") == [3, 3]
    assert training.steps("forward_seconds") == [6, 6]
    assert training.steps("backward_seconds") == [9, 9]
    assert training.steps("optimizer_seconds") == [1, 1]


def test_an_optimizer_that_runs_another_is_one(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.backward()
        training.handle(training.updates.optimizer_begin, "lookahead")
        training.update("adam", seconds=1)
        training.passes(1)
        training.handle(training.updates.optimizer_end, "lookahead")
    assert training.steps("optimizers") == [1, 1, 1]
    assert training.steps("optimizer_seconds") == [2, 2, 2]


def test_a_step_that_calls_its_parents_step_is_one(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.backward()
        training.handle(training.updates.optimizer_begin, "adam")
        training.update("adam")
        training.handle(training.updates.optimizer_end, "adam")
    assert training.steps("optimizers") == [1, 1, 1]


def test_an_optimizer_that_runs_another_is_one_also_after_an_update_that_raised(training: ScriptedLoop) -> None:
    training.backward()
    training.handle(training.updates.optimizer_begin, "lookahead")
    training.batch()
    training.backward()
    training.handle(training.updates.optimizer_begin, "lookahead")
    training.update("adam", seconds=1)
    training.passes(1)
    training.handle(training.updates.optimizer_end, "lookahead")
    assert training.steps("optimizer_seconds") == [2]


def test_a_skipped_update_is_a_step(training: ScriptedLoop) -> None:
    for number in range(4):
        training.backward(loss=float(number))
        if number in (0, 2):
            training.handle(training.updates.update_skipped, "adam")
        else:
            training.update()
    assert training.steps() == [1, 2, 3, 4]
    assert training.steps("skipped") == [1, None, 1, None]
    assert training.steps("loss") == [0.0, 1.0, 2.0, 3.0]


def test_two_updates_from_the_same_gradients_are_one_step(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.backward()
        training.update()
        training.update()
    assert training.steps() == [1, 2, 3]


def test_updates_count_where_no_backward_pass_can_be_seen(training: ScriptedLoop) -> None:
    for _ in range(3):
        training.update()
    assert training.steps() == [1, 2, 3]
    assert "backward_seconds" not in training.lines[-1]


def test_a_validation_is_not_the_waiting_of_a_step(training: ScriptedLoop) -> None:
    for number in range(4):
        if number == 2:
            for _ in range(3):
                training.batch(wait=50, samples=99, source="validation")
                training.passes(50)
            training.handle(training.batches.ended, "validation")
        training.batch(wait=1)
        training.backward()
        training.update()
    assert training.steps("data_wait_seconds") == [1, 1, 1, 1]
    assert training.steps("samples") == [8, 8, 8, 8]
    assert training.steps("other_seconds")[2] == 300


def test_a_validation_that_breaks_off_is_none_either(training: ScriptedLoop) -> None:
    for number in range(3):
        if number == 1:
            for _ in range(2):
                training.batch(wait=50, samples=99, source="validation")
        training.batch(wait=1)
        training.backward()
        training.update()
    assert training.steps("data_wait_seconds") == [1, 1, 1]
    assert training.steps("samples") == [8, 8, 8]


def phases(training: ScriptedLoop) -> list[tuple[int, str, float]]:
    training.loop.finish()
    return [(line["step"], line["phase"], line["phase_seconds"]) for line in training.lines if "phase" in line]


def test_from_evaluation_mode_to_training_mode_is_a_validation(training: ScriptedLoop) -> None:
    switched = training.loop.evaluations.switched
    for _ in range(2):
        training.backward(forward=2)
        training.update()
        training.passes(1)
        for model in ("generator", "critic"):
            training.handle(switched, model, False)
        training.passes(40)
        for model in ("critic", "generator"):
            training.handle(switched, model, True)
            training.passes(2)
    assert phases(training) == [(1, "validation", 42), (2, "validation", 42)]
    assert training.steps("forward_seconds")[1] == 4  # since the last of them


def test_training_in_evaluation_mode_is_training(training: ScriptedLoop) -> None:
    training.handle(training.loop.evaluations.switched, "teacher", False)
    training.passes(3)
    training.handle(training.loop.evaluations.switched, "student", False)
    for _ in range(3):
        training.batch()
        training.backward()
        training.update()
    training.handle(training.loop.evaluations.switched, "student", True)
    assert phases(training) == []
    assert training.steps("samples") == [8, 8, 8]


def test_a_pass_over_other_data_is_a_validation(training: ScriptedLoop) -> None:
    evaluations = training.loop.evaluations
    for number in range(3):
        training.batch()
        training.backward()
        training.update()
        if number < 2:
            for _ in range(300):  # more than are kept
                training.batch(wait=1, source=f"validation {number}")
            training.handle(evaluations.batches_ended, f"validation {number}")
    assert phases(training) == [(1, "validation", 300), (2, "validation", 300)]
    assert training.steps("samples") == [8, 8, 8]


def test_batches_without_gradients_are_a_validation_also_one_that_breaks_off(training: ScriptedLoop) -> None:
    def fetch(source: str, wait: float) -> None:
        requested = training.time
        training.passes(wait)
        training.handle(training.loop.evaluations.batch_ready, (99, None, None), source, requested)

    fetch("prefetched", 1)  # for training, in a function that needs no gradients
    training.backward()
    training.update()
    fetch("validation", 5)
    fetch("validation", 5)
    training.passes(7)
    training.batch()
    training.backward()
    training.update()
    assert phases(training) == [(1, "validation", 10)]
    assert training.steps("samples") == [99, 8]


def test_a_framework_says_itself_when_it_validates(training: ScriptedLoop) -> None:
    training.handle(training.updates.expect_step_done)
    for _ in range(2):
        training.backward()
        training.update()
        training.handle(training.updates.step_done, None, {})
        training.handle(training.loop.evaluations.switched, "model", False)
        training.passes(5)
        training.handle(training.loop.evaluations.switched, "model", True)
    assert phases(training) == []


def test_a_phase_that_the_program_names_is_not_recorded_twice(training: ScriptedLoop) -> None:
    switched = training.loop.evaluations.switched
    for _ in range(2):
        training.backward()
        training.update()
        training.handle(switched, "model", False)
        training.handle(training.loop.phases.begin, "test")
        training.handle(switched, "other model", False)
        training.passes(5)
        training.handle(switched, "other model", True)
        training.handle(training.loop.phases.end)
        training.handle(switched, "model", True)
    assert [name for _, name, _ in phases(training)] == ["test", "test"]


def test_a_look_at_one_batch_of_other_data_is_not_training(training: ScriptedLoop) -> None:
    training.batch(samples=99, source="looked at")
    training.handle(training.batches.optimizer_made)
    for number in range(4):
        training.batch()
        if number == 2:
            training.batch(samples=99, source="looked at again")
        training.backward()
        training.update()
    assert training.steps("samples") == [8, 8, 8, 8]


def test_a_second_data_set_counts_from_its_second_batch_on_or_when_the_first_begins_again(
    training: ScriptedLoop,
) -> None:
    for number in range(5):
        training.batch(source="one")
        if number in (1, 2, 3):
            training.batch(samples=50, source="two")
        training.backward()
        training.update()
    training.handle(training.batches.ended, "one")
    training.batch(source="one again")
    training.batch(samples=50, source="two again")
    training.backward()
    training.update()
    assert training.steps("samples") == [8, 8, 58, 58, 8, 58]


def test_without_an_optimizer_each_backward_pass_is_a_step(training: ScriptedLoop) -> None:
    for number in (1.0, 2.0, 3.0):
        training.batch(wait=1)
        training.passes(2)
        training.handle(training.updates.by_hand_begin, number)
        training.passes(3)
        training.handle(training.updates.backward_end)
        training.handle(training.loop.lines.add_gradient_norm, number / 10, None)
        training.passes(4)
    assert training.steps("loss") == [1.0, 2.0, 3.0]
    assert training.steps("gradient_norm") == [0.1, 0.2, 0.3]
    assert training.steps("samples") == [8, 8, 8]
    assert training.steps("step_seconds") == [6, 10, 10]
    assert training.steps("optimizers") == [None] * 3


def test_without_an_optimizer_a_collection_after_the_backward_pass_is_not_part_of_the_step(
    training: ScriptedLoop,
) -> None:
    for _ in range(2):
        training.handle(training.updates.by_hand_begin, 1.0)
        training.passes(3)
        training.handle(training.updates.backward_end)
        training.passes(4)
        training.handle(training.loop.spans.part, "gc", training.time - 2)
        training.passes(1)
    training.handle(training.updates.finish)
    assert training.steps("step_seconds") == [3, 8]
    assert training.steps("gc_seconds") == [None, 2]


def test_epochs_are_passes_over_data_whose_length_is_known(training: ScriptedLoop) -> None:
    for length in (4, 4, None):
        source = DataPass(length)
        for _ in range(2):
            training.handle(training.batches.ready, (8, None, None), source)
            training.backward()
            training.update()
    assert training.steps("epoch") == [0.25, 0.5, 0.75, 1.0, None, None]


def test_a_batch_nobody_trained_on_was_not_waited_for_when_iterators_are_not_known(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.batch(wait=50, source=None)
        training.batch(wait=1, source=None)
        training.backward()
        training.update()
    assert training.steps("data_wait_seconds") == [1, 1]


def test_batches_fetched_ahead_for_an_accumulation_all_count(training: ScriptedLoop) -> None:
    for _ in range(2):
        for samples in (8, 8, 4):
            training.batch(wait=1, samples=samples)
        for _ in range(3):
            training.backward()
        training.update()
    assert training.steps("data_wait_seconds") == [3, 3]
    assert training.steps("samples") == [20, 20]


def test_a_loader_that_is_one_batch_ahead_gives_each_step_its_own(training: ScriptedLoop) -> None:
    training.batch(samples=8)
    for samples in (7, 6, None):
        if samples:
            training.batch(samples=samples)
        else:
            training.handle(training.batches.ended, "train")
        training.backward()
        training.update()
    assert training.steps("samples") == [8, 7, 6]


def test_batches_that_are_put_together_are_all_of_the_step(training: ScriptedLoop) -> None:
    for _ in range(4):
        training.batch(wait=1)
        training.batch(wait=1)
        training.backward()
        training.update()
    assert training.steps("data_wait_seconds") == [2, 2, 2, 2]
    assert training.steps("samples") == [8, 16, 16, 16]  # at first it looks like a loader that runs ahead


def test_two_data_sets_in_one_training_are_both_waited_for(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.batch(wait=1, samples=8, source="labeled")
        training.batch(wait=2, samples=56, source="unlabeled")
        training.backward()
        training.update()
    assert training.steps("data_wait_seconds") == [3, 3]
    assert training.steps("samples") == [64, 64]


def test_each_step_on_one_batch_has_its_samples(training: ScriptedLoop) -> None:
    training.batch(wait=1)
    for _ in range(3):
        training.backward()
        training.update()
    assert training.steps("samples") == [8, 8, 8]
    assert training.steps("data_wait_seconds") == [1, 0, 0]


def test_steps_without_a_loader_have_no_wait_and_no_samples(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.backward(forward=2)
        training.update()
    assert training.steps("data_wait_seconds") == [None, None]
    assert training.steps("samples") == [None, None]
    assert training.steps("forward_seconds") == [0, 2]  # before the first event nothing is known


def test_backward_passes_of_checkpointed_blocks_belong_to_the_outer_one(training: ScriptedLoop) -> None:
    training.handle(training.updates.backward_begin)
    training.backward(seconds=3, forward=0)
    training.passes(1)
    training.handle(training.updates.backward_end)
    training.update()
    assert training.steps("accumulation") == [1]
    assert training.steps("backward_seconds") == [4]


def test_an_update_that_raised_does_not_hide_the_next(training: ScriptedLoop) -> None:
    training.backward()
    training.handle(training.updates.optimizer_begin, "lbfgs")
    for _ in range(2):
        training.backward()
        training.update("lbfgs")
    assert training.steps() == [1, 2]


def test_an_optimizer_that_raised_and_is_gone_does_not_hide_another(training: ScriptedLoop) -> None:
    training.backward()
    training.handle(training.updates.optimizer_begin, "gone")
    for _ in range(3):
        training.batch()
        training.backward()
        training.update("adam")
    assert training.steps() == [1, 2, 3]


def test_the_numbers_of_a_framework_win(training: ScriptedLoop) -> None:
    training.handle(training.updates.at_step, 1000)
    training.handle(training.loop.lines.report, {"epoch": 2.5})
    training.handle(training.loop.lines.set_total_steps, 2000)
    for number in (1001, 1002):
        training.backward()
        training.update()
        training.handle(training.updates.at_step, number)
    assert training.steps() == [1001, 1002]
    assert (training.lines[0]["epoch"], training.lines[0]["total_steps"]) == (2.5, 2000)


def test_a_framework_that_reports_the_end_of_steps_is_believed(training: ScriptedLoop) -> None:
    training.handle(training.updates.expect_step_done)
    for number in (1, 2, 3):
        for _ in range(2):
            training.batch(wait=1)
            training.backward()
            training.update()
        training.passes(7)
        training.handle(training.updates.step_done, number * 10, {"loss": 0.5})
    assert training.steps() == [10, 20, 30]
    assert training.steps("optimizers") == [2, 2, 2]
    assert training.steps("loss") == [0.5, 0.5, 0.5]
    assert training.steps("other_seconds") == [7, 7, 7]


def test_after_the_end_of_such_a_training_updates_end_steps_again(training: ScriptedLoop) -> None:
    training.backward()
    training.handle(training.updates.step_done, None, {})
    training.loop.finish()
    for _ in range(2):
        training.backward()
        training.update()
    assert training.steps() == [1, 2, 3]


def test_steps_are_reported_without_anything_else_being_seen(training: ScriptedLoop) -> None:
    training.handle(training.batches.requested)
    training.passes(2)
    training.handle(training.updates.step_done, None, {"samples": 16})
    training.passes(3)
    training.handle(training.updates.step_done, None, {"samples": 16})
    assert training.steps("step_seconds") == [2, 3]
    assert training.steps("other_seconds") == [2, 3]
    assert "backward_seconds" not in training.lines[0]


def test_a_phase_has_a_line_of_its_own_and_is_not_waiting(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.batch(wait=1)
        training.backward(seconds=3, forward=2)
        training.update(seconds=1)
        training.handle(training.loop.phases.begin, "validation")
        training.batch(wait=20, source="validation")
        training.passes(20)
        training.handle(training.loop.phases.end)
    assert training.steps("other_seconds") == [0, 40]
    assert training.steps("data_wait_seconds") == [1, 1]
    assert [line for line in training.lines if "phase" in line] == [
        {"step": number, "phase": "validation", "phase_seconds": 40} for number in (0, 2)
    ]


def test_steps_inside_a_phase_carry_its_name(training: ScriptedLoop) -> None:
    training.handle(training.loop.phases.begin, "warm-up")
    training.backward()
    training.update()
    training.handle(training.updates.at_step, 1)
    training.handle(training.loop.phases.end)
    training.handle(training.loop.phases.end)  # one too many does nothing
    assert training.steps("phase") == ["warm-up"]


def test_further_figures_stand_in_the_line_of_their_step(training: ScriptedLoop) -> None:
    for allocated in (1.0, None):
        if allocated:
            training.handle(training.loop.lines.report, {"memory_allocated_mb": allocated})
        training.backward()
        training.update()
    assert training.steps("memory_allocated_mb") == [1.0, None]


def test_the_norms_of_separate_parameters_make_one(training: ScriptedLoop) -> None:
    training.handle(training.loop.lines.add_gradient_norm, 3.0, None)
    training.handle(training.loop.lines.add_gradient_norm, 4.0, None)
    training.update("one")
    training.handle(training.loop.lines.add_gradient_norm, 12.0, None)
    training.update("other")
    assert training.steps("gradient_norm") == [13.0]


def test_the_norm_of_some_optimizers_is_not_taken_for_that_of_all(training: ScriptedLoop) -> None:
    for measured in (("one", "other"), ("other",)):
        training.backward()
        for key in ("one", "other"):
            if key in measured:
                training.note((training.loop.lines.add_gradient_norm, training.time, 2.0**0.5, key))
            training.update(key)
    assert training.steps("gradient_norm") == [pytest.approx(2.0), None]


def test_flops_are_of_the_tokens_of_each_step(training: ScriptedLoop) -> None:
    training.handle(training.loop.lines.expect_flops, ExpectedFlops(1000.0, per_token=6.0))
    for tokens in (100, 50):
        training.handle(training.batches.requested)
        training.handle(training.batches.ready, (1, tokens, None), "train")
        training.backward(seconds=4, forward=0)
        training.update(seconds=1)
    assert training.steps("flops") == [600.0, 300.0]
    assert training.steps("mfu_ratio") == [600 / 5 / 1000, 300 / 5 / 1000]
    assert training.steps("throughput_tokens_per_sec") == [20, 10]


def test_events_that_were_only_noted_come_before_those_handled_at_once(training: ScriptedLoop) -> None:
    training.note((training.updates.backward_begin, 1000.0, 0.5, 1.0))
    training.note((training.updates.backward_end, 1003.0))
    training.time = 1010.0
    training.update(seconds=2)
    assert training.steps("backward_seconds") == [3]
    assert training.steps("loss") == [0.5]
    assert training.steps("other_seconds") == [7]


def test_an_event_that_cannot_be_handled_is_left_out_counted_and_named_once(training: ScriptedLoop) -> None:
    unhashable: Any = []
    for _ in range(3):
        training.note((training.updates.optimizer_begin, 1000.0, unhashable))
        training.note((training.updates.optimizer_end, 1000.0, unhashable, 0.1))
        training.handle(training.updates.optimizer_begin, "adam")
        training.handle(training.updates.update_skipped, unhashable)
    training.backward()
    training.update()
    assert training.steps() == [1]
    named = sorted(line["message"] for line in training.lines if line.get("event") == "skipped")
    assert [message.split(": ")[1:3] for message in named] == [
        ["UpdateGrouping.optimizer_end", "TypeError"],
        ["UpdateGrouping.update_skipped", "TypeError"],
    ]


class Arrived(Pending):
    def __init__(self, number: float) -> None:
        self.number = number

    def ready(self) -> bool:
        return True

    def value(self) -> float:
        return self.number


def test_what_is_on_its_way_is_computed_when_it_has_arrived(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.backward(loss=Arrived(1.5), divided_by=2.0)
    training.note((training.loop.lines.add_gradient_norm, training.time, Arrived(3.0), None))
    training.note((training.loop.lines.add_gradient_norm, training.time, 4.0, None))
    training.update()
    (loss,), (norm,) = training.steps("loss"), training.steps("gradient_norm")
    assert (loss.ready(), loss.value()) == (True, 3.0)
    assert (norm.ready(), norm.value()) == (True, 5.0)


def test_a_span_is_not_part_of_what_it_lies_in(training: ScriptedLoop) -> None:
    def step() -> None:
        training.handle(training.batches.requested)
        training.passes(1)
        training.handle(training.loop.spans.part, "gc", training.time - 0.5)
        training.handle(training.batches.ready, (8, None, None), "train")
        training.passes(4)
        training.handle(training.loop.spans.part, "gc", training.time - 1)
        training.passes(1)
        training.handle(training.loop.spans.part, "logging", training.time - 3)  # with a collection inside
        training.backward(seconds=3, forward=1)
        training.update(seconds=5)

    step()
    step()
    assert training.steps("step_seconds") == [15, 15]
    line = training.lines[-1]
    assert [line[part] for part in PARTS] == [0.5, 3, 3, 5, 0]
    assert [line[part] for part in ASIDES] == [2, 1.5]


def test_a_checkpoint_is_a_phase_and_leaves_the_forward_pass_as_it_is(training: ScriptedLoop) -> None:
    for _ in range(2):
        training.backward()
        training.update()
    training.passes(1)
    training.passes(7)
    training.handle(training.loop.spans.phase, "checkpoint", training.time - 7)
    training.backward(forward=2)
    training.update()
    assert training.lines[-2] == {"step": 2, "phase": "checkpoint", "phase_seconds": 7}
    assert (training.lines[-1]["forward_seconds"], training.lines[-1]["other_seconds"]) == (3, 7)


def test_what_was_loaded_before_the_first_step_is_recorded_with_it(recorded_process: Path) -> None:
    spans.note_phase("loading", time.perf_counter() - 0.25)
    assert loops.existing() is None and not any(recorded_process.iterdir())
    loop = loops.current()
    assert loop is not None
    loops.finish()
    process.close()
    assert '"phase":"loading"' in "".join(file.read_text().replace(" ", "") for file in recorded_process.iterdir())


@pytest.fixture
def recorded_process(tmp_path: Path) -> Iterator[Path]:
    process.record_into(str(tmp_path), "1", 0.0)
    yield tmp_path
    loops.finish()
    process.close()


def test_a_process_has_one_loop_and_a_forked_child_its_own(recorded_process: Path) -> None:
    loop = loops.current()
    assert loop is not None
    assert loops.current() is loop
    child = os.fork()
    if not child:
        os._exit(loops._loop is not None or loops.current() is loop)
    assert os.waitpid(child, 0)[1] == 0
    assert loops.current() is loop


def test_a_loop_that_is_over_leaves_the_next_one_alone(recorded_process: Path) -> None:
    before = set(threading.enumerate())
    assert loops.current() is not None
    threads = [thread for thread in set(threading.enumerate()) - before if thread.name == "pulsetrain-loop"]
    process.close()
    loops.finish()
    process.record_into(str(recorded_process), "2", 0.0)
    following = loops.current()
    for thread in threads:
        thread.join(60)
    assert loops.current() is following is not None


def test_what_is_noted_is_recorded_without_a_further_event(recorded_process: Path) -> None:
    loop = loops.current()
    assert loop is not None
    for at in (1.0, 2.0, 3.0):
        loop.note((loop.updates.optimizer_begin, at, "adam"))
        loop.note((loop.updates.optimizer_end, at, "adam", 0.1))
    while '"step":3' not in "".join(file.read_text() for file in recorded_process.glob("*.jsonl")):
        time.sleep(0.05)  # a thread brings it within a second; without it, the test's own timeout strikes


def handle(training: ScriptedLoop, event: str, name: str) -> None:
    updates, batches, phases, spans = training.updates, training.batches, training.loop.phases, training.loop.spans
    handlers: dict[str, Callable[[float], None]] = {
        "batch requested": batches.requested,
        "batch ready": partial(batches.ready, amounts=(4, None, None), source=name),
        "batches ended": partial(batches.ended, source=name),
        "backward begin": updates.backward_begin,
        "backward end": updates.backward_end,
        "optimizer begin": partial(updates.optimizer_begin, key=name),
        "optimizer end": partial(updates.optimizer_end, key=name),
        "update skipped": partial(updates.update_skipped, key=name),
        "step done": partial(updates.step_done, number=None, fields={}),
        "at step": partial(updates.at_step, number=training.loop.step),
        "finish": updates.finish,
        "phase begin": partial(phases.begin, name=name),
        "phase end": phases.end,
        "collected": partial(spans.part, name="gc", began=training.time - 1),
        "logged": partial(spans.part, name="logging", began=training.time - 4),
        "saved": partial(spans.phase, name="checkpoint", began=training.time - 8),
    }
    training.handle(handlers[event])


EVENTS = st.sampled_from(
    [
        *("batch requested", "batch ready", "batches ended", "backward begin", "backward end", "optimizer begin"),
        *("optimizer end", "update skipped", "step done", "at step", "finish", "phase begin", "phase end"),
        *("collected", "logged", "saved"),
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), EVENTS, st.sampled_from("ab")), max_size=60))
def test_the_parts_of_a_step_add_up_whatever_happens(events: list[tuple[int, str, str]]) -> None:
    training = ScriptedLoop()
    for seconds, event, name in events:
        training.passes(seconds)
        handle(training, event, name)
    training.loop.finish()
    for line in training.lines:
        if "step_seconds" in line:
            parts = [line[part] for part in (*PARTS, *ASIDES) if part in line]
            assert min(parts) >= 0
            assert sum(parts) == line["step_seconds"]

"""What counts as a step, and that the parts of its time add up, from events alone."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.training import loop as loops
from pulsetrain.training import process
from pulsetrain.training.loop import Loop
from pulsetrain.training.recorder import Pending, Recorder

PARTS = ("data_wait_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "other_seconds")


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


class Told:
    """A training told to a loop, on a clock of whole seconds that only stands where we say."""

    def __init__(self) -> None:
        KEPT.lines.clear()
        self.time = 1000.0
        self.loop = Loop(KEPT, lambda: self.time)

    def passes(self, seconds: float) -> None:
        self.time += seconds

    def batch(self, wait: float = 1.0, samples: int = 8, source: str = "train") -> None:
        self.loop.batch_requested()
        self.time += wait
        self.loop.batch_ready(samples, None, source)

    def backward(self, seconds: float = 3.0, forward: float = 2.0, loss: float | None = None) -> None:
        self.time += forward
        self.loop.backward_begin()
        if loss is not None:
            self.loop.report_loss(loss)
        self.time += seconds
        self.loop.backward_end()

    def update(self, key: str = "adam", seconds: float = 1.0) -> None:
        self.loop.optimizer_begin(key)
        self.time += seconds
        self.loop.optimizer_end(key, 0.1)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return KEPT.lines

    def steps(self, field: str = "step") -> list[Any]:
        """A field of all steps, once the training is over."""
        self.loop.finish()
        return [line.get(field) for line in KEPT.lines if "step_seconds" in line]


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_step_ends_with_the_update_and_its_parts_are_told_apart(told: Told) -> None:
    for _ in range(2):
        told.batch(wait=1)
        told.backward(seconds=3, forward=2)
        told.passes(4)
        told.update(seconds=5)
        told.passes(6)
    assert told.steps() == [1, 2]
    first, second = told.lines
    assert [first[part] for part in PARTS] == [1, 2, 3, 5, 4]
    assert [second[part] for part in PARTS] == [1, 2, 3, 5, 10]
    assert second["step_seconds"] == 21
    assert (second["samples"], second["throughput_samples_per_sec"]) == (8, 8 / 21)
    assert (second["accumulation"], second["optimizers"], second["learning_rate"]) == (1, 1, 0.1)


def test_a_step_is_recorded_at_its_end_once_it_is_known_what_a_step_is(told: Told) -> None:
    for _ in range(2):
        told.backward()
        told.update()
    assert [line["step"] for line in told.lines] == [1, 2]
    told.backward()
    assert len(told.lines) == 2
    told.update()
    assert len(told.lines) == 3


def test_micro_batches_of_one_update_are_one_step(told: Told) -> None:
    for _ in range(2):
        for _ in range(4):
            told.batch(wait=1, samples=8)
            told.backward(seconds=3, forward=2)
        told.update()
    assert told.steps("accumulation") == [4, 4]
    assert told.steps("samples") == [32, 32]
    assert told.steps("data_wait_seconds") == [4, 4]
    assert told.steps("forward_seconds") == [8, 8]
    assert told.steps("backward_seconds") == [12, 12]


def test_the_loss_of_a_step_is_the_mean_of_its_micro_batches(told: Told) -> None:
    for losses in ((1.0, 3.0), (5.0, 7.0)):
        for loss in losses:
            told.backward(loss=loss)
        told.update()
    assert told.steps("loss") == [2.0, 6.0]


def test_a_loss_that_was_divided_for_the_accumulation_is_made_whole(told: Told) -> None:
    for divided_by in (2.0, 32.0):  # the second is a mean over samples, and part of the loss
        for loss in (1.0, 3.0):
            told.loop.backward_begin()
            told.loop.report_loss(loss, divided_by=divided_by)
            told.loop.backward_end()
        told.update()
    assert told.steps("loss") == [4.0, 2.0]


def test_a_loss_is_scaled_as_told(told: Told) -> None:
    told.loop.report_loss(2.0, scale=4.0)
    told.update()
    assert told.steps("loss") == [8.0]


def test_two_optimizers_that_take_turns_make_one_step(told: Told) -> None:
    for _ in range(3):
        told.batch()
        told.backward()
        told.update("discriminator")
        told.backward()
        told.update("generator")
    assert told.steps() == [1, 2, 3]
    assert told.steps("optimizers") == [2, 2, 2]
    assert told.steps("accumulation") == [2, 2, 2]
    assert told.steps("samples") == [8, 8, 8]


def test_two_optimizers_after_one_backward_pass_make_one_step(told: Told) -> None:
    for _ in range(3):
        told.backward()
        told.update("muon")
        told.update("adam")
    assert told.steps("optimizers") == [2, 2, 2]


def test_each_update_of_the_discriminator_is_a_step_when_the_generator_has_fewer(told: Told) -> None:
    for _ in range(3):
        for _ in range(5):
            told.batch()
            told.backward()
            told.update("discriminator")
        told.backward()
        told.update("generator")
    assert len(told.steps()) == 15
    assert sum(told.steps("optimizers")) == 17  # the very last one of the generator has no later step to join
    assert sum(told.steps("step_seconds")) == told.time - 1000 - 6


def test_a_late_actor_makes_no_steps_of_its_own(told: Told) -> None:
    for number in range(12):
        told.batch()
        told.backward()
        told.update("critic")
        if number % 2:
            told.backward()
            told.update("actor")
    assert len(told.steps()) == 12


def test_optimizers_inside_a_backward_pass_make_one_step(told: Told) -> None:
    for _ in range(3):
        told.batch(wait=1)
        told.passes(2)
        told.loop.backward_begin()
        for parameter in ("weight", "bias"):
            told.passes(3)
            told.update(parameter, seconds=1)
        told.passes(3)
        told.loop.backward_end()
    assert told.steps() == [1, 2, 3]
    assert told.steps("optimizers") == [2, 2, 2]
    assert told.steps("backward_seconds") == [9, 9, 9]
    assert told.steps("optimizer_seconds") == [2, 2, 2]
    assert told.steps("forward_seconds") == [2, 2, 2]
    assert told.steps("other_seconds") == [0, 0, 0]


def test_an_optimizer_that_evaluates_a_closure_makes_one_step(told: Told) -> None:
    for _ in range(2):
        told.batch(wait=1)
        told.loop.optimizer_begin("lbfgs")
        for _ in range(3):
            told.backward(seconds=3, forward=2)
        told.passes(1)
        told.loop.optimizer_end("lbfgs")
    assert told.steps("accumulation") == [3, 3]
    assert told.steps("forward_seconds") == [6, 6]
    assert told.steps("backward_seconds") == [9, 9]
    assert told.steps("optimizer_seconds") == [1, 1]


def test_an_optimizer_that_runs_another_is_one(told: Told) -> None:
    for _ in range(3):
        told.backward()
        told.loop.optimizer_begin("lookahead")
        told.update("adam", seconds=1)
        told.passes(1)
        told.loop.optimizer_end("lookahead")
    assert told.steps("optimizers") == [1, 1, 1]
    assert told.steps("optimizer_seconds") == [2, 2, 2]


def test_a_step_that_calls_its_parents_step_is_one(told: Told) -> None:
    for _ in range(3):
        told.backward()
        told.loop.optimizer_begin("adam")
        told.update("adam")
        told.loop.optimizer_end("adam")
    assert told.steps("optimizers") == [1, 1, 1]


def test_a_skipped_update_is_a_step(told: Told) -> None:
    for number in range(4):
        told.backward(loss=float(number))
        if number in (0, 2):
            told.loop.update_skipped("adam")
        else:
            told.update()
    assert told.steps() == [1, 2, 3, 4]
    assert told.steps("skipped") == [1, None, 1, None]
    assert told.steps("loss") == [0.0, 1.0, 2.0, 3.0]


def test_two_updates_from_the_same_gradients_are_one_step(told: Told) -> None:
    for _ in range(3):
        told.backward()
        told.update()
        told.update()
    assert told.steps() == [1, 2, 3]


def test_updates_count_where_no_backward_pass_can_be_seen(told: Told) -> None:
    for _ in range(3):
        told.update()
    assert told.steps() == [1, 2, 3]
    assert "backward_seconds" not in told.lines[-1]


def test_a_validation_is_not_the_waiting_of_a_step(told: Told) -> None:
    for number in range(4):
        if number == 2:
            for _ in range(3):
                told.batch(wait=50, samples=99, source="validation")
                told.passes(50)
            told.loop.batches_ended("validation")
        told.batch(wait=1)
        told.backward()
        told.update()
    assert told.steps("data_wait_seconds") == [1, 1, 1, 1]
    assert told.steps("samples") == [8, 8, 8, 8]
    assert told.steps("other_seconds")[2] == 300


def test_a_validation_that_breaks_off_is_none_either(told: Told) -> None:
    for number in range(3):
        if number == 1:
            for _ in range(2):
                told.batch(wait=50, samples=99, source="validation")
        told.batch(wait=1)
        told.backward()
        told.update()
    assert told.steps("data_wait_seconds") == [1, 1, 1]
    assert told.steps("samples") == [8, 8, 8]


def test_a_batch_nobody_trained_on_was_not_waited_for_when_iterators_are_not_known(told: Told) -> None:
    for _ in range(2):
        told.batch(wait=50, source=None)  # type: ignore[arg-type]
        told.batch(wait=1, source=None)  # type: ignore[arg-type]
        told.backward()
        told.update()
    assert told.steps("data_wait_seconds") == [1, 1]


def test_batches_fetched_ahead_for_an_accumulation_all_count(told: Told) -> None:
    for _ in range(2):
        for samples in (8, 8, 4):
            told.batch(wait=1, samples=samples)
        for _ in range(3):
            told.backward()
        told.update()
    assert told.steps("data_wait_seconds") == [3, 3]
    assert told.steps("samples") == [20, 20]


def test_a_loader_that_is_one_batch_ahead_gives_each_step_its_own(told: Told) -> None:
    told.batch(samples=8)
    for samples in (7, 6, None):
        if samples:
            told.batch(samples=samples)
        else:
            told.loop.batches_ended("train")
        told.backward()
        told.update()
    assert told.steps("samples") == [8, 7, 6]


def test_batches_that_are_put_together_are_all_of_the_step(told: Told) -> None:
    for _ in range(4):
        told.batch(wait=1)
        told.batch(wait=1)
        told.backward()
        told.update()
    assert told.steps("data_wait_seconds") == [2, 2, 2, 2]
    assert told.steps("samples") == [8, 16, 16, 16]  # at first it looks like a loader that runs ahead


def test_two_data_sets_in_one_training_are_both_waited_for(told: Told) -> None:
    for _ in range(2):
        told.batch(wait=1, samples=8, source="labelled")
        told.batch(wait=2, samples=56, source="unlabelled")
        told.backward()
        told.update()
    assert told.steps("data_wait_seconds") == [3, 3]
    assert told.steps("samples") == [64, 64]


def test_each_step_on_one_batch_has_its_samples(told: Told) -> None:
    told.batch(wait=1)
    for _ in range(3):
        told.backward()
        told.update()
    assert told.steps("samples") == [8, 8, 8]
    assert told.steps("data_wait_seconds") == [1, 0, 0]


def test_steps_without_a_loader_have_no_wait_and_no_samples(told: Told) -> None:
    for _ in range(2):
        told.backward(forward=2)
        told.update()
    assert told.steps("data_wait_seconds") == [None, None]
    assert told.steps("samples") == [None, None]
    assert told.steps("forward_seconds") == [0, 2]  # before the first event nothing is known


def test_backward_passes_of_checkpointed_blocks_belong_to_the_outer_one(told: Told) -> None:
    told.loop.backward_begin()
    told.backward(seconds=3, forward=0)
    told.passes(1)
    told.loop.backward_end()
    told.update()
    assert told.steps("accumulation") == [1]
    assert told.steps("backward_seconds") == [4]


def test_an_update_that_raised_does_not_hide_the_next(told: Told) -> None:
    told.backward()
    told.loop.optimizer_begin("lbfgs")
    for _ in range(2):
        told.backward()
        told.update("lbfgs")
    assert told.steps() == [1, 2]


def test_an_optimizer_that_raised_and_is_gone_does_not_hide_another(told: Told) -> None:
    told.backward()
    told.loop.optimizer_begin("gone")
    for _ in range(3):
        told.batch()
        told.backward()
        told.update("adam")
    assert told.steps() == [1, 2, 3]


def test_the_numbers_of_a_framework_win(told: Told) -> None:
    told.loop.at_step(1000)
    told.loop.set_epoch(2.5)
    told.loop.set_total_steps(2000)
    for number in (1001, 1002):
        told.backward()
        told.update()
        told.loop.at_step(number)
    assert told.steps() == [1001, 1002]
    assert (told.lines[0]["epoch"], told.lines[0]["total_steps"]) == (2.5, 2000)


def test_a_framework_that_tells_the_end_of_steps_is_believed(told: Told) -> None:
    told.loop.steps_are_told()
    for number in (1, 2, 3):
        for _ in range(2):
            told.batch(wait=1)
            told.backward()
            told.update()
        told.passes(7)
        told.loop.step_done(step=number * 10, loss=0.5)
    assert told.steps() == [10, 20, 30]
    assert told.steps("optimizers") == [2, 2, 2]
    assert told.steps("loss") == [0.5, 0.5, 0.5]
    assert told.steps("other_seconds") == [7, 7, 7]


def test_after_the_end_of_such_a_training_updates_end_steps_again(told: Told) -> None:
    told.backward()
    told.loop.step_done()
    told.loop.finish()
    for _ in range(2):
        told.backward()
        told.update()
    assert told.steps() == [1, 2, 3]


def test_steps_are_told_without_anything_else_being_seen(told: Told) -> None:
    told.loop.batch_requested()
    told.passes(2)
    told.loop.step_done(samples=16)
    told.passes(3)
    told.loop.step_done(samples=16)
    assert told.steps("step_seconds") == [2, 3]
    assert told.steps("other_seconds") == [2, 3]
    assert "backward_seconds" not in told.lines[0]


def test_a_phase_has_a_line_of_its_own_and_is_no_waiting(told: Told) -> None:
    for _ in range(2):
        told.batch(wait=1)
        told.backward(seconds=3, forward=2)
        told.update(seconds=1)
        told.loop.begin_phase("validation")
        told.batch(wait=20, source="validation")
        told.passes(20)
        told.loop.end_phase()
    assert told.steps("other_seconds") == [0, 40]
    assert told.steps("data_wait_seconds") == [1, 1]
    assert [line for line in told.lines if "phase" in line] == [
        {"step": number, "phase": "validation", "phase_seconds": 40} for number in (0, 2)
    ]


def test_steps_inside_a_phase_carry_its_name(told: Told) -> None:
    told.loop.begin_phase("warm-up")
    told.backward()
    told.update()
    told.loop.at_step(1)
    told.loop.end_phase()
    told.loop.end_phase()  # one too many does nothing
    assert told.steps("phase") == ["warm-up"]


def test_further_figures_stand_in_the_line_of_their_step(told: Told) -> None:
    for allocated in (1.0, None):
        if allocated:
            told.loop.report(memory_allocated_mb=allocated)
        told.backward()
        told.update()
    assert told.steps("memory_allocated_mb") == [1.0, None]


def test_the_norms_of_separate_parameters_make_one(told: Told) -> None:
    told.loop.add_gradient_norm(3.0)
    told.loop.add_gradient_norm(4.0)
    told.update("one")
    told.loop.report_gradient_norm(12.0)
    told.update("other")
    assert told.steps("gradient_norm") == [13.0]


def test_the_norm_of_some_optimizers_is_not_taken_for_that_of_all(told: Told) -> None:
    for measured in (("one", "other"), ("other",)):
        told.backward()
        for key in ("one", "other"):
            if key in measured:
                told.loop.note(("add_gradient_norm", told.time, 2.0**0.5, key))
            told.update(key)
    assert told.steps("gradient_norm") == [pytest.approx(2.0), None]


def test_flops_are_of_the_tokens_of_each_step(told: Told) -> None:
    told.loop.expect_flops(1000.0, per_token=6.0)
    for tokens in (100, 50):
        told.loop.batch_requested()
        told.loop.batch_ready(1, tokens, "train")
        told.backward(seconds=4, forward=0)
        told.update(seconds=1)
    assert told.steps("flops") == [600.0, 300.0]
    assert told.steps("mfu_ratio") == [600 / 5 / 1000, 300 / 5 / 1000]
    assert told.steps("throughput_tokens_per_sec") == [20, 10]


def test_events_that_were_only_noted_come_before_those_that_are_told(told: Told) -> None:
    told.loop.note(("backward_begin", 1000.0, 0.5, 1.0))
    told.loop.note(("backward_end", 1003.0))
    told.time = 1010.0
    told.update(seconds=2)
    assert told.steps("backward_seconds") == [3]
    assert told.steps("loss") == [0.5]
    assert told.steps("other_seconds") == [7]


class Arrived(Pending):
    def __init__(self, number: float) -> None:
        self.number = number

    def ready(self) -> bool:
        return True

    def value(self) -> float:
        return self.number


def test_what_is_on_its_way_is_computed_when_it_has_arrived(told: Told) -> None:
    for _ in range(2):
        told.loop.backward_begin()
        told.loop.note(("report_loss", told.time, Arrived(1.5), 2.0))
        told.loop.backward_end()
    told.loop.note(("add_gradient_norm", told.time, Arrived(3.0)))
    told.loop.note(("add_gradient_norm", told.time, 4.0))
    told.update()
    (loss,), (norm,) = told.steps("loss"), told.steps("gradient_norm")
    assert (loss.ready(), loss.value()) == (True, 3.0)
    assert (norm.ready(), norm.value()) == (True, 5.0)


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


def test_what_is_noted_is_recorded_without_a_further_event(recorded_process: Path) -> None:
    loop = loops.current()
    assert loop is not None
    for at in (1.0, 2.0, 3.0):
        loop.note(("optimizer_begin", at, "adam"))
        loop.note(("optimizer_end", at, "adam", 0.1))
    while '"step":3' not in "".join(file.read_text() for file in recorded_process.glob("*.jsonl")):
        time.sleep(0.05)  # a thread brings it within a second; without it, the test's own timeout strikes


EVENTS = st.sampled_from(
    [
        *(
            "batch_requested",
            "batches_ended",
            "backward_begin",
            "backward_end",
            "update_skipped",
            "step_done",
            "finish",
        ),
        *("begin_phase", "end_phase", "optimizer_begin", "optimizer_end", "batch_ready", "at_step"),
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), EVENTS, st.sampled_from("ab")), max_size=60))
def test_the_parts_of_a_step_add_up_whatever_happens(events: list[tuple[int, str, str]]) -> None:
    told = Told()
    for seconds, event, name in events:
        told.passes(seconds)
        arguments: dict[str, tuple[Any, ...]] = {
            **dict.fromkeys(("batches_ended", "optimizer_begin", "optimizer_end", "update_skipped"), (name,)),
            "batch_ready": (4, None, name),
            "begin_phase": (name,),
            "at_step": (told.loop.step,),
        }
        getattr(told.loop, event)(*arguments.get(event, ()))
    told.loop.finish()
    for line in told.lines:
        if "step_seconds" in line:
            parts = [line[part] for part in PARTS if part in line]
            assert min(parts) >= 0
            assert sum(parts) == line["step_seconds"]

"""The figures of a training in words."""

from typing import Any

import pytest

from pulsetrain.insight.training_summary import LeftOut, TrainingSummary
from pulsetrain.views import training_phrases as words


def summary(**given: Any) -> TrainingSummary:
    known: dict[str, Any] = {
        "steps": 60,
        "last_step": 60.0,
        "total_steps": None,
        "epoch": None,
        "ranks": 1,
        "loss_first": None,
        "loss_last": None,
        "nonfinite_losses": 0,
    }
    return TrainingSummary(**known | given)


def left_out(**given: Any) -> str:
    known: dict[str, Any] = {
        "start_up_seconds": 2.0,
        "warm_up_steps": 0,
        "warm_up_seconds": 0.0,
        "interrupted_steps": 0,
        "interrupted_by": [],
        "phase_seconds": {},
        "pause_seconds": 0.0,
    }
    return words.left_out(summary(steady_steps=47, step_seconds_mean=1.0, left_out=LeftOut(**known | given)))


def test_what_speed_leaves_out_is_named_with_its_time() -> None:
    assert left_out(
        warm_up_steps=10,
        warm_up_seconds=48.1,
        interrupted_steps=3,
        interrupted_by=["validation"],
        phase_seconds={"validation": 90.0},
        pause_seconds=1.5,
    ) == (
        "of 60 steps, 10 warm-up (48.1 s) and 3 with validation excluded; "
        "start-up 2.00 s, validation 1 min 30 s, outside of steps 1.50 s"
    )


def test_validations_that_are_cut_out_of_steps_are_named() -> None:
    said = left_out(interrupted_by=["validation", "checkpoint"], phase_seconds={"validation": 9.0, "checkpoint": 1.0})
    assert said == (
        "of 60 steps, validation or checkpoint inside them excluded; "
        "start-up 2.00 s, validation 9.00 s, checkpoint 1.00 s"
    )


def test_where_all_steps_are_steady_only_the_start_is_named() -> None:
    assert left_out(pause_seconds=0.1) == "start-up 2.00 s"


@pytest.mark.parametrize(("epoch", "said"), [(3.0, "3"), (2.13, "2.13"), (0.5, "0.5"), (10.0, "10"), (100.0, "100")])
def test_epochs_are_as_exact_as_they_are_known(epoch: float, said: str) -> None:
    assert words.steps(summary(epoch=epoch)) == f"60 in {said} epochs"


def test_losses_of_ranks_are_named_where_they_differ() -> None:
    two = summary(ranks=2, loss_first=6.396, loss_last=4.0, loss_last_by_rank={"0": 4.0, "1": 5.0})
    assert words.loss(two) == ("6.396 -> 4 on the first rank; 4.5 on average over 2 ranks (rank 0: 4, rank 1: 5)")
    two.loss_last_by_rank = {"0": 4.0, "1": 4.0000001}
    assert words.loss(two) == "6.396 -> 4"


def test_of_many_ranks_the_least_and_the_highest_loss_are_named() -> None:
    many = summary(ranks=9, loss_first=9.0, loss_last=1.0, loss_last_by_rank={str(n): 1.0 + n for n in range(9)})
    assert words.loss(many).endswith("5 on average over 9 ranks (1 to 9)")


def test_throughput_is_that_of_all_ranks_and_of_the_first() -> None:
    one = summary(samples_per_second=850.0, tokens_per_second=20.25)
    assert words.rates(one) == "850 samples/s, 20.2 tokens/s"
    two = summary(ranks=2, samples_per_second=850.0, all_ranks_samples_per_second=1700.0)
    assert words.rates(two) == "1,700 samples/s on 2 ranks (850 samples/s on the first)"
    two.all_ranks_samples_per_second = None
    assert words.rates(two) == "850 samples/s on the first rank"


def test_updates_are_described_where_they_are_known() -> None:
    assert words.updates(summary()) == ""
    assert words.updates(summary(learning_rate=3e-4, gradient_norm=1.5, skipped_updates=1)) == (
        "learning rate 0.0003, gradient norm 1.5, 1 update skipped for infinite gradients"
    )

"""Loops with Accelerate under `pulsetrain run`: the losses before they are divided, and one line for each update."""

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module")
def trained(train: Train) -> Trained:
    return train("accelerate_steps.py")


def test_the_loss_is_the_mean_over_the_micro_batches_also_of_a_short_last_step(trained: Trained) -> None:
    part = trained.part("accumulated")
    assert part.values("step") == list(range(1, 9))
    assert part.values("accumulation") == [3, 3, 3, 1] * 2
    assert part.values("samples") == [12, 12, 12, 4] * 2
    assert part.values("loss") == pytest.approx(part.told)


def test_without_accumulation_the_loss_is_what_the_program_computed(trained: Trained) -> None:
    part = trained.part("plain")
    assert len(part.steps) == 20
    assert part.values("loss") == pytest.approx(part.told)

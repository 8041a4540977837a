"""`pulsetrain.steps`: the steps of a loop that no hook can see."""

import pytest
from tests.training.trained import Train


def test_each_batch_of_a_loop_of_jax_is_a_step_with_what_is_in_it(train: Train) -> None:
    trained = train("jax_steps.py")
    batches = trained.told["tokens"]
    assert trained.values("step") == list(range(1, len(batches) + 3)), "two more, before the third is left"
    assert trained.values("tokens")[: len(batches)] == batches
    assert trained.values("samples")[: len(batches)] == [tokens // 10 for tokens in batches]
    assert trained.reported("loss") == pytest.approx(trained.told["losses"])
    for line in trained.steps:
        assert line["data_wait_seconds"] + line["other_seconds"] == pytest.approx(line["step_seconds"])

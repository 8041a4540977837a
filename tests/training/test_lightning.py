"""Lightning under `pulsetrain run`, by both its names: the same steps and losses as Lightning itself has."""

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module")
def trained(train: Train) -> Trained:
    return train("lightning_steps.py")


def test_every_step_of_lightning_is_a_line_with_its_number_epoch_and_loss(trained: Trained) -> None:
    """Also where the last step of an epoch has fewer micro batches, whose losses Lightning divides all the same."""
    part = trained.part("accumulated")
    losses = part.told["losses"]
    groups = [losses[begin : begin + size] for begin, size in ((0, 3), (3, 3), (6, 3), (9, 1))]
    groups += [losses[begin : begin + size] for begin, size in ((10, 3), (13, 3), (16, 3), (19, 1))]
    assert part.values("step") == list(range(1, part.told["global_step"] + 1))
    assert part.values("accumulation") == [3, 3, 3, 1] * 2
    assert part.values("samples") == [12, 12, 12, 4] * 2
    assert part.values("loss") == pytest.approx([sum(group) / len(group) for group in groups])
    assert part.values("epoch") == pytest.approx([0.3, 0.6, 0.9, 1.0, 1.3, 1.6, 1.9, 2.0])
    assert set(part.values("total_steps")) == {8}
    assert set(part.values("learning_rate")) == {0.01}


def test_validations_and_checkpoints_are_phases_and_metrics_stand_beside_the_steps(trained: Trained) -> None:
    part = trained.part("accumulated")
    phases = [(line["step"], line["phase"]) for line in part.lines if "phase_seconds" in line]
    assert phases == [(0, "validation"), (4, "validation"), (8, "validation"), (8, "checkpoint")]
    assert len(part.reported("val_loss")) == 2
    assert part.reported("train_loss") == pytest.approx([part.told["losses"][9], part.told["losses"][19]])


def test_step_numbers_continue_after_a_checkpoint_in_which_nothing_of_ours_is(trained: Trained) -> None:
    part = trained.part("resumed")
    assert part.values("step") == [9, 10, 11, 12]
    assert part.told == {"global_step": 12, "callbacks": []}


def test_a_validation_and_a_test_after_the_training_are_phases_with_their_metrics(trained: Trained) -> None:
    part = trained.part("tested")
    phases = [(line["step"], line["phase"]) for line in part.lines if "phase_seconds" in line]
    assert phases == [(14, "validation"), (14, "test")]
    assert part.reported("val_loss")[-1] == pytest.approx(part.told["val_loss"])
    assert part.reported("test_loss") == pytest.approx([part.told["test_loss"]])


def test_a_training_that_ends_within_an_epoch_says_so(trained: Trained) -> None:
    assert max(trained.part("tested").reported("epoch")) == pytest.approx(1.4)


def test_a_step_with_two_optimizers_is_one(trained: Trained) -> None:
    part = trained.part("two optimizers")
    assert part.told["global_step"] == 20  # Lightning counts both
    assert part.values("step") == list(range(1, 11))
    assert part.values("optimizers") == [2] * 10
    assert None not in part.values("loss") + part.values("loss/2")


def test_after_a_training_that_raised_other_loops_are_seen_again(trained: Trained) -> None:
    assert trained.part("died").told == "the user's model raises"
    assert len(trained.part("plain").steps) == 5


def test_pytorch_lightning_is_seen_as_well(trained: Trained) -> None:
    part = trained.part("pytorch_lightning")
    assert part.values("loss") == pytest.approx(part.told["losses"])
    assert part.values("step") == list(range(1, 11))
    phases = [(line["step"], line["phase"]) for line in part.lines if "phase_seconds" in line]
    assert phases == [(5, "validation"), (5, "checkpoint"), (10, "validation"), (10, "checkpoint")]
    assert part.reported("val_loss")[-1] == pytest.approx(part.told["val_loss"])


def test_the_hyperparameters_of_a_module_are_the_config_of_the_run(trained: Trained) -> None:
    assert trained.about["config"] == {"lr": 0.01, "layers": {"width": 4}}
    assert trained.about["config_sources"] == ["Lightning hparams"]
    assert trained.about["training"]["precision"] == "32-true"

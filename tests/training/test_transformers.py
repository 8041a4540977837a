"""The Hugging Face Trainer under `pulsetrain run`: the same steps, losses and rates as the Trainer itself has."""

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module")
def trained(train: Train) -> Trained:
    return train("transformers_steps.py")


def test_every_step_of_the_trainer_is_a_line_with_its_number_epoch_loss_and_learning_rate(trained: Trained) -> None:
    """Also where the last step of an epoch has fewer micro batches, which differ in their number of labels."""
    part = trained.part("accumulated")
    assert part.values("step") == list(range(1, part.told["global_step"] + 1))
    assert part.values("accumulation") == [3, 3, 3, 1] * 2
    assert part.values("loss") == pytest.approx(part.told["losses"], rel=1e-4)
    assert part.values("learning_rate") == pytest.approx(part.told["learning_rates"])
    assert part.values("gradient_norm") == pytest.approx(part.told["gradient_norms"], rel=1e-4)
    assert part.values("epoch") == pytest.approx(part.told["epochs"])
    assert set(part.values("total_steps")) == {part.told["max_steps"]}


def test_samples_are_counted_although_the_trainer_fetches_batches_before_it_evaluates_and_saves(
    trained: Trained,
) -> None:
    assert trained.part("accumulated").values("samples") == [12, 12, 12, 4] * 2


def test_a_step_is_split_into_its_parts(trained: Trained) -> None:
    for line in trained.part("accumulated").steps:
        asides = ("communication", "logging", "gc")  # where there was any
        names = ("data_wait", "forward", "backward", "optimizer", "other", *asides)
        assert sum(line.get(f"{name}_seconds", 0.0) for name in names) == pytest.approx(line["step_seconds"])


def test_evaluations_and_checkpoints_are_phases_and_what_is_logged_stands_beside_the_steps(trained: Trained) -> None:
    part = trained.part("accumulated")
    phases = [(line["step"], line["phase"]) for line in part.lines if "phase_seconds" in line]
    assert phases == [(3, "checkpoint"), (4, "validation"), (6, "checkpoint"), (8, "checkpoint"), (8, "validation")]
    assert part.reported("eval_loss") == pytest.approx(part.told["eval_losses"])
    assert part.reported("logged_loss") == pytest.approx(part.told["losses"])
    assert len(part.reported("train_loss")) == 1


def test_an_evaluation_and_a_prediction_outside_of_the_training_are_phases_with_their_metrics(
    trained: Trained,
) -> None:
    part = trained.part("evaluated")
    assert [line["phase"] for line in part.lines if "phase_seconds" in line] == ["validation", "predict"]
    for name, value in part.told.items():
        assert part.reported(name) == pytest.approx([value])


def test_step_numbers_continue_after_a_checkpoint(trained: Trained) -> None:
    part = trained.part("resumed")
    assert part.values("step") == [7, 8]
    assert part.values("loss") == pytest.approx(part.told["losses"][6:], rel=1e-4)
    assert part.values("epoch") == pytest.approx([1.9, 2.0])


def test_a_second_callback_of_ours_and_a_second_training_count_no_step_twice(trained: Trained) -> None:
    part = trained.part("twice")
    assert part.values("step") == [1, 2, 3, 4, 1, 2, 3, 4]
    assert part.values("loss")[4:] == pytest.approx(part.told["losses"], rel=1e-4)
    assert len(part.reported("logged_loss")) == 8
    assert "there is already one" not in trained.output


def test_after_a_training_that_raised_other_loops_are_seen_again(trained: Trained) -> None:
    assert trained.part("died").told == "the user's callback raises"
    assert len(trained.part("plain").steps) == 5


def test_the_arguments_of_the_trainer_that_were_chosen_are_the_config_of_the_run(trained: Trained) -> None:
    config = trained.about["config"]
    always = {"learning_rate": 5e-5, "num_train_epochs": 2, "seed": 42}
    chosen = {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 4, "eval_strategy": "epoch"}
    assert {name: config.get(name) for name in always | chosen} == always | chosen
    assert "warmup_steps" not in config
    assert trained.about["config_sources"] == ["TrainingArguments"]
    assert trained.about["training"]["batch_size"] == 8  # of the last Trainer

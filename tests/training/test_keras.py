"""Keras 3 under `pulsetrain run`, on each backend there is: the same steps and losses as Keras itself has."""

import subprocess

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module", params=["torch", "jax", "tensorflow"])
def trained(request: pytest.FixtureRequest, train: Train, user_python: str) -> Trained:
    backend: str = request.param
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec('{backend}') is None)"
    if subprocess.run([user_python, "-c", look]).returncode:
        pytest.skip(f"{backend} is not installed there")
    return train("keras_steps.py", KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3")


def test_every_step_is_a_line_with_its_number_epoch_and_own_loss(trained: Trained) -> None:
    """The loss of the step alone, where Keras shows the mean over the epoch; also of the last, smaller batch."""
    part = trained.part("plain")
    assert part.values("step") == list(range(1, 21))
    assert part.values("epoch") == pytest.approx([step / 10 for step in range(1, 21)])
    assert part.values("samples") == ([4] * 9 + [2]) * 2
    assert part.values("loss") == pytest.approx(part.told["losses"], rel=1e-3)
    assert part.values("learning_rate") == [0.0] * 20
    assert set(part.values("total_steps")) == {20}
    assert all(seconds > 0 for seconds in part.values("step_seconds"))


def test_that_there_is_no_gradient_norm_is_said_once(trained: Trained) -> None:
    notes = [line["message"] for line in trained.lines if line.get("event") == "not_seen"]
    assert notes.count("The gradient norm is not recorded: Keras does not show its gradients.") == 1
    assert trained.reported("gradient_norm") == []


def test_validations_and_evaluations_are_phases_and_metrics_stand_beside_the_steps(trained: Trained) -> None:
    part = trained.part("plain")
    phases = [(line["step"], line["phase"]) for line in part.lines if "phase_seconds" in line]
    assert phases == [(10, "validation"), (20, "validation"), (20, "test")]
    assert part.reported("val_loss") == pytest.approx(part.told["val_loss"])
    assert part.reported("test_loss") == pytest.approx([part.told["test_loss"]])
    assert [line["phase"] for line in trained.part("predicted").lines if "phase" in line] == ["predict"]


def test_steps_are_counted_on_in_a_second_fit_as_the_optimizer_does(trained: Trained) -> None:
    part = trained.part("again")
    assert part.values("step") == list(range(21, 41))
    assert part.told["iterations"] == 40
    assert part.values("epoch") == pytest.approx([2 + step / 10 for step in range(1, 21)])


def test_a_callback_that_keras_waits_for_changes_nothing_and_may_change_the_learning_rate(trained: Trained) -> None:
    part = trained.part("own callback")
    assert len(part.steps) == part.told["batches"] == 20
    assert part.values("loss") == pytest.approx(part.told["losses"] * 2, rel=1e-3)
    assert part.values("learning_rate") == pytest.approx([0.0] * 10 + [1e-9] * 10)


def test_what_a_training_step_of_the_users_own_logs_as_its_loss_is_taken_as_it_is(trained: Trained) -> None:
    part = trained.part("own step")
    # torch has seen what the backward passes began from
    assert part.values("loss") == pytest.approx(part.told if trained.told["backend"] == "torch" else [7.0] * 10)


def test_a_schedule_is_asked_for_the_learning_rate_now_and_then(trained: Trained) -> None:
    part = trained.part("schedule")
    assert part.values("learning_rate")[0] == pytest.approx(part.told)
    assert None in part.values("learning_rate")


def test_the_length_of_steps_is_that_of_their_computation_and_not_of_their_start(trained: Trained) -> None:
    part = trained.part("in the background")
    assert sum(part.values("step_seconds")) > 0.5 * part.told  # of the epoch; begun, they would be a hundredth


def test_a_generator_reports_no_batch_size_and_is_recorded_without(trained: Trained) -> None:
    part = trained.part("generator")
    assert part.values("step") == list(range(1, 13))
    assert part.values("epoch")[0] == pytest.approx(1 + 1 / 6)
    assert set(part.values("total_steps")) == {12}
    assert part.values("samples") == ([4] * 12 if trained.told["backend"] == "torch" else [None] * 12)


def test_steps_that_run_in_one_go_are_all_recorded_and_share_their_time_and_loss(trained: Trained) -> None:
    if trained.told["backend"] == "torch":
        pytest.skip("Keras has no steps_per_execution on torch")
    part = trained.part("several at once")
    told = part.told
    weights = [4] * 9 + [2]
    means = [
        sum(told[n] * weights[n] for n in group) / sum(weights[n] for n in group)
        for group in (range(4), range(4, 8), range(8, 10))
    ]
    assert part.values("step") == list(range(1, 21))
    expected = [means[0]] * 4 + [means[1]] * 4 + [means[2]] * 2
    assert part.values("loss") == pytest.approx(expected * 2, rel=1e-3)
    seconds = part.values("step_seconds")
    assert seconds[0] == seconds[3] != seconds[4]


def test_train_on_batch_is_seen_on_torch_where_keras_updates_weights_by_itself(trained: Trained) -> None:
    if trained.told["backend"] != "torch":
        pytest.skip("no callback is called, and no hook is there")
    part = trained.part("by hand")
    assert part.values("loss") == pytest.approx([part.told[0]] * 5)
    assert all(seconds > 0 for seconds in part.values("optimizer_seconds"))


def test_the_optimizer_and_the_epochs_are_the_config_of_the_run(trained: Trained) -> None:
    config = trained.about["config"]
    assert (config["epochs"], config["steps"]) == (2, 10)
    assert (config["optimizer"]["name"], config["optimizer"]["learning_rate"]) == ("sgd", 0.0)
    assert trained.about["config_sources"] == ["Keras"]
    assert trained.about["training"].keys() >= {"parameters", "precision"}

"""Our callbacks where a program gives them to its framework itself, without `pulsetrain run` and the torch hooks."""

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module")
def trained(train: Train) -> Trained:
    return train("explicit_callbacks.py", instrument=False, KERAS_BACKEND="torch")


def test_nothing_of_torch_is_patched(trained: Trained) -> None:
    assert trained.told["watched"] is False


@pytest.mark.parametrize("name", ["transformers", "older"])
def test_the_trainers_callback_records_its_steps_by_itself(trained: Trained, name: str) -> None:
    part = trained.part(name)
    assert part.values("step") == [1, 2, 3, 4]
    assert part.values("samples") == [8] * 4
    assert part.values("learning_rate") == pytest.approx([5e-5, 3.75e-5, 2.5e-5, 1.25e-5])
    assert all(seconds > 0 for seconds in part.values("step_seconds"))


def test_the_loss_of_the_trainer_is_the_one_it_logs(trained: Trained) -> None:
    part = trained.part("transformers")
    logged = [(line["step"], line["loss"]) for line in part.lines if line.get("loss") is not None]
    assert logged == [(2, pytest.approx(part.told[0])), (4, pytest.approx(part.told[1]))]


def test_the_older_tools_callback_is_one_of_the_trainers(trained: Trained) -> None:
    assert trained.part("older").told is True


def test_the_callback_of_lightning_records_its_steps_by_itself(trained: Trained) -> None:
    part = trained.part("lightning")
    assert part.values("step") == list(range(1, 11))
    assert part.values("samples") == [4] * 10
    assert part.values("loss") == pytest.approx(part.told)
    assert part.values("learning_rate") == [0.01] * 10


def test_the_callback_of_lightning_knows_the_loss_of_accumulated_steps(trained: Trained) -> None:
    part = trained.part("lightning accumulated")
    assert part.values("loss") == pytest.approx([sum(part.told[:5]) / 5, sum(part.told[5:]) / 5])


def test_the_callback_of_keras_records_its_steps_by_itself(trained: Trained) -> None:
    part = trained.part("keras")
    assert part.values("step") == list(range(1, 11))
    assert part.values("loss") == pytest.approx(part.told, rel=1e-3)
    assert part.values("samples") == [4] * 10


def test_callbacks_can_be_pickled_as_trainings_in_several_processes_do(trained: Trained) -> None:
    assert trained.told["pickled"] == [True, True]

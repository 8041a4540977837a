"""`pulsetrain.torch.watch` in real trainings: figures of the layers, and nothing left on the model afterwards."""

import pytest
from tests.training.trained import Line, Train, Trained


@pytest.fixture(scope="module")
def trained(train: Train) -> Trained:
    return train("torch_watch.py")


def watched(part: Trained) -> list[Line]:
    return [line for line in part.lines if any(name.startswith("weight_norm/") for name in line)]


def test_the_figures_of_a_layer_are_those_of_its_gradients_weights_and_outputs(trained: Trained) -> None:
    part = trained.part("mlp")
    line = watched(part)[0]
    expected = {name: value for name, value in part.told.items() if name != "hooks"}
    assert {name: line[name] for name in expected} == pytest.approx(expected, rel=1e-4)


def test_every_third_step_is_recorded_under_its_number_until_the_end_of_the_watch(trained: Trained) -> None:
    part = trained.part("mlp")
    assert [line["step"] for line in watched(part)] == [1, 4, 7]
    assert len(part.steps) == 13


def test_between_those_steps_and_afterwards_no_layer_has_a_hook(trained: Trained) -> None:
    before, watching, between, after = trained.part("mlp").told["hooks"]
    assert watching[0] > between[0] == before[0] == 0
    assert after == before


def test_two_models_are_watched_apart_each_by_the_steps_of_its_own_optimizer(trained: Trained) -> None:
    lines = watched(trained.part("two"))
    assert [("weight_norm/one.0" in line, "weight_norm/other.0" in line) for line in lines] == [
        (True, False),
        (True, False),
        (False, True),
    ]


def test_attention_weights_that_are_returned_or_kept_give_an_entropy(trained: Trained) -> None:
    part = trained.part("attention")
    (line,) = watched(part)
    assert line["attention_entropy/0"] == pytest.approx(part.told)  # all weights are equal
    assert 0 < line["attention_entropy/1.attention"] < part.told + 1e-6


def test_of_a_deep_model_a_bounded_number_of_layers_is_watched_and_the_run_says_so(trained: Trained) -> None:
    part = trained.part("deep")
    (line,) = watched(part)
    layers = [name for name in line if name.startswith("gradient_norm/")]
    assert len(layers) == part.told
    assert {"gradient_norm/0", "gradient_norm/99"} <= set(layers)
    (note,) = [line for line in part.lines if line.get("event") == "not_seen"]
    assert "100 layers" in note["message"]


def test_gradients_that_a_fused_optimizer_unscales_are_recorded_unscaled(trained: Trained) -> None:
    part = trained.part("scaled")
    assert watched(part)[0]["gradient_norm/0"] == pytest.approx(part.told, rel=1e-4)


def test_layers_of_a_wrapped_model_keep_their_names(trained: Trained) -> None:
    lines = watched(trained.part("wrapped"))
    assert [line["gradient_norm/2"] > 0 and line["activation_std/1"] > 0 for line in lines] == [True, True]


def test_a_compiled_model_gives_gradients_and_weights_and_the_run_says_what_is_missing(trained: Trained) -> None:
    part = trained.part("compiled")
    assert all(line["gradient_norm/0"] > 0 for line in watched(part))
    assert len(watched(part)) == 4
    assert any("torch.compile" in line["message"] for line in part.lines if line.get("event") == "not_seen")


def test_sparse_gradients_are_figures_too_and_frozen_layers_have_none(trained: Trained) -> None:
    (line,) = watched(trained.part("odd"))
    assert line["gradient_norm/0"] > 0
    assert "gradient_norm/2" not in line
    assert line["weight_norm/2"] > 0


def test_what_is_not_a_model_causes_a_warning_and_not_an_exception(trained: Trained) -> None:
    assert trained.part("odd").told == [
        "pulsetrain.torch.watch: 'not a model' is not a PyTorch model; it is not watched."
    ]

"""Unmodified PyTorch programs under `pulsetrain run`: what is recorded is what they did, and they do it undisturbed."""

from typing import Any

import pytest
from tests.training.trained import Train, Trained

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.training.amounts import amounts
from pulsetrain.training.flops import named_peak_flops_per_sec

PARTS = [f"{part}_seconds" for part in STEP_PARTS]


@pytest.fixture(scope="module")
def steps(train: Train) -> Trained:
    return train("torch_steps.py")


@pytest.fixture(scope="module")
def odd(train: Train) -> Trained:
    return train("torch_odd.py")


def test_each_update_is_a_step_with_its_loss_and_learning_rate(steps: Trained) -> None:
    single = steps.part("single")
    assert single.values("loss") == pytest.approx(single.told["losses"])
    assert single.values("learning_rate") == pytest.approx(single.told["rates"])
    assert single.values("samples") == [4] * 6
    assert single.values("accumulation") == [1] * 6


def test_of_a_long_and_fast_training_the_losses_are_read_now_and_then(steps: Trained) -> None:
    fast = steps.part("fast")
    seen, told = fast.values("loss"), fast.told["losses"]
    assert len(seen) == len(told)
    assert None not in seen[:500]
    assert None in seen[-500:] and any(seen[-500:])
    assert all(loss is None or loss == pytest.approx(true) for loss, true in zip(seen, told, strict=True))


def test_the_parts_of_each_step_add_up(steps: Trained) -> None:
    for line in steps.steps:
        parts = [line[part] for part in PARTS if part in line]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(line["step_seconds"])
        if "samples" in line:
            assert line["throughput_samples_per_sec"] == pytest.approx(line["samples"] / line["step_seconds"])


@pytest.mark.parametrize("way", ["divided", "multiplied", "whole", "mean of samples"])
def test_micro_batches_make_one_step_with_their_mean_loss(steps: Trained, way: str) -> None:
    accumulated = steps.part(f"accumulation, {way}")
    assert accumulated.values("accumulation") == [4, 4, 4]
    assert accumulated.values("samples") == [16, 16, 16]
    assert accumulated.values("loss") == pytest.approx(accumulated.told["losses"])
    assert accumulated.values("learning_rate") == [0.25] * 3  # a tensor in this program


def test_two_optimizers_that_take_turns_make_one_step(steps: Trained) -> None:
    gan = steps.part("gan")
    assert gan.values("optimizers") == [2] * 5
    assert gan.values("accumulation") == [3] * 5
    assert gan.values("samples") == [4] * 5


def test_each_update_of_the_critic_is_a_step_when_the_generator_has_fewer(steps: Trained) -> None:
    assert len(steps.part("wgan").steps) == 15


def test_an_optimizer_for_each_parameter_inside_the_backward_pass_makes_one_step(steps: Trained) -> None:
    in_backward = steps.part("in backward")
    assert in_backward.values("optimizers") == [4] * 5
    assert in_backward.values("accumulation") == [1] * 5


def test_closures_are_part_of_one_step(steps: Trained) -> None:
    lbfgs = steps.part("lbfgs")
    assert lbfgs.values("accumulation") == lbfgs.told["evaluations"]


def test_updates_that_a_scaler_skips_are_steps_and_losses_are_not_scaled(steps: Trained) -> None:
    scaler = steps.part("scaler")
    assert scaler.values("loss") == pytest.approx(scaler.told["losses"])
    assert [bool(skipped) for skipped in scaler.values("skipped")] == scaler.told["skipped"]
    assert sum(scaler.told["skipped"]) == 1
    norms = [None if norm == float("inf") else pytest.approx(norm) for norm in scaler.told["norms"]]
    assert scaler.values("gradient_norm") == norms
    assert scaler.steps[2]["nonfinite"] == {"gradient_norm": "inf"}


def test_a_scaler_that_is_off_changes_nothing(steps: Trained) -> None:
    disabled = steps.part("disabled scaler")
    assert disabled.values("loss") == pytest.approx(disabled.told["losses"])
    assert disabled.values("skipped") == [None] * 3


def test_a_loss_that_cannot_be_known_is_not_recorded_and_the_run_says_why(steps: Trained) -> None:
    assert steps.part("combined after scaling").values("loss") == [None] * 3
    assert any("combined after GradScaler" in message for message in steps.reported("message"))


@pytest.mark.parametrize("way", ["compiled model", "compiled step"])
def test_compiled_trainings_have_all_their_steps(steps: Trained, way: str) -> None:
    compiled = steps.part(way)
    assert compiled.values("loss") == pytest.approx(compiled.told["losses"])
    assert compiled.values("optimizers") == [1] * 4


def test_what_compiles_as_one_graph_still_does(steps: Trained) -> None:
    assert steps.part("fullgraph clipping").told["norm"] > 0


def test_steps_on_one_batch_each_have_its_samples(steps: Trained) -> None:
    assert steps.part("steps on one batch").values("samples") == [4] * 6


def test_a_program_without_a_loader_has_steps_without_waits(steps: Trained) -> None:
    plain = steps.part("without loader")
    assert len(plain.steps) == 5
    assert plain.values("data_wait_seconds") == [None] * 5


@pytest.mark.parametrize("way", ["own optimizer", "inherited optimizer", "wrapped optimizer"])
def test_optimizers_of_the_programs_own_making_count_once(steps: Trained, way: str) -> None:
    own = steps.part(way)
    assert own.values("optimizers") == [1] * 3
    assert own.values("learning_rate") == [0.5] * 3


def test_waiting_for_data_is_seen(steps: Trained) -> None:
    slow = steps.part("slow loader")
    assert min(slow.values("data_wait_seconds")) >= slow.told["slept"]


def test_a_validation_is_not_waiting_for_data(steps: Trained) -> None:
    validated = steps.part("validation")
    assert validated.values("samples") == [4] * 4
    assert validated.values("other_seconds")[2] >= validated.told["slept"]
    assert max(validated.values("data_wait_seconds")) < validated.told["slept"]


@pytest.mark.parametrize("way", ["norm", "norm of two optimizers", "other norms"])
def test_the_gradient_norm_is_computed_now_and_then_for_a_program_that_does_not(steps: Trained, way: str) -> None:
    part = steps.part(way)
    norms = part.values("gradient_norm")
    assert norms[3] == pytest.approx(part.told["norms"][3])  # after a second without one
    assert norms[4:] == [None, None]


def test_the_gradient_norm_of_a_program_that_clips_is_its_own(steps: Trained) -> None:
    clipped = steps.part("norm of clipped layers")
    assert clipped.values("gradient_norm") == pytest.approx(clipped.told["norms"])


def test_batches_are_counted_by_what_is_in_them(steps: Trained) -> None:
    kinds = steps.part("kinds of batches")
    assert kinds.values("samples") == [3, 3, 2, 2, None]
    assert kinds.values("tokens") == [24, 24, None, None, None]


@pytest.mark.parametrize(
    "way",
    [
        *("patched backward", "patched iterator", "pairs", "generator", "iterable data set", "workers"),
        *("spawned workers", "odd arguments", "no parameter groups", "after errors", "thread", "child"),
        *("meta device", "checkpoints", "functional", "vectors", "sparse", "sharded"),
    ],
)
def test_odd_programs_have_their_three_steps(odd: Trained, way: str) -> None:
    assert odd.part(way).values("optimizers") == [1, 1, 1]


def test_workers_that_persist_serve_two_epochs(odd: Trained) -> None:
    assert odd.part("workers that persist").values("samples") == [4] * 6
    assert odd.told["workers that persist"]["type"] == "_MultiProcessingDataLoaderIter"


def test_what_a_program_put_in_the_place_of_functions_is_called(odd: Trained) -> None:
    patched = odd.part("patched backward")
    assert patched.values("loss") == pytest.approx(patched.told["losses"])
    assert odd.told["patched iterator"]["calls"] == 4
    assert odd.told["odd arguments"]["seen"] == [1, 2, 3]
    assert odd.told["scripted"]["gradient"] == 2.0


def test_types_names_and_signatures_stay(odd: Trained) -> None:
    kept = odd.told["kept"]
    assert kept["type"] == "_SingleProcessDataLoaderIter"
    assert kept["default"] == "over"
    assert kept["name"] == "backward"
    assert kept["signature"].startswith("(tensors:")
    assert kept["clip"][:3] == ["parameters", "max_norm", "norm_type"]
    assert kept["scale"] == ["self", "outputs"]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("closure", ["ArithmeticError", "in the closure", "closure"]),
        ("data", ["KeyError", "'row 0'", "__getitem__"]),
        ("backward", ["ValueError", "no gradient today", "backward"]),
        ("vector", ["RuntimeError", "grad can be implicitly created only for ", "_make_grads"]),
        ("twice", ["RuntimeError", "Trying to backward through the graph a s", "_engine_run_backward"]),
        ("arguments", ["TypeError", "Tensor.backward() takes from 1 to 5 posi", "<lambda>"]),
        ("clip", ["TypeError", "clip_grad_norm_() missing 1 required pos", "_no_grad_wrapper"]),
        ("scaler", ["AssertionError", "Attempted step but _scale is None.  This", "_check_scale_growth_tracker"]),
    ],
)
def test_errors_of_the_program_pass_as_they_are(odd: Trained, where: str, error: list[str]) -> None:
    assert odd.told["errors"][where] == error
    assert odd.part("errors").steps == []


@pytest.mark.parametrize("way", ["bare optimizer", "unborn optimizer"])
def test_without_an_optimizer_of_pytorch_backward_passes_are_steps_and_the_run_says_so(odd: Trained, way: str) -> None:
    part = odd.part(way)
    assert (part.values("accumulation"), part.values("optimizers")) == ([1] * 3, [None] * 3)
    messages = [message for message in odd.reported("message") if "counted by backward passes" in message]
    assert len(messages) == 1


def test_updates_that_cannot_be_seen_beside_an_optimizer_disturb_nothing_and_the_run_says_so(odd: Trained) -> None:
    assert odd.part("unused optimizer").steps == []
    assert any("no update by a PyTorch optimizer" in message for message in odd.reported("message"))


def test_the_run_says_why_a_gradient_norm_is_missing(odd: Trained) -> None:
    messages = odd.reported("message")
    assert "The gradient norm is not recorded: gradients are sparse." in messages
    assert "The gradient norm is not recorded: gradients are not plain tensors." in messages


def test_without_a_known_peak_nothing_is_counted(steps: Trained) -> None:
    assert steps.reported("flops") == []


@pytest.mark.parametrize("way", ["counted", "own mode"])
def test_operations_are_counted_once_as_pytorch_counts_them(train: Train, way: str) -> None:
    trained = train("torch_flops.py", way, PULSETRAIN_PEAK_TFLOPS="2")
    assert set(trained.values("flops")[5:]) == {trained.told["flops"]}
    assert trained.told["modes"] == 0
    last = trained.steps[-1]
    assert last["mfu_ratio"] == pytest.approx(last["flops"] / last["step_seconds"] / 2e12)
    if way == "own mode":
        assert trained.told["own"] == 5 * trained.told["flops"]


def test_operations_of_a_model_of_tokens_follow_from_its_parameters(train: Train) -> None:
    trained = train("torch_flops.py", "tokens", PULSETRAIN_PEAK_TFLOPS="2")
    assert set(trained.values("flops")[5:]) == {6 * trained.told["parameters"] * 4 * 8}


def test_a_compiled_model_is_not_disturbed_by_counting(train: Train) -> None:
    trained = train("torch_flops.py", "compiled", PULSETRAIN_PEAK_TFLOPS="2")
    assert trained.reported("flops") == []
    assert "FLOPs are not counted: the model is compiled." in trained.reported("message")


def test_an_error_of_ours_is_reported_in_the_run_and_the_training_continues(train: Train) -> None:
    trained = train("torch_error.py", errors=True)
    assert trained.told == {"trained": True}
    assert len(trained.steps) == 4
    (message,) = [line["message"] for line in trained.lines if line.get("event") == "instrumentation_error"]
    assert message == "The watch on data loaders is off after an error: PermissionError: not for your eyes"


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla T4", 65),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA RTX A4000", None),
    ],
)
def test_peaks_go_by_whole_words_of_the_name(name: str, tflops: float | None) -> None:
    peak = named_peak_flops_per_sec(name)
    assert peak == (None if tflops is None else pytest.approx(tflops * 1e12))


class Array:
    """What is asked of an array."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]


class Output:
    def __init__(self, input_ids: Array) -> None:
        self.input_ids = input_ids


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (Array(4, 3), (4, None, None)),
        (Array(), (None, None, None)),
        ([Array(4, 3), Array(4)], (4, None, None)),
        ([Array(), Array(4)], (4, None, None)),
        ([[Array(4, 3), Array(4, 5)], Array(4)], (4, None, None)),
        ([[Array(4, 3), Array(4, 5)], [Array(4), Array(4)]], (4, None, None)),
        (((Array(3, 9, 9), Array(3, 8, 8)), ("cat", "dog")), (2, None, None)),
        (({"input_ids": Array(4, 10)}, "labels"), (4, 40, None)),
        ({"input_ids": Array(4, 10), "labels": Array(4)}, (4, 40, None)),
        ({"name": "x", "pixels": Array(4, 10)}, (4, None, None)),
        (Output(Array(4, 10)), (4, 40, None)),
        (["one", "two"], (None, None, None)),
        ([], (None, None, None)),
        ({}, (None, None, None)),
        (None, (None, None, None)),
        (7, (None, None, None)),
    ],
)
def test_samples_and_tokens_are_found_in_what_loaders_give(batch: Any, found: Any) -> None:
    assert amounts(batch, asked=4) == found

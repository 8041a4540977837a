"""Loops in the shapes of public programs: steps, losses, norms, samples, tokens and phases as they count them."""

import pytest
from tests.training.trained import Train, Trained

PARTS = (
    *("nanoGPT", "minGPT", "MNIST", "careless", "looked first", "whole graph", "frozen", "DCGAN", "LBFGS"),
    *("two optimizers, one loss", "by hand", "autograd.grad", "gradient penalty", "mixed precision"),
    *("compiled step", "with known norm"),
)


@pytest.fixture(scope="module")
def shapes(train: Train) -> Trained:
    return train("torch_shapes.py")


@pytest.mark.parametrize("name", PARTS)
def test_a_loop_is_seen_as_it_counts_itself(shapes: Trained, name: str) -> None:
    part = shapes.part(name)
    told, losses = part.told, part.told["losses"]
    assert part.values("step") == [told["first"] + number for number in range(1, len(losses) + 1)]
    assert part.values("loss") == pytest.approx(losses, rel=1e-5)
    for key, field in {"norms": "gradient_norm", "second_losses": "loss/2"}.items():
        if key in told:
            assert part.values(field) == [None if value is None else pytest.approx(value) for value in told[key]]
    for key in ("samples", "tokens"):
        if key in told:
            assert part.values(key) == told[key]
    if "phases" in told:
        phases = [[line["step"] - told["first"], line["phase"]] for line in part.lines if "phase_seconds" in line]
        assert phases == told["phases"]


def test_an_evaluation_is_not_a_forward_pass(shapes: Trained) -> None:
    part = shapes.part("nanoGPT")
    slept = part.told["slept"]
    assert min(part.reported("phase_seconds")) >= slept
    assert max(part.values("forward_seconds")) < slept
    assert part.values("step_seconds")[0] < slept <= part.values("other_seconds")[3]


def test_what_switches_modes_still_compiles_as_one_graph(shapes: Trained) -> None:
    assert isinstance(shapes.told["compiled modes"]["sum"], float)


def test_a_program_without_an_optimizer_is_counted_by_its_backward_passes_and_the_run_says_so(shapes: Trained) -> None:
    assert sum("counted by backward passes" in message for message in shapes.reported("message")) == 1
    assert shapes.part("by hand").values("optimizers") == [None] * 6

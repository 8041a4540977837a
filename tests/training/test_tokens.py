"""Tokens of language models in plain PyTorch loops under `pulsetrain run`: as many as the program itself counts."""

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module")
def trained(train: Train) -> Trained:
    return train("tokens.py")


@pytest.mark.parametrize("name", ["own batches", "classes", "pairs", "rows of numbers", "masked", "labeled"])
def test_tokens_are_counted_without_padding_and_only_where_there_are_any(trained: Trained, name: str) -> None:
    part = trained.part(name)
    assert part.values("tokens") == part.told


@pytest.mark.parametrize("name", ["masked", "labeled"])
def test_padding_is_counted_apart(trained: Trained, name: str) -> None:
    assert trained.part(name).values("padding_tokens") == trained.told[name + ", padding"]

"""The same figure from a framework and from a tracker counts once; the first wins."""

import sys
from types import ModuleType

import pytest

from pulsetrain.training.metric_sources import FRAMEWORK, MOST_KNOWN, MetricSources


def test_the_first_source_of_a_name_and_step_wins_and_may_log_it_again() -> None:
    sources = MetricSources()
    assert sources.counts("wandb", "accuracy", 5)
    assert not sources.counts("mlflow", "accuracy", 5)
    assert sources.counts("wandb", "accuracy", 5)
    assert sources.counts("mlflow", "accuracy", 6)


def test_a_framework_counts_steps_from_one_and_its_trackers_from_zero() -> None:
    sources = MetricSources()
    assert sources.counts("tensorboard", "val_loss", 49)
    assert not sources.counts(FRAMEWORK, "val_loss", 50)
    assert sources.counts(FRAMEWORK, "val_loss", 100)
    assert not sources.counts("tensorboard", "val_loss", 99)


def test_a_tracker_gets_the_trainers_names_with_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = MetricSources()
    assert sources.counts("wandb", "train/loss", 3) and sources.counts(FRAMEWORK, "loss", 3)
    monkeypatch.setitem(sys.modules, "transformers.trainer", ModuleType("trainer"))
    assert sources.counts(FRAMEWORK, "eval_loss", 10)
    assert not sources.counts("wandb", "eval/loss", 10)
    assert not sources.counts("wandb", "train/loss", 3)


def test_what_is_known_of_a_long_training_stays_small() -> None:
    sources = MetricSources()
    for step in range(MOST_KNOWN + 10):
        sources.counts("wandb", "accuracy", step)
    assert len(sources._first) == MOST_KNOWN

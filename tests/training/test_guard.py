"""Errors of our hooks stay with us."""

from pathlib import Path

import pytest

from pulsetrain.training import process
from pulsetrain.training.guard import guarded


def test_a_hook_that_fails_is_reported_once_and_is_off(tmp_path: Path) -> None:
    calls = []

    @guarded
    def hook(number: int) -> float:
        """Divides."""
        calls.append(number)
        return 1 / number

    process.record_into(str(tmp_path), "1", 0.0)
    assert [hook(2), hook(number=0), hook(0), hook(4)] == [0.5, None, None, None]
    process.close()
    assert calls == [2, 0]
    assert hook.__doc__ == "Divides."
    (file,) = tmp_path.glob("training_metrics_*.jsonl")
    assert file.read_text().count("hook is off after an error: ZeroDivisionError: division by zero") == 1


def test_what_ends_a_program_passes() -> None:
    @guarded
    def hook() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hook()

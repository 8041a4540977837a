"""The thresholds of a settings file hold for every command that compares values with them."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]
RED_DEGREES = "°C\x1b[0m"


def shown_on_a_terminal(arguments: list[str], environment: dict[str, str], folder: Path, until: str) -> bool:
    """Whether a command shows this in one of its first tables; then it is ended."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "pulsetrain", *arguments]
    terminal = {**environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(words, env=terminal, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while until.encode() not in shown and shown.count(b"RAM") < 5:
                shown += os.read(ours, 10_000)
        except OSError:  # it has ended
            pass
        finally:
            process.terminate()
            os.close(ours)
    return until.encode() in shown


@pytest.mark.parametrize("arguments", [["sample"], ["watch"]])
def test_temperatures_have_the_colors_of_the_users_thresholds(
    environment: dict[str, str], tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "pulsetrain.toml").write_text("[thresholds]\ngpu_hot_celsius = 1\ngpu_too_hot_celsius = 2\n")
    simulated = [*arguments, "--simulate", "1xL4"]
    assert shown_on_a_terminal(simulated, {**environment, "NO_COLOR": ""}, tmp_path, RED_DEGREES)


def test_a_gpu_of_a_run_is_idle_up_to_the_users_threshold(pulsetrain: Pulsetrain, tmp_path: Path, home: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text("[thresholds]\nidle_percent = 100\n")
    assert pulsetrain("run", "-q", "--simulate", "1xL4", "--interval", "0.2", "--", "sleep", "1").returncode == 0
    (file,) = home.glob("runs/*/*/account_metrics_*.jsonl")
    last = json.loads(file.read_text().splitlines()[-1])
    assert last["gpu_idle_seconds"] == pytest.approx(last["gpu_seconds"], rel=0.01)

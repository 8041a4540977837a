"""Lays out the recorded trees of tests/recorded, and runs processes on simulated NVIDIA GPUs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.nvml.scenario import Scenario

HERE = Path(__file__).parent


@pytest.fixture
def tree(recorded: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A machine's /sys as a folder that the test may change."""

    def tree(machine: str) -> Path:
        sys = tmp_path / machine / "sys"
        folder = sys
        for line in (recorded / machine / "sys.txt").read_text().splitlines():
            if section := re.fullmatch(r"\[(.+)\]", line):
                folder = sys / section[1]
            elif link := re.fullmatch(r"(\S+) -> (.+)", line):
                (folder / link[1]).parent.mkdir(parents=True, exist_ok=True)
                (folder / link[1]).symlink_to(link[2])
            elif file := re.fullmatch(r"(\S+) = ?(.*)", line):
                (folder / file[1]).parent.mkdir(parents=True, exist_ok=True)
                with (folder / file[1]).open("a") as text:
                    text.write(file[2] + "\n")
        return sys

    return tree


@pytest.fixture
def nvidia(nvml_library: Path, tmp_path: Path) -> Callable[..., Any]:
    """What a snippet finds on simulated NVIDIA GPUs, in a process of its own; nvidia_probe.py has its vocabulary."""

    def nvidia(scenario: Scenario, snippet: str, *, at: float | None = 0, **environ: str) -> Any:
        result = subprocess.run(
            [sys.executable, HERE / "nvidia_probe.py", *([] if at is None else [str(at)])],
            env=_without_gpus()
            | {"PYTHONPATH": str(HERE.parents[1])}
            | scenario.environment(nvml_library, tmp_path / "scenario")
            | environ,
            input=dedent(snippet),
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    return nvidia


@pytest.fixture
def pulsetrain(nvml_library: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line on simulated NVIDIA GPUs."""

    def pulsetrain(scenario: Scenario, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulsetrain", *arguments],
            env=_without_gpus() | scenario.environment(nvml_library, tmp_path / "scenario") | environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return pulsetrain


def _without_gpus() -> dict[str, str]:
    """Our environment without what names the GPUs of this machine, or sets options of ours."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_", "PULSETRAIN_"))
    }

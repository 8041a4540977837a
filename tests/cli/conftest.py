"""Running the real command as a user does."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """Our own environment without settings that would change what a command does."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PULSETRAIN_", "CUDA_")) and k != "LD_LIBRARY_PATH"
    }
    return {**kept, "PULSETRAIN_HOME": str(home)}


@pytest.fixture
def pulsetrain(environment: dict[str, str], tmp_path: Path) -> Pulsetrain:
    def call(*arguments: str, stdin: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulsetrain", *arguments],
            env={**environment, **more},
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
        )

    return call

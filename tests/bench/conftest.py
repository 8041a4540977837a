"""What tests of containers share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine import Engine

Bench = Callable[..., "subprocess.CompletedProcess[str]"]
OPTIONS = ("--simulate", "1xL4", "--carbon-region", "250", "--interval", "0.5", "--network", "none", "--no-plot")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One for all tests of this process."""
    with Engine() as engine:
        yield engine


@pytest.fixture
def environment(engine: Engine, tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PULSETRAIN_", "CUDA_", "DOCKER_"))}
    return {**kept, "PULSETRAIN_HOME": str(tmp_path / "home"), "DOCKER_HOST": engine.address}


@pytest.fixture
def command() -> Callable[..., list[str]]:
    """`pulsetrain bench` of a container, without a network, with a simulated GPU."""
    return lambda *arguments: [sys.executable, "-m", "pulsetrain", "bench", *OPTIONS, *arguments]


@pytest.fixture
def bench(environment: dict[str, str], command: Callable[..., list[str]], tmp_path: Path) -> Bench:
    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True
        )

    return call

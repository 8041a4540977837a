"""Trackers, from an environment of their own: they are large, and users install them only when needed."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.servers import Server

ROOT = Path(__file__).parents[3]
ENVIRONMENT = ROOT / ".venv-trackers"

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder with the trackers' packages."""
    found = next(ENVIRONMENT.glob("lib/python*/site-packages"), None)
    if found is None or not (ENVIRONMENT / "ready").exists():
        reason = f"needs {ENVIRONMENT}: make .venv-trackers/ready"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture
def environment(packages: Path, tmp_path: Path) -> dict[str, str]:
    """In which pulsetrain finds the trackers, and nothing is kept outside of the test's folder."""
    (tmp_path / "wandb").mkdir()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW", "PULSETRAIN"))},
        "PYTHONPATH": str(packages),
        "HOME": str(tmp_path),
        "PULSETRAIN_HOME": str(tmp_path / "home"),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path / "wandb"),
    }


@pytest.fixture
def command(environment: dict[str, str], tmp_path: Path) -> Command:
    """Run a program in that environment."""

    def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words], env={**environment, **more}, cwd=tmp_path, capture_output=True, text=True
        )

    return run


@pytest.fixture
def read_back(command: Command) -> Callable[[str, object], Any]:
    """What a tracker has, by its own reader."""

    def read(kind: str, place: object) -> Any:
        done = command(
            ENVIRONMENT / "bin/python", Path(__file__).with_name("read_back.py"), kind, place, PYTHONPATH=ROOT / "src"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read


class MlflowServer(Server):
    """A tracking server with a database and artifacts of its own."""

    name = "mlflow"
    ready = "/health"

    def arguments(self) -> Sequence[str]:
        return [
            *("-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{self.folder}/server.db"),
            *("--artifacts-destination", str(self.folder / "artifacts")),
        ]


@pytest.fixture
def mlflow(environment: dict[str, str], tmp_path: Path) -> MlflowServer:
    """A server that is not started yet."""
    server = MlflowServer(tmp_path / "mlflow", str(ENVIRONMENT / "bin/python"))
    server.environment = {**environment, "PYTHONPATH": "", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return server

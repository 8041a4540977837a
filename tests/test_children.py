"""Python processes that we start take no modules from the working folder, which may be a stranger's repository."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.sealing import Sealer


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with modules that leave a file behind when they are imported."""
    folder = tmp_path / "repository"
    for module in ("json.py", "msgspec.py", "sitecustomize.py", "pulsetrain/__init__.py", "pulsetrain/__main__.py"):
        (folder / module).parent.mkdir(parents=True, exist_ok=True)
        (folder / module).write_text(f"open({str(folder / 'sprung')!r}, 'a').write(__name__)\n")
    return folder


def call(trap: Path, *command: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    environment = {**kept, "PULSETRAIN_HOME": str(trap.parent / "home"), "PULSETRAIN_SIMULATE": "1xL4"}
    return subprocess.run(command, cwd=trap, env=environment, capture_output=True, text=True)


def test_the_sealer(trap: Path, make_run: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(host=[{"load_1m": 1.0}])
    (segment,) = run.path.glob("vm/host_metrics_*.jsonl")
    monkeypatch.chdir(trap)
    sealer = Sealer(run.path / "vm")
    sealer.add(segment)
    sealer.wait()
    assert segment.with_suffix(".parquet").exists()
    assert not (trap / "sprung").exists()


def test_the_watching_process_of_a_program(trap: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import pulsetrain\nassert pulsetrain.init()\npulsetrain.finish()\n")
    done = call(trap, sys.executable, str(script))
    assert done.returncode == 0 and "Error" not in done.stderr
    assert not (trap / "sprung").exists()


def test_the_training_of_the_demo(trap: Path) -> None:
    done = call(trap, str(Path(sys.executable).with_name("pulsetrain")), "demo", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert not (trap / "sprung").exists()

"""The configuration of a training, by hand and as it is seen: who counts, what is kept of it, and what is covered."""

import hashlib
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from tests.training.trained import Train, run_json

from pulsetrain.runs.provenance import SaidNote, merged_config
from pulsetrain.training import software
from pulsetrain.training.config import MOST_VALUES, plain_config

SCRIPT = """
import os, subprocess, sys
import pulsetrain
from pulsetrain.training import config
pulsetrain.init(config={"lr": 0.1, "model": {"depth": 12}})
config.record({"lr": 5, "seen": "by a hook", "model": {"width": 64}}, "hook")
config.record({"seen": "by another", "batch": 8}, "another hook")
pulsetrain.config(lr=0.2, api_key="sesame-sesame")
pulsetrain.config(3)
for step in range(3):
    pulsetrain.log(step=step, loss=1.0)
if "RANK" not in os.environ:
    subprocess.run([sys.executable, __file__], env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"}, check=True)
"""


def run(home: Path, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    command = [sys.executable, "-m", "pulsetrain", "run", "--simulate", "1xL4", "--quiet", "--", sys.executable]
    return subprocess.run(
        [*command, str(script), *words],
        env={**kept, "PULSETRAIN_HOME": str(home)},
        cwd=script.parent,
        capture_output=True,
        text=True,
    )


def test_a_configuration_under_run_is_recorded_by_the_first_rank_and_the_programs_own_word_counts(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(tmp_path / "home", tmp_path / "train.py")
    assert done.returncode == 0, done.stderr
    assert "neither a dict nor an object" in done.stderr
    found = run_json(tmp_path / "home")
    assert found["config"] == {
        "lr": 0.2,
        "api_key": "***",
        "model": {"depth": 12, "width": 64},
        "seen": "by a hook",
        "batch": 8,
    }
    assert found["config_sources"] == ["pulsetrain.config", "pulsetrain.init", "hook", "another hook"]
    assert len(list(tmp_path.glob("home/runs/*/*/provenance_*"))) == 1
    assert not any(b"sesame-sesame" in file.read_bytes() for file in tmp_path.glob("home/**/*") if file.is_file())


def test_a_configuration_without_end_is_bounded_and_no_array_is_read() -> None:
    class OnGpu:
        shape, dtype = (2, 3), "float32"

        def __str__(self) -> str:
            raise AssertionError("this would wait for the device")

    assert plain_config({"x": OnGpu(), "kind": OnGpu, "many": {3}}) == {
        "x": "OnGpu of shape (2, 3)",
        "kind": f"{OnGpu.__qualname__}",
        "many": [3],
    }
    assert len(plain_config({str(number): number for number in range(10 * MOST_VALUES)})) == MOST_VALUES - 1
    text = "x" * 200_000
    config, sources = merged_config({}, [SaidNote(name, {name: text}, False) for name in ("a", "b")])
    assert (list(config), sources) == (["a"], ["a"])


SEEN = """
import argparse, time
import pulsetrain
parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command")
train = commands.add_parser("train")
train.add_argument("--lr", type=float)
train.add_argument("--hub-token")
argparse.ArgumentParser().parse_known_args(["other"])
args = parser.parse_args()
with open("best.pt", "wb") as file:
    file.write(b"weights")
for step in range(3):
    pulsetrain.log(step=step, loss=1.0)
    if step == 1:
        pulsetrain.note_file("missing.pt", step=0)
        time.sleep(1.2)  # it is known to be missing before the next is noted
pulsetrain.note_file("best.pt")
"""


def test_options_of_argparse_versions_packages_and_noted_files_are_in_the_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SEEN)
    done = run(tmp_path / "home", tmp_path / "train.py", "train", "--lr", "3e-4", "--hub-token", "sesame-sesame")
    assert done.returncode == 0, done.stderr
    found = run_json(tmp_path / "home")
    assert found["config"] == {"command": "train", "lr": 3e-4, "hub_token": "***"}
    assert found["config_sources"] == ["argparse"]
    assert found["versions"]["python"] == sys.version.split()[0]
    (packages,) = tmp_path.glob(f"home/runs/*/{found['packages']}")
    assert "msgspec==" in packages.read_text()
    missing, noted = found["files"]
    assert (noted["path"], noted["bytes"], noted["step"]) == (str(tmp_path / "best.pt"), 7, 2)
    assert noted["sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert missing == {"path": str(tmp_path / "missing.pt"), "kind": "file", "step": 0}


def test_precision_seeds_parameters_and_checkpoints_of_a_training_are_seen(train: Train) -> None:
    trained = train("what_it_was.py", "--lr", "0.05")
    found = trained.about
    assert (found["config"], found["config_sources"]) == ({"lr": 0.05}, ["argparse"])
    assert found["versions"].keys() >= {"python", "torch", "numpy"}
    assert found["training"] == {
        "batch_size": 16,
        "autocast": "bfloat16",
        "world_size": 1,
        "float32_matmul": "highest",
        "parameters": 9,
        "parameter_dtype": "float32",
        "seeds": {"python": 3, "numpy": 4, "torch": 5},
    }
    (saved,) = found["files"]
    written = (trained.home.parent / "model.pt").read_bytes()
    assert (saved["kind"], saved["step"], saved["bytes"]) == ("checkpoint", 4, len(written))
    assert saved["sha256"] == hashlib.sha256(written).hexdigest()


def test_the_config_of_a_hydra_job_is_recorded_as_the_command_line_changed_it(train: Train, user_python: str) -> None:
    if subprocess.run([user_python, "-c", "import hydra"], capture_output=True).returncode:
        pytest.skip("hydra is not installed there")
    trained = train("hydra_job.py", "lr=0.5", "model.depth=12", HUB_KEY="sesame-sesame")
    about = trained.about
    assert about["config"] == {"lr": 0.5, "api_key": "***", "key": "${oc.env:HUB_KEY}", "model": {"depth": 12}}
    assert about["config_sources"] == ["Hydra"]
    assert about["versions"]["hydra"]
    files = [file for file in trained.home.rglob("*") if file.is_file() and file.name != "code.diff"]  # of this test
    assert not any(b"sesame-sesame" in file.read_bytes() for file in files)


def test_the_installed_packages_are_those_that_python_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old_one-1.5-py3.11.egg-info").mkdir()
    (tmp_path / "old_one-1.5-py3.11.egg-info/PKG-INFO").write_text(
        "Metadata-Version: 1.0\nName: old-one\nVersion: 1.5\n"
    )
    (tmp_path / "broken.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = software.packages()
    known = {one.metadata["Name"] for one in metadata.distributions() if one.metadata["Name"]}
    assert set(found) == {re.sub(r"[-_.]+", "-", name).lower() for name in known}
    assert (found["old-one"], found["pytest"]) == ("1.5", pytest.__version__)

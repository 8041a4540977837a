"""How a program is instrumented without a change to it: real interpreters under `pulsetrain run`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AUTOLOAD = Path(__file__).parents[2] / "src/pulsetrain/training/autoload"

FRAMEWORK = """
def trains():
    return "framework works"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def run(home: Path, *command: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-m", "pulsetrain", "run", "--simulate", "1xL4", "--", *command],
        env={**kept, "PULSETRAIN_HOME": str(home), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def bare_python(tmp_path: Path) -> str:
    """An interpreter of an environment in which nothing is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return str(tmp_path / "bare/bin/python")


def test_pulsetrain_need_not_be_installed_in_the_programs_environment(home: Path, tmp_path: Path) -> None:
    script = "import pulsetrain; pulsetrain.log(step=3, loss=0.5); print(pulsetrain.__file__)"
    done = run(home, bare_python(tmp_path), "-c", script)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(AUTOLOAD.parents[1])
    assert "steps   3, loss 0.5 -> 0.5" in done.stderr


def test_a_sitecustomize_that_ours_hides_still_runs(home: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("import sys; sys.mine = 'ran'\n")
    script = "import sys; print(sys.mine); import sitecustomize; print(sitecustomize.__file__)"
    done = run(home, sys.executable, "-c", script, PYTHONPATH=str(tmp_path / "own"))
    assert done.stdout.splitlines() == ["ran", str(tmp_path / "own/sitecustomize.py")]


@pytest.fixture(params=["2.7", "3.6", "3.8"])
def old_python(request: pytest.FixtureRequest) -> str:
    version = str(request.param)
    found = shutil.which(f"python{version}")
    places = [*([found] if found else []), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for place in places:
        if subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:
            return place
    pytest.skip(f"Python {version} is not installed")


def test_a_python_that_is_too_old_runs_as_ever_without_a_word(home: Path, tmp_path: Path, old_python: str) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("import sys; sys.mine = 'ran'\n")
    script = "import sys; sys.stdout.write(sys.mine)"
    done = run(home, old_python, "-c", script, PYTHONPATH=str(tmp_path / "own"), PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == "ran"
    assert "sitecustomize" not in done.stderr
    done = run(home, old_python, "-c", "print('trained')", PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == "trained\n"
    assert "sitecustomize" not in done.stderr and "Traceback" not in done.stderr


def test_the_programs_own_python_path_comes_right_after_ours(home: Path, tmp_path: Path) -> None:
    done = run(home, sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'])", PYTHONPATH="/a:/b")
    assert done.stdout.strip() == f"{AUTOLOAD}:/a:/b"


def test_child_processes_are_instrumented_too(home: Path) -> None:
    script = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import pulsetrain; pulsetrain.log(step=5)"], check=True)
"""
    run(home, sys.executable, "-c", script)
    (file,) = (home / "runs").glob("*/*/training_metrics_*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["step"] for line in lines if "step" in line] == [5]


@pytest.mark.parametrize("module", ["torch", "transformers.trainer", "accelerate.accelerator"])
def test_a_framework_we_cannot_instrument_is_imported_as_ever_and_the_run_says_why(
    home: Path, tmp_path: Path, module: str
) -> None:
    path = tmp_path.joinpath("lib", *module.split("."))
    path.parent.mkdir(parents=True)
    for package in list(path.parents)[: module.count(".")]:
        (package / "__init__.py").write_text("")
    path.with_suffix(".py").write_text(FRAMEWORK)  # it has nothing of what we look for
    done = run(home, sys.executable, "-c", f"import {module} as f; print(f.trains())", PYTHONPATH=str(tmp_path / "lib"))
    assert done.stdout == "framework works\n"
    events = next((home / "runs").glob("*/*/events.jsonl")).read_text()
    assert f"{module} cannot be watched" in events


@pytest.mark.parametrize("flag", ["-I", "-E", "-S", "-IS"])
def test_a_python_that_ignores_us_still_runs_and_the_run_says_why(home: Path, flag: str) -> None:
    done = run(home, sys.executable, flag, "-c", "print('trained')")
    assert done.stdout == "trained\n"
    assert f"no training metrics: `{flag}` makes Python ignore" in done.stderr


def test_instrumentation_can_be_turned_off(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pulsetrain", "run", "--simulate", "1xL4", "--no-instrument", "--", "env"],
        env={**os.environ, "PULSETRAIN_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert str(AUTOLOAD) not in done.stdout
    assert "--no-instrument" in done.stderr


def test_a_program_without_a_framework_pays_almost_nothing(home: Path) -> None:
    script = "import sys; print([name for name in sys.modules if name.startswith('pulsetrain')])"
    assert run(home, sys.executable, "-c", script).stdout == "[]\n"


def test_modules_run_with_m_are_instrumented(home: Path, tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("import pulsetrain; pulsetrain.log(step=9)\n")
    assert "steps   9" in run(home, sys.executable, "-m", "trainer", folder=tmp_path).stderr

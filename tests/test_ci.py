"""The scripts of .ci, in a PATH where nothing can change the machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import program

CI = Path(__file__).parents[1] / ".ci"
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)"
TOLD = 'echo "$@" >> told\n'

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a script in an empty folder, as root by default, with no other commands in PATH than these."""

    def run(script: str, *arguments: str, **commands: str) -> subprocess.CompletedProcess[str]:
        for name, body in {"sleep": "", "id": "echo 0", **commands}.items():
            file = tmp_path / name.replace("_", "-")
            file.write_text(f"#!/bin/sh\n{body}\n")
            file.chmod(0o755)
        for name in ("dirname", "seq", "wc"):
            (tmp_path / name).symlink_to(program(name))
        return subprocess.run(
            [CI / script, *arguments], cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True, text=True
        )

    return run


def told(tmp_path: Path) -> list[str]:
    """What `apt-get` was asked for, without its options."""
    lines = (tmp_path / "told").read_text().splitlines()
    return [line.removeprefix("-qq -o DPkg::Lock::Timeout=600 ") for line in lines]


def test_another_apt_is_waited_for(run: Run, tmp_path: Path) -> None:
    busy = f'[ "$(wc -l < told)" -gt 3 ] || {{ echo "{LOCKED}" >&2; exit 100; }}'
    done = run("apt", "python3-venv", apt_get=TOLD + busy)
    assert (done.returncode, done.stderr) == (0, "")
    assert told(tmp_path) == ["update"] * 4 + ["install -y --no-install-recommends python3-venv"]


def test_what_else_apt_complains_about_is_shown_at_once(run: Run, tmp_path: Path) -> None:
    done = run("apt", "no-such", apt_get=f'{TOLD}[ "$4" = update ] || {{ echo "E: no such package" >&2; exit 100; }}')
    assert done.returncode == 1
    assert done.stderr == "error: apt-get install -y --no-install-recommends no-such: E: no such package\n"
    assert len(told(tmp_path)) == 2


def test_an_apt_that_is_busy_for_ever_is_given_up(run: Run, tmp_path: Path) -> None:
    done = run("apt", "python3-venv", apt_get=f'{TOLD}echo "{LOCKED}" >&2; exit 100')
    assert done.returncode == 1
    assert LOCKED in done.stderr
    assert told(tmp_path) == ["update"] * 120


def test_without_the_right_to_install_what_is_missing_is_named(run: Run, tmp_path: Path) -> None:
    done = run("servers", id="echo 1000", apt_get=TOLD, prometheus="")
    assert done.returncode == 0
    assert done.stderr.startswith("tests of these are skipped, they are not installed: prometheus-pushgateway ")
    assert not (tmp_path / "told").exists()


def test_an_old_python_is_refused_with_a_way_out(run: Run) -> None:
    old = 'case $1 in --version) echo "Python 3.9.2";; *) exit 1;; esac'
    done = run("venv", "oldpython", "folder", "requirements.txt", oldpython=old)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; oldpython is Python 3.9.2" in done.stderr
    assert "hint: make PYTHON=" in done.stderr


BESIDE_OTHERS = "'PYTEST_XDIST_WORKER' in os.environ"


def suite(folder: Path, condition: str, count: int = 1) -> "subprocess.CompletedProcess[str]":
    """Run .ci/tests on tests that fail when `condition` holds."""
    tests = [f"def test_{number}():\n    assert not ({condition})" for number in range(count)]
    (folder / "test_some.py").write_text("\n".join(["import os", *tests]))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(
        [CI / "tests", Path(sys.executable).parent], cwd=folder, env=kept, capture_output=True, text=True
    )


def test_a_test_that_only_its_neighbors_disturb_is_named_and_passes(tmp_path: Path) -> None:
    done = suite(tmp_path, BESIDE_OTHERS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run again alone:\ntest_some.py::test_0\n" in done.stdout


def test_a_fault_fails_alone_too(tmp_path: Path) -> None:
    done = suite(tmp_path, "True")
    assert done.returncode == 1 and "run again alone" in done.stdout


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    done = suite(tmp_path, BESIDE_OTHERS, count=11)
    assert done.returncode == 1 and "run again alone" not in done.stdout


def test_the_files_of_tests_are_in_a_folder_that_no_other_suite_uses_and_are_removed(tmp_path: Path) -> None:
    (tmp_path / "test_files.py").write_text(
        "def test_files(tmp_path):\n    open('used', 'w').write(str(tmp_path))\n    (tmp_path / 'file').touch()"
    )
    used = []
    for _ in range(2):
        assert suite(tmp_path, "False").returncode == 0
        used.append(Path((tmp_path / "used").read_text()))
    assert used[0] != used[1] and not any(folder.exists() for folder in used)


@pytest.mark.parametrize("script", sorted(CI.iterdir()), ids=lambda script: script.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = subprocess.run([program("shellcheck"), script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

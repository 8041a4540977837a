"""A run in progress is known as such from everywhere, and nothing destroys it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsetrain.runs import liveness
from pulsetrain.runs.folder import Home, Host, Run, RunFolder, host_name

START = datetime(2026, 11, 16, 1, 30, 54, tzinfo=UTC)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that was begun on this boot of this machine, by a process whose number and start mean nothing here."""
    folder = Home(tmp_path).create("x", START)
    folder.host_folder(host_name()).mkdir()
    host = Host(pid=1, pid_start=12.5, boot_id=liveness.boot_id())
    folder.save(Run(id=folder.path.name, name="x", start=START, hosts={host_name(): host}))
    return folder


@contextmanager
def watched(run: RunFolder) -> Iterator[None]:
    lock = liveness.hold(run.host_folder(host_name()))
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


def test_a_run_lives_as_long_as_its_lock_is_held(run: RunFolder) -> None:
    with watched(run):
        assert run.load().status == "running"
        assert run.may_live(run.load())
    assert run.load().status == "died"
    assert not run.may_live(run.load())


def test_a_run_in_progress_is_seen_from_another_pid_namespace(run: RunFolder) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs to make a pid namespace")
    look = "import sys; from pathlib import Path; from pulsetrain.runs.folder import RunFolder as R;"
    look += "print(R(Path(sys.argv[1])).load().status)"
    command = [*unshare, sys.executable, "-c", look, str(run.path)]
    with watched(run):
        assert subprocess.run(command, capture_output=True, text=True).stdout == "running\n"
    assert subprocess.run(command, capture_output=True, text=True).stdout == "died\n"


def test_a_run_of_another_machine_lives_as_long_as_its_files_move(run: RunFolder) -> None:
    about = run.load()
    about.hosts = {"far": Host(boot_id="another")}
    about.status = "running"
    run.save(about)
    assert run.load().status == "running"
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    os.utime(run.path / "run.json", (long_ago, long_ago))
    assert run.load().status == "died"
    assert run.may_live(run.load()), "a network may be away for an hour"
    longer_ago = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    os.utime(run.path / "run.json", (longer_ago, longer_ago))
    assert not run.may_live(run.load())


def test_a_recorded_end_is_an_end(run: RunFolder) -> None:
    about = run.load()
    about.status, about.end = "finished", START + timedelta(hours=1)
    run.save(about)
    assert run.load().status == "finished" and not run.may_live(run.load())


def test_a_host_whose_name_leads_out_of_the_run_is_left_out(run: RunFolder) -> None:
    text = (run.path / "run.json").read_text()
    (run.path / "run.json").write_text(text.replace(f'"{host_name()}"', '"../../elsewhere"'))
    assert run.load().hosts == {}


def test_a_lock_file_that_is_a_link_or_a_pipe_is_not_followed(run: RunFolder, tmp_path: Path) -> None:
    lock = run.host_folder(host_name()) / liveness.LOCK_FILE
    os.mkfifo(lock)
    assert run.load().status == "died"
    lock.unlink()
    lock.symlink_to("/dev/zero")
    assert liveness.is_held(lock.parent) is None


def test_a_run_whose_description_is_damaged_does_not_keep_its_job_from_starting(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first, _ = home.open("x", START, "4711")
    (first.path / "run.json").write_text("")
    second, is_new = home.open("x", START, "4711")
    assert is_new and second.path != first.path

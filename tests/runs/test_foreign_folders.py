"""Run folders that are not ours, or not as they should be: read as far as they go, and never further."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pulsetrain.errors import PulsetrainError
from pulsetrain.intensity.run_intensity import RunIntensity, load_run_intensity
from pulsetrain.intensity.slots import ProviderFacts
from pulsetrain.regular_files import open_regular, read_description
from pulsetrain.runs.codec import from_row
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Home, Host, RunFolder
from pulsetrain.runs.line_file import MOST_LINE_BYTES, LineFile

MakeRun = Callable[..., RunFolder]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder", "none"):
        with pytest.raises(OSError):
            open_regular(tmp_path / name)


def test_a_description_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "run.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="too large"):
        read_description(tmp_path / "run.json")


def test_a_line_that_is_too_long_is_skipped_and_the_others_are_read(make_run: MakeRun) -> None:
    folder = make_run(training=[{"step": 1}, {"step": 2}])
    (file,) = folder.files("training")
    first, second = file.read_text().splitlines(keepends=True)
    long = json.dumps({**json.loads(first), "x": "y" * (5 * MOST_LINE_BYTES)})
    file.write_text(f"{first}{long}\n{second}")
    database = Database([folder])
    assert [row["step"] for row in database.rows("SELECT step FROM training")] == [1, 2]
    assert database.damaged_lines == 1
    with LineFile(file) as lines:
        assert [line["step"] for line in lines.all_lines()] == [1, 2]


def test_files_of_a_run_that_are_links_or_pipes_are_left_out(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(training=[{"step": 1}])
    (file,) = folder.files("training")
    secret = tmp_path / "secret.jsonl"
    secret.write_text(file.read_text().replace('"step": 1', '"step": 666'))
    (file.parent / "training_metrics_20261116_120001.jsonl").symlink_to(secret)
    os.mkfifo(file.parent / "training_metrics_20261116_120002.jsonl")
    assert [row["step"] for row in Database([folder]).rows("SELECT step FROM training")] == [1]


def test_removing_a_link_to_a_run_leaves_the_run(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    (tmp_path / "link").symlink_to(folder.path)
    RunFolder(tmp_path / "link").remove()
    assert not (tmp_path / "link").exists() and folder.load().name == "test"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_private_run_of_somebody_else_does_not_hide_the_others(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(id="20261116-120000-ours-0000", name="ours", home=tmp_path / "runs")
    private = make_run(id="20261116-130000-theirs-0000", name="theirs", home=tmp_path / "runs")
    private.path.chmod(0o700)
    for folder in (tmp_path, *list(tmp_path.parents)[:-1]):
        folder.chmod(folder.stat().st_mode | 0o055) if str(folder).startswith("/tmp/") else None

    def look() -> Any:
        home = Home(tmp_path / "runs")
        found = [run.load().name for run in home.runs()], home.resolve("last").load().name
        with pytest.raises(PulsetrainError):
            home.resolve("theirs")
        return found

    assert as_nobody(look) == "(['ours'], 'ours')"


def as_nobody(work: Callable[[], Any]) -> str:
    """What a function returns, as text, in a process without rights of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, repr(work()).encode())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent tells
            os.write(writing, repr(error).encode())
        finally:
            sys.stderr = None
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    return os.read(reading, 65536).decode()


EVIL = "a\x1b[2J\u202eb"
SHOWN = "a\ufffd[2J\ufffdb"


def test_text_of_a_run_can_be_shown_as_it_is(make_run: MakeRun) -> None:
    host = Host(system=EVIL, gpus=[{"name": EVIL}])
    folder = make_run(name=EVIL, command=[EVIL], tags={EVIL: EVIL}, hosts={"vm": host}, end=None)
    run = folder.load()
    assert (run.name, run.command, run.tags) == (SHOWN, [SHOWN], {SHOWN: SHOWN})
    assert (run.hosts["vm"].system, run.hosts["vm"].gpus) == (SHOWN, [{"name": SHOWN}])


def test_a_folder_in_a_run_that_cannot_be_a_hosts_is_none(make_run: MakeRun) -> None:
    folder = make_run(host=[{"load_1m": 1.0}])
    other = folder.path / EVIL
    shutil.copytree(folder.path / "vm", other)
    (other / "host.json").write_text("{}")
    assert list(folder.load().hosts) == ["vm"]
    assert [file.parent.name for file in folder.files("host")] == ["vm"]


def test_text_of_lines_can_be_shown_as_it_is(make_run: MakeRun) -> None:
    folder = make_run(events=[{"kind": "x", "message": EVIL}], training=[{"rank": 0, "loss": 1.0, EVIL: 2.0}])
    with LineFile(next(folder.path.glob("vm/events.jsonl"))) as file:
        assert [line["message"] for line in file.lines()] == [SHOWN]
    with closing(Database([folder])) as database:
        assert [row["message"] for row in database.rows("SELECT message FROM events")] == [SHOWN]
        assert [from_row(row)[SHOWN] for row in database.raw_rows("SELECT * FROM training")] == [2.0]
        assert EVIL not in database.columns("training")
        assert list(database.ask("SELECT message FROM events").rows()) == [(EVIL,)]


def test_carbon_intensities_of_a_stranger_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    about = ProviderFacts(spec="DE", source=EVIL, region=EVIL, accounting="lifecycle")
    record = msgspec.to_builtins(RunIntensity(provider=about))
    (tmp_path / "carbon.json").write_text(json.dumps(record))
    found = load_run_intensity(tmp_path)
    assert found is not None and found.provider.source == SHOWN
    (tmp_path / "carbon.json").unlink()
    (tmp_path / "carbon.json").symlink_to("/dev/zero")
    assert load_run_intensity(tmp_path) is None

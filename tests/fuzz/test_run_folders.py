"""Whatever is in a run folder, every reader says what it can, or why it cannot, and keeps to the folder."""

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.bounds import HANG_SECONDS, fuzz
from tests.fuzz.folders import BAD, CANARY, GOOD, OTHER, Folder, folders, write, write_good

from pulsetrain.cli.main import cli
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run, RunFolder, host_name
from pulsetrain.runs.follow import Follow
from pulsetrain.runs.node import Node
from pulsetrain.runs.outline import outline
from pulsetrain.runs.replay import Replay
from pulsetrain.snapshot import Snapshot

Reader = Callable[[Path], str]
"""Takes the folder of all runs; gives what it would show."""


def command(*words: str) -> Reader:
    """A command of ours, as a user calls it."""

    def read(home: Path) -> str:
        arguments = [word.replace("FOLDER", str(home.parent / "out")) for word in words]
        result = CliRunner().invoke(cli, arguments, env={"PULSETRAIN_HOME": str(home.parent)})
        error = result.exception
        if error and not isinstance(error, PulsetrainError | click.ClickException | SystemExit):
            raise error
        return result.output

    return read


def listed(home: Path) -> str:
    """The good run is listed beside the others."""
    said = command("runs")(home)
    assert GOOD in said
    return said


def outlined(home: Path) -> str:
    with contextlib.suppress(OSError):  # a file that cannot be read: its caller says so
        return repr([*outline(RunFolder(home / BAD), host_name(), 100.0)])
    return ""


def followed(home: Path) -> str:
    follower = Follow(RunFolder(home / BAD), host_name())
    try:
        return repr([follower.read() for _ in range(2)])
    finally:
        follower.close()


def replayed(home: Path) -> str:
    with contextlib.closing(Database([RunFolder(home / BAD)])) as database:
        return repr([*Replay(database, host_name())])


def seen_by_the_node(home: Path) -> str:
    """The good run is followed beside the others."""
    seen: dict[str, list[Snapshot]] = {}

    def note(run: Run, snapshot: Snapshot) -> None:
        seen.setdefault(run.name, []).append(snapshot)

    node = Node([str(home)], note)
    for _ in range(2):
        node.look()
    node.stop()
    assert any(sample.values.get("loss") == 1.5 for snapshot in seen["good"] for sample in snapshot.samples)
    return repr(seen)


READERS: dict[str, Reader] = {
    "runs": listed,
    "runs --json": command("runs", "--json"),
    "report": command("report", BAD),
    "report --json": command("report", BAD, "--json"),
    "report --markdown": command("report", BAD, "--markdown"),
    "report --html": command("report", BAD, "--html", "--output", "FOLDER"),
    "compare": command("compare", GOOD, BAD),
    "compare --html": command("compare", BAD, OTHER, "--html", "FOLDER/compare.html"),
    "query gpu": command("query", "SELECT * FROM gpu"),
    "query training": command("query", "SELECT * FROM training", "--json"),
    "query events": command("query", "SELECT * FROM events", "--csv"),
    "query runs": command("query", "SELECT * FROM runs"),
    "export csv": command("export", BAD, "--format", "csv", "--output", "FOLDER"),
    "export jsonl": command("export", BAD, "--format", "jsonl", "--output", "FOLDER"),
    "replay": command("replay", BAD, "--speed", "inf"),
    "top": command("top", BAD, "--once"),
    "outline": outlined,
    "follow": followed,
    "replay as snapshots": replayed,
    "node": seen_by_the_node,
    "seal": command("runs", "seal", BAD),
    "report of what is sealed": command("report", BAD),
    "prune": command("runs", "prune", "--older-than", "0s", "-y"),
}
"""In this order: the last ones change the folder."""


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """A reader that hangs is a failure, shown with the place at which it does."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it hangs")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of an example that breaks a reader
@fuzz(20)
@given(bad=folders, other=folders, readers=st.sets(st.sampled_from(sorted(READERS)), min_size=4, max_size=6))
def test_every_reader_survives_every_folder_and_keeps_to_it(bad: Folder, other: Folder, readers: set[str]) -> None:
    with tempfile.TemporaryDirectory() as top:
        home, outside = Path(top) / "runs", Path(top) / "outside"
        write_good(outside, secret=True)
        write_good(home / GOOD)
        write(bad, home / BAD, outside)
        write(other, home / OTHER, outside)
        (Path(top) / "out").mkdir()
        before = sorted(outside.rglob("*"))
        for name in (name for name in READERS if name in readers):
            try:
                with no_hang():
                    said = READERS[name](home)
            except PulsetrainError as error:
                said = str(error)
            except Exception as error:
                error.add_note(f"reader: {name}")
                raise
            assert CANARY not in said, name
        assert sorted(outside.rglob("*")) == before

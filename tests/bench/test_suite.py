"""Suite files."""

from pathlib import Path

import pytest

from pulsetrain.bench.declaration import Benchmark, checked, parse_mount, parse_size
from pulsetrain.bench.suite import read_suite, turns
from pulsetrain.errors import UsageError

SUITE = """
repeat = 2
warm-up = 1
[benchmarks.a]
command = "python a.py --fast"
[benchmarks.b]
image = "b:1"
command = ["--epochs", "3"]
shm-size = "1g"
repeat = 3
"""


def test_a_suite_is_run_in_turn_after_all_warm_ups(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(SUITE)
    found, order = read_suite(tmp_path / "suite.toml")
    assert found[0].command == ("python", "a.py", "--fast") and found[1].shm_size == "1g"
    names = [f"{turn.benchmark.name}:{turn.folder}" for turn in turns(found, order)]
    assert names == ["a:warm-up-1", "b:warm-up-1", "a:repeat-1", "b:repeat-1", "a:repeat-2", "b:repeat-2", "b:repeat-3"]
    one_by_one = [turn.benchmark.name for turn in turns(found, "sequential")]
    assert one_by_one == ["a"] * 3 + ["b"] * 4


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "benchmarks"),
        ("[benchmarks]", "has no benchmarks"),
        ("[benchmarks.a]", "neither an image nor a command"),
        ("[benchmarks.a]\ncommand='x'\nshm-size='1g'", "shm-size needs a container image"),
        ("[benchmarks.a]\nimage='x'\nmemory='lots'", "'lots' is not a size"),
        ("[benchmarks.a]\nimage='x'\nspeed=3", "unknown field `speed`"),
        ("[benchmarks.a]\ncommand='x'\nscore='no group'", "has 0 groups"),
        ("[benchmarks.a]\ncommand='x'\nrepeat=0", "repeat must be at least 1"),
        ("[benchmarks.'a b']\ncommand='x'\n[benchmarks.'a-b']\ncommand='x'", "same folder"),
        ("not toml", "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_suite_is_said(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "suite.toml").write_text(text)
    with pytest.raises(UsageError, match=error):
        read_suite(tmp_path / "suite.toml")


def test_sizes_and_mounts_are_those_of_container_engines() -> None:
    assert (parse_size("512m"), parse_size("1.5g"), parse_size("")) == (512 * 2**20, 3 * 2**29, None)
    assert parse_mount("/data:/in:ro") == ("/data", "/in", "ro") and parse_mount("vol:/in") == ("vol", "/in", "rw")
    with pytest.raises(UsageError):
        parse_mount("/data")
    with pytest.raises(UsageError, match="timeout"):
        checked(Benchmark(name="a", command=("x",), timeout=float("nan")))

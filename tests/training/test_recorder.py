"""The recorder inside the training process: cheap, bounded, and never in the way."""

import json
import math
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import eventually

from pulsetrain.training import recorder as recorder_module
from pulsetrain.training import report_writer
from pulsetrain.training.encoder import CORE_FIELDS, LineEncoder
from pulsetrain.training.recorder import Recorder
from pulsetrain.training.values import Pending

STAMP = "20261116_013054"


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(str(tmp_path), STAMP, time.monotonic())
    yield made
    made.close()


def lines(folder: Path, pattern: str = "training_metrics_*.jsonl") -> list[dict[str, Any]]:
    found = [json.loads(line) for file in sorted(folder.glob(pattern)) for line in file.read_text().splitlines()]
    return [line for line in found if line.get("event") not in ("training_process", "training_process_end")]


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_a_step_line_has_all_fields_of_the_older_tools(recorder: Recorder, tmp_path: Path) -> None:
    recorder.add({"step": 1000, "loss": 0.1234, "learning_rate": 1e-4})
    recorder.close()
    (line,) = lines(tmp_path)
    assert set(CORE_FIELDS) <= line.keys()
    assert (line["step"], line["loss"], line["learning_rate"], line["epoch"]) == (1000, 0.1234, 1e-4, None)
    assert line["rank"] == 0 and line["elapsed_seconds"] >= 0 and line["timestamp"].endswith("Z")


def test_a_single_figure_makes_a_short_line(recorder: Recorder, tmp_path: Path) -> None:
    recorder.add({"some_stat": 0.5})
    recorder.close()
    (line,) = lines(tmp_path)
    assert line.keys() == {"timestamp", "elapsed_seconds", "rank", "some_stat"}


@given(st.dictionaries(st.text(min_size=1), st.floats() | st.integers(), max_size=6))
def test_every_number_under_every_name_becomes_valid_json_and_comes_back(fields: dict[str, float]) -> None:
    encoder = LineEncoder(0.0, 0)
    text = encoder.lines([(1.0, dict(fields))], lambda what, message: pytest.fail(message)).decode()
    line = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    for name, value in fields.items():
        if name in ("timestamp", "elapsed_seconds", "rank", "nonfinite"):
            continue
        if isinstance(value, float) and not math.isfinite(value):
            assert line[name] is None
            assert float(line["nonfinite"][name]) == value or math.isnan(value)
        elif isinstance(value, int):
            assert line[name] == value
        else:
            assert line[name] == pytest.approx(value, rel=1e-11)


def test_nan_and_infinity_are_null_and_named_beside(recorder: Recorder, tmp_path: Path) -> None:
    recorder.add({"step": 1, "loss": math.nan, "gradient_norm": -math.inf})
    recorder.close()
    (line,) = lines(tmp_path)
    assert line["loss"] is None and line["gradient_norm"] is None
    assert line["nonfinite"] == {"loss": "nan", "gradient_norm": "-inf"}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (numpy.float32(0.5), 0.5),
        (numpy.int64(7), 7),
        (numpy.array(2.5), 2.5),
        (numpy.array([3.5]), 3.5),
        (True, 1),
        (Fraction(1, 4), 0.25),
    ],
)
def test_scalars_of_all_kinds_are_numbers(recorder: Recorder, tmp_path: Path, value: object, number: float) -> None:
    recorder.add({"x": value})
    recorder.close()
    assert lines(tmp_path)[0]["x"] == number


@pytest.mark.parametrize("value", ["high", [1, 2], {"a": 1}, object(), numpy.zeros(3), 1j])
def test_a_value_that_is_not_a_number_warns_once_and_the_rest_is_recorded(
    recorder: Recorder, tmp_path: Path, value: object
) -> None:
    with pytest.warns(UserWarning, match="'x' is not a number"):
        recorder.add({"x": value, "loss": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.add({"x": value, "loss": 0.25})
    recorder.close()
    figures = [line for line in lines(tmp_path) if "event" not in line]
    assert [line["loss"] for line in figures] == [0.5, 0.25]
    assert all("x" not in line for line in figures)


def test_an_absent_value_is_left_out_without_a_word(recorder: Recorder, tmp_path: Path) -> None:
    recorder.add({"loss": None, "accuracy": 0.5})
    recorder.close()
    assert "loss" not in lines(tmp_path)[0]


class Late(Pending):
    """A value that arrives when the test says so."""

    def __init__(self) -> None:
        self.arrived = threading.Event()

    def ready(self) -> bool:
        return self.arrived.is_set()

    def value(self) -> float:
        return 4.5


def test_a_value_still_on_its_way_is_waited_for_in_the_background_and_order_is_kept(
    recorder: Recorder, tmp_path: Path
) -> None:
    late = Late()
    recorder.add({"step": 1, "loss": 1.0})
    recorder.add({"step": 2, "loss": late})
    recorder.add({"step": 3, "loss": 3.0})
    recorder.flush()
    assert [line["step"] for line in lines(tmp_path)] == [1]
    late.arrived.set()
    recorder.flush()
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 4.5), (3, 3.0)]


def test_lines_reach_the_disk_within_a_second(recorder: Recorder, tmp_path: Path) -> None:
    recorder.add({"step": 1})
    assert eventually(lambda: lines(tmp_path))
    assert recorder_module.FLUSH_SECONDS < 1


def test_reports_come_from_many_threads_at_once(recorder: Recorder, tmp_path: Path) -> None:
    def report(thread: int) -> None:
        for number in range(500):
            recorder.add({"thread": thread, "number": number})

    threads = [threading.Thread(target=report, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    found = lines(tmp_path)
    assert len(found) == 4000
    for number in range(8):
        assert [line["number"] for line in found if line["thread"] == number] == list(range(500))


def test_memory_stays_bounded_when_the_disk_does_not_follow_and_what_is_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST_REPORTS", 1000)
    blocked = tmp_path / "file"
    blocked.write_text("")
    recorder = Recorder(str(blocked / "folder"), STAMP, time.monotonic())  # cannot be made: its parent is a file
    for number in range(20_000):
        recorder.add({"step": number})
        assert len(recorder.reports) <= 1001
    blocked.unlink()
    recorder.close()
    found = lines(blocked / "folder")
    (note,) = [line for line in found if line.get("event") == "reports_dropped"]
    steps = [line["step"] for line in found if "event" not in line]
    assert steps == sorted(steps) and steps[-1] == 19_999
    assert note["dropped_reports"] == 20_000 - len(steps)


def test_files_of_two_processes_of_one_rank_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    recorders = [Recorder(str(tmp_path), STAMP, 0.0) for _ in range(2)]
    for number, recorder in enumerate(recorders):
        recorder.add({"x": number})
        recorder.close()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names[0] == f"training_metrics_{STAMP}.rank3.jsonl" or names[1] == f"training_metrics_{STAMP}.rank3.jsonl"
    assert len(names) == 2


def test_a_full_file_is_continued_in_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writer, "SEGMENT_BYTES", 1000)
    recorder = Recorder(str(tmp_path), STAMP, time.monotonic())
    for number in range(50):
        recorder.add({"step": number})
        recorder.flush()
    recorder.close()
    assert len(list(tmp_path.iterdir())) > 5
    assert sorted(line["step"] for line in lines(tmp_path)) == list(range(50))


def test_a_file_names_the_one_that_it_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writer, "SEGMENT_BYTES", 1000)
    recorder = Recorder(str(tmp_path), STAMP, time.monotonic())
    for number in range(30):
        recorder.add({"step": number})
        recorder.flush()
    recorder.close()
    heads = {
        file.name: json.loads(file.read_text().splitlines()[0]) for file in tmp_path.glob("training_metrics_*.jsonl")
    }
    assert all(head["event"] == "training_process" for head in heads.values())
    continued = [head["continues"] for head in heads.values() if "continues" in head]
    assert len(set(continued)) == len(continued) == len(heads) - 1 and set(continued) <= heads.keys()
    assert "continues" not in heads[f"training_metrics_{STAMP}.jsonl"]


def test_a_new_file_does_not_take_the_name_of_a_sealed_one(tmp_path: Path) -> None:
    (tmp_path / f"training_metrics_{STAMP}.parquet").touch()
    recorder = Recorder(str(tmp_path), STAMP, time.monotonic())
    recorder.add({"step": 1})
    recorder.close()
    (file,) = tmp_path.glob("training_metrics_*.jsonl")
    assert file.name.startswith(f"training_metrics_{STAMP}.pid")


PROGRAM = """
    import os, sys, time, threading
    sys.path.insert(0, {src!r})
    from pulsetrain.training.recorder import Recorder
    recorder = Recorder({folder!r}, "20261116_013054", time.monotonic())
"""


def program(tmp_path: Path, body: str) -> str:
    src = str(Path(recorder_module.__file__).parents[2])
    return textwrap.dedent(PROGRAM.format(src=src, folder=str(tmp_path))) + textwrap.dedent(body)


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("raise ValueError('mine')", 1), ("sys.exit(3)", 3), ("os._exit(4)", 4)],
    ids=["normal end", "exception", "sys.exit", "os._exit"],
)
def test_everything_is_written_however_the_program_ends(tmp_path: Path, end: str, code: int) -> None:
    done = run_python(program(tmp_path, f"for i in range(100): recorder.add({{'step': i}})\n{end}"))
    assert done.returncode == code
    assert [line["step"] for line in lines(tmp_path)] == list(range(100))


def test_a_kill_loses_nothing_that_was_written_before(tmp_path: Path) -> None:
    body = """
    for i in range(100_000_000):
        recorder.add({'step': i})
        time.sleep(0.005)
    """
    process = subprocess.Popen([sys.executable, "-c", program(tmp_path, body)])
    assert eventually(lambda: sum(file.read_text().count("\n") for file in tmp_path.glob("training_metrics_*")) > 400)
    process.kill()
    process.communicate()
    found = [line["step"] for line in lines(tmp_path)]
    assert found == list(range(len(found)))


def test_a_forked_child_records_into_a_file_of_its_own(tmp_path: Path) -> None:
    body = """
    recorder.add({'who': 1})
    recorder.flush()
    pid = os.fork()
    if pid == 0:
        recorder.add({'who': 2})
        recorder.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    recorder.add({'who': 3})
    """
    assert run_python(program(tmp_path, body)).returncode == 0
    files = sorted(tmp_path.glob("training_metrics_*"), key=lambda file: len(file.name))
    assert len(files) == 2
    assert [line["who"] for line in lines(tmp_path, files[0].name)] == [1, 3]
    assert [line["who"] for line in lines(tmp_path, files[1].name)] == [2]


def test_a_forked_child_that_reports_nothing_leaves_no_file_and_loses_nothing(tmp_path: Path) -> None:
    body = """
    recorder.add({'who': 1})
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    """
    assert run_python(program(tmp_path, body)).returncode == 0
    assert len(list(tmp_path.glob("training_metrics_*"))) == 1
    assert len(lines(tmp_path)) == 1


@pytest.mark.parametrize("end", ["", "os._exit(0)"])
def test_a_forked_child_loses_nothing(tmp_path: Path, end: str) -> None:
    body = f"""
    pid = os.fork()
    if pid == 0:
        recorder.add({{'who': 2}})
        {end}
    else:
        os.waitpid(pid, 0)
    """
    assert run_python(program(tmp_path, body)).returncode == 0
    assert [line["who"] for line in lines(tmp_path)] == [2]


def test_where_no_thread_can_be_started_reports_are_written_all_the_same(tmp_path: Path) -> None:
    body = """
    import resource
    threading.stack_size(2**31)
    resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
    for i in range(10):
        recorder.add({'step': i})
    print(threading.active_count())
    """
    done = run_python(program(tmp_path, body))
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert [line["step"] for line in lines(tmp_path) if "step" in line] == list(range(10))
    assert [line["message"] for line in lines(tmp_path) if line.get("event") == "no_thread"]


def test_memory_does_not_grow_with_the_number_of_calls(tmp_path: Path) -> None:
    body = """
    import resource
    def report(n):
        for i in range(n):
            recorder.add({'step': i, 'loss': 0.5})
            while len(recorder.reports) > 20000:
                time.sleep(0.02)
        recorder.flush()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = report(200_000)
    print(report(400_000) - first)
    """
    done = run_python(program(tmp_path, body))
    assert int(done.stdout) < 20_000, done.stdout  # KiB


@pytest.fixture(params=["3.9", "3.10", "3.13"])
def other_python(request: pytest.FixtureRequest) -> str:
    version = str(request.param)
    found = shutil.which(f"python{version}")
    places = [*([found] if found else []), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for place in places:
        if subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:
            return place
    pytest.skip(f"Python {version} is not installed")


def test_it_runs_on_older_and_newer_pythons(tmp_path: Path, other_python: str) -> None:
    body = program(tmp_path, "recorder.add({'step': 1})")
    done = subprocess.run([other_python, "-c", body], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path)[0]["step"] == 1

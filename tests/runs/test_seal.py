"""Sealing: JSON lines become Parquet, in the background, and nothing is lost wherever it is interrupted."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs import export, seal
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder, host_name
from pulsetrain.runs.reports import TrainingReports
from pulsetrain.runs.sealing import Sealer
from pulsetrain.runs.writer import Writer
from pulsetrain.snapshot import Sample, Snapshot, Subject
from pulsetrain.supervise import DOWN_AFTER_FAILURES, Supervisor
from pulsetrain.training import report_writer
from pulsetrain.training.recorder import Recorder

MakeRun = Callable[..., RunFolder]
NAME = "gpu_metrics_20261116_120000"
STEPS = ("written", "on the disk", "renamed", "the name on the disk", "sealed", "with its pyramid")


def rows(run: RunFolder, table: str = "gpu") -> list[dict[str, Any]]:
    database = Database([run])
    try:
        return database.rows(f"SELECT * FROM lines.{table} ORDER BY elapsed_seconds")
    finally:
        database.close()


def damaged(run: RunFolder) -> int:
    database = Database([run])
    try:
        return database.damaged_lines
    finally:
        database.close()


def names(run: RunFolder) -> list[str]:
    """Without the pyramids, which large files have."""
    return sorted(file.name for file in (run.path / "vm").glob("[!.]*") if file.suffix != ".pyramid")


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    lines: list[dict[str, Any]] = [
        {"gpu_index": number % 2, "uuid": f"GPU-{number % 2}", "power_draw_watts": number + 0.123, "up": 1}
        | ({"power_limit_watts": 72.0, "hotspot_celsius": 80.0} if number % 10 == 0 else {})
        for number in range(200)
    ]
    return make_run(gpu=lines)


def test_a_sealed_segment_has_the_same_rows_in_one_file_of_the_same_name(run: RunFolder) -> None:
    before = rows(run)
    assert seal.seal(run.path / "vm", [f"{NAME}.jsonl"]) == 1
    assert names(run) == [f"{NAME}.parquet"]
    assert rows(run) == before


def test_the_steps_come_in_this_order(run: RunFolder) -> None:
    assert tuple(seal.steps(run.path / f"vm/{NAME}.jsonl")) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_nothing_is_lost_and_the_next_sealing_clears_up(run: RunFolder, step: str) -> None:
    before = rows(run)
    script = f"""
import os, signal
from pathlib import Path
from pulsetrain.runs.seal import steps
for step in steps(Path({str(run.path / f"vm/{NAME}.jsonl")!r})):
    if step == {step!r}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL
    assert rows(run) == before
    seal.seal(run.path / "vm", [f"{NAME}.jsonl"])
    assert names(run) == [f"{NAME}.parquet"]
    assert rows(run) == before


def test_killed_while_it_writes_nothing_is_lost(run: RunFolder) -> None:
    jsonl = run.path / f"vm/{NAME}.jsonl"
    jsonl.write_bytes(jsonl.read_bytes() * 30)
    before = rows(run)
    child = subprocess.Popen([sys.executable, "-m", "pulsetrain.runs.seal", run.path / "vm", jsonl.name])
    while child.poll() is None and not (run.path / f"vm/.{NAME}.parquet").exists():
        time.sleep(0.001)
    child.kill()
    child.wait()
    assert rows(run) == before
    seal.seal(run.path / "vm", [jsonl.name])
    assert names(run) == [f"{NAME}.parquet"]
    assert rows(run) == before


def test_damaged_lines_are_still_counted_and_their_text_is_kept(run: RunFolder) -> None:
    jsonl = run.path / f"vm/{NAME}.jsonl"
    with jsonl.open("ab") as file:
        file.write(b'half a line, "it\'s"\n' + b"\0" * 100_000 + b'\n{"gpu_index":')
    before = rows(run)
    assert damaged(run) == 3
    seal.seal(run.path / "vm", [jsonl.name])
    assert damaged(run) == 3
    assert rows(run) == before
    found = duckdb.connect().execute(f"SELECT key, value FROM parquet_kv_metadata('{jsonl.with_suffix('.parquet')}')")
    text = dict(found.fetchall())[seal.DAMAGED_TEXT.encode()].decode()
    assert text.startswith('half a line, "it\'s"\n')
    assert len(text) <= seal.MOST_DAMAGED_TEXT


def test_a_sealed_file_that_is_not_whole_does_not_cost_the_lines(run: RunFolder) -> None:
    before = rows(run)
    (run.path / f"vm/{NAME}.parquet").write_bytes(b"PAR1 cut off")
    assert rows(run) == before
    seal.seal(run.path / "vm", [f"{NAME}.jsonl"])
    assert names(run) == [f"{NAME}.parquet"]
    assert rows(run) == before


@pytest.mark.parametrize("kind", sorted(export.WRITERS))
def test_a_sealed_file_that_is_damaged_within_is_reported_without_a_traceback(
    run: RunFolder, kind: str, tmp_path: Path
) -> None:
    seal.seal(run.path / "vm", [f"{NAME}.jsonl"])
    file = run.path / f"vm/{NAME}.parquet"
    text = file.read_bytes()
    file.write_bytes(text[:4] + b"\xff" * 400 + text[404:])  # its end is whole
    for read in (rows, lambda run: Database([run]).arrays("SELECT * FROM gpu")):
        with pytest.raises(PulsetrainError, match="a sealed file is damaged: "):
            read(run)
    with pytest.raises((PulsetrainError, OSError)):
        export.WRITERS[kind](Database([run]), "gpu", tmp_path / "out")


def test_a_file_that_is_still_being_written_is_not_sealed(run: RunFolder) -> None:
    jsonl = run.path / f"vm/{NAME}.jsonl"
    steps = seal.steps(jsonl)
    assert next(steps) == "written"
    with jsonl.open("a") as file:
        file.write('{"timestamp":"2026-11-16T13:00:00Z","gpu_index":0}\n')
    with pytest.raises(PulsetrainError, match="still being written"):
        next(steps)
    assert names(run) == [f"{NAME}.jsonl"]
    assert len(rows(run)) == 201


def test_never_two_seal_one_folder_at_once(run: RunFolder) -> None:
    folder = run.path / "vm"
    with (folder / seal.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=seal.seal, args=(folder, [f"{NAME}.jsonl"]))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        assert names(run) == [f"{NAME}.jsonl"]
    waiting.join()
    assert names(run) == [f"{NAME}.parquet"]


def test_all_files_of_an_ended_run_are_sealed_but_its_events(make_run: MakeRun) -> None:
    run = make_run(
        gpu=[{"gpu_index": 0}],
        host=[{"cpu_ratio": 0.5, "cpu_core_ratio": {"0": 0.5}}],
        process=[{"pid": 1, "command": "x"}],
        training=[
            {"event": "training_process", "pid": 2**22 + 1},
            {"step": 1, "nonfinite": {"loss": "nan"}, "f1": 1, "F1": 2},
        ],
        events=[{"kind": "gap", "ticks": 2}],
    )
    tables = ("gpu", "host", "process", "training", "events")
    before = {table: rows(run, table) for table in tables}
    assert seal.seal_all(run) == 4
    assert [name for name in names(run) if name.endswith(".jsonl")] == ["events.jsonl"]
    assert {table: rows(run, table) for table in tables} == before
    assert seal.seal_all(run) == 0


def test_a_training_that_outlives_its_run_keeps_its_file(make_run: MakeRun) -> None:
    run = make_run(host_name=host_name())
    file = run.path / host_name() / "training_metrics_20261116_120000.jsonl"
    with file.open("w") as written:
        written.write(f'{{"timestamp":"2026-11-16T12:00:00Z","event":"training_process","pid":{os.getpid()}}}\n')
        written.flush()
        assert seal.seal_all(run) == 0
    assert seal.seal_all(run) == 1


_values = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8) | st.booleans()


@settings(max_examples=15)
@given(st.lists(st.dictionaries(st.text(max_size=6), _values | st.lists(_values, max_size=2), max_size=5), max_size=6))
def test_whatever_a_program_logs_is_the_same_after_sealing(
    tmp_path_factory: pytest.TempPathFactory, logged: list[dict[str, Any]]
) -> None:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    (run.path / "vm").mkdir()
    file = run.path / "vm/training_metrics_x.jsonl"
    head = {"timestamp": "2026-11-16T12:00:00.000Z"}
    file.write_text(
        "".join(json.dumps({**fields, **head, "elapsed_seconds": n}) + "\n" for n, fields in enumerate(logged))
    )
    before = rows(run, "training")
    assert len(before) == len(logged)
    seal.seal_all(run)
    assert rows(run, "training") == before


# From full segments to Parquet, by themselves


def gpu_at(elapsed: float) -> Snapshot:
    subject = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "Test"})
    return Snapshot(1.8e9 + elapsed, elapsed, (Sample(subject, {"up": 1, "power_draw_watts": elapsed}),))


def test_full_segments_are_sealed_during_the_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    sealer = Sealer(tmp_path / "vm")
    writer = Writer(tmp_path / "vm", datetime.now(UTC), segment_bytes=2000, closed=sealer.add)
    for number in range(50):
        writer(gpu_at(number))
        if number % 10 == 9:
            writer.flush()
    sealer.wait()
    kinds = [file.suffix for file in run.files("gpu")]
    assert kinds.count(".jsonl") == 1 and kinds.count(".parquet") >= 3
    writer.close()
    assert [row["power_draw_watts"] for row in rows(run)] == [float(number) for number in range(50)]


def test_the_watching_process_does_not_load_duckdb(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
import pulsetrain.runs.sealing, pulsetrain.watching.command
sealer = pulsetrain.runs.sealing.Sealer(Path(sys.argv[1]))
sealer.add(Path(sys.argv[1]) / "gpu_metrics_x.jsonl")
sealer.wait()
print("duckdb" in sys.modules)
"""
    (tmp_path / "gpu_metrics_x.jsonl").write_text('{"timestamp":"2026-11-16T12:00:00Z"}\n')
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert (tmp_path / "gpu_metrics_x.parquet").exists()


def test_the_sealing_process_takes_what_nobody_else_wants(tmp_path: Path) -> None:
    script = "import os, pulsetrain.runs.seal as seal; seal._stand_back(); print(os.nice(0))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "19\n"


def test_a_failure_is_said_once_and_what_failed_is_sealed_with_the_next(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run.path / "vm"
    (folder / seal.LOCK).mkdir()  # no lock can be had
    second = folder / "gpu_metrics_20261116_130000.jsonl"
    second.write_bytes((folder / f"{NAME}.jsonl").read_bytes())
    before = rows(run)
    sealer = Sealer(folder)
    for _ in range(2):
        sealer.add(folder / f"{NAME}.jsonl")
        sealer.wait()
    assert len([record for record in caplog.records if "could not be sealed" in record.message]) == 1
    assert rows(run) == before
    (folder / seal.LOCK).rmdir()
    sealer.add(second)
    sealer.wait()
    assert {file.suffix for file in run.files("gpu")} == {".parquet"}
    assert rows(run) == before


def test_a_segment_that_cannot_be_sealed_holds_up_no_other_and_is_named_once(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run.path / "vm"
    bad = folder / "gpu_metrics_20261116_000000.jsonl"  # before all others
    bad.mkdir()
    supervisor = Supervisor()
    sealer = Sealer(folder, supervisor)
    sealer.add(bad)
    for second in range(2):
        good = folder / f"gpu_metrics_20261116_13000{second}.jsonl"
        good.write_bytes((folder / f"{NAME}.jsonl").read_bytes())
        sealer.add(good)
        sealer.wait()
        assert good.with_suffix(".parquet").exists() and not good.exists()
    (health,) = supervisor.health()
    assert (health.name, health.status, health.skipped_items) == ("sealer", "degraded", 1)
    assert len([record for record in caplog.records if "could not be sealed" in record.message]) == 1


def test_a_sealer_that_can_seal_nothing_is_down(run: RunFolder) -> None:
    folder = run.path / "vm"
    (folder / seal.LOCK).mkdir()  # no lock can be had
    supervisor = Supervisor()
    sealer = Sealer(folder, supervisor)
    for _ in range(DOWN_AFTER_FAILURES):
        sealer.add(folder / f"{NAME}.jsonl")
        sealer.wait()
    (health,) = supervisor.troubled()
    assert (health.name, health.status, health.skipped_items) == ("sealer", "down", 1)
    assert "Is a directory" in health.reason


def test_files_of_the_training_are_sealed_and_read_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_writer, "SEGMENT_BYTES", 4000)
    folder = tmp_path / "vm"
    sealer = Sealer(folder)
    source = TrainingReports(folder, closed=sealer.add)
    recorder = Recorder(str(folder), "20261116_120000", time.monotonic())
    steps: list[object] = []
    for number in range(60):
        recorder.add({"step": number})
        recorder.flush()
        steps += [one.values["step"] for one in source.read() if isinstance(one, Sample)]
    recorder.close()
    sealer.wait()
    assert list(source.read()) == []
    source.close()
    assert steps == list(range(60))
    run = RunFolder(tmp_path)
    assert [file.suffix for file in run.files("training")].count(".jsonl") == 1
    assert len(run.files("training")) >= 3
    assert [row["step"] for row in rows(run, "training") if row["step"] is not None] == [float(n) for n in range(60)]


def test_a_file_that_is_sealed_before_it_was_read_is_read_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "vm"
    folder.mkdir()
    file = folder / "training_metrics_20261116_120000.jsonl"
    line = '{{"timestamp":"2026-11-16T12:00:00Z","step":{}}}\n'
    file.write_text(line.format(1))
    source = TrainingReports(folder)
    assert [one.values["step"] for one in source.read() if isinstance(one, Sample)] == [1]
    with file.open("a") as more:
        more.write(line.format(2))
    seal.seal(folder, [file.name])
    assert [one.values["step"] for one in source.read() if isinstance(one, Sample)] == [2]
    assert list(source.read()) == []
    source.close()

"""What is written of a run, and what survives a full disk, a kill and a torn line."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.disks import small
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.runs import writer as writer_module
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.writer import Writer
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.supervise import Supervisor

START = datetime(2026, 11, 16, 1, 30, 54, tzinfo=UTC)
GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "Test"})


def gpu_at(elapsed: float, **values: Value) -> Snapshot:
    return Snapshot(START.timestamp() + elapsed, elapsed, (Sample(GPU, {"up": 1, **values}),))


def lines(folder: Path, pattern: str = "gpu_metrics_*.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.glob(pattern)) for line in file.read_text().splitlines()]


def test_a_gpu_line_has_all_fields_of_the_older_tools_null_where_the_device_has_none(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START)
    writer(gpu_at(1.0256, temperature_celsius=60.0))
    writer.close()
    (line,) = lines(tmp_path)
    assert line["timestamp"] == "2026-11-16T01:30:55.025Z"
    assert line["elapsed_seconds"] == 1.026
    assert line["temperature_celsius"] == 60.0
    absent = [name for name in CORE_GPU_FIELDS if name != "temperature_celsius"]
    assert [line[name] for name in absent] == [None] * len(absent)


def test_labels_that_change_show_in_the_next_line(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START)
    for command in ("sh", "python train.py"):  # the same process, after exec
        subject = Subject("process", "42", {"pid": 42, "command": command})
        writer(Snapshot(START.timestamp(), 0.0, (Sample(subject, {"threads": 1}),)))
    writer.close()
    assert [line["command"] for line in lines(tmp_path, "process_metrics_*")] == ["sh", "python train.py"]


def test_a_reading_that_is_not_json_is_counted_as_lost_and_the_next_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(tmp_path, START)
    writer(gpu_at(0, temperature_celsius=object()))  # type: ignore[arg-type]
    writer(gpu_at(1))
    writer.close()
    assert [line["elapsed_seconds"] for line in lines(tmp_path)] == [1.0]
    assert writer.lost_samples == 1
    assert "cannot be written" in caplog.text


RECURSIVE: dict[str, Any] = {}
RECURSIVE["itself"] = RECURSIVE


@pytest.mark.parametrize(
    "bad",
    [
        Sample(Subject("process", "1", {"pid": 1, "command": "train \udce9"}), {"threads": 1}),
        Sample(Subject("process", "1", {"pid": 1}), {"\udce9": 1}),
        Sample(Subject("gpu", "G"), {"temperature_celsius": object()}),  # type: ignore[dict-item]
        Sample(Subject("gpu", "G"), {"temperature_celsius": 3j}),  # type: ignore[dict-item]
        Sample(Subject("gpu", "G"), {"temperature_celsius": RECURSIVE}),
        Sample(Subject("gpu", "G"), None),  # type: ignore[arg-type]
        Sample(Subject("no such table", "G"), {}),
        Event("gap", "\udce9"),
        Event("gap", "missed", details={"ticks": object()}),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_written_is_left_out_alone_counted_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: Sample | Event
) -> None:
    supervisor = Supervisor()
    writer = Writer(tmp_path, START, supervisor=supervisor)
    samples = (bad,) if isinstance(bad, Sample) else ()
    events = (bad,) if isinstance(bad, Event) else ()
    for number in range(3):
        good = Sample(GPU, {"up": 1, "temperature_celsius": 60.0})
        gap = Event("gap", "missed 2 ticks")
        writer(Snapshot(START.timestamp(), number, (*samples, good), (*events, gap)))
        writer.flush()
    assert writer.close(timeout_seconds=PATIENCE_SECONDS)
    assert [line["elapsed_seconds"] for line in lines(tmp_path)] == [0.0, 1.0, 2.0]
    assert len(lines(tmp_path, "events.jsonl")) == 3
    assert writer.lost_samples == 3
    (health,) = supervisor.health()
    assert (health.name, health.status, health.skipped_items) == ("writer", "degraded", 3)
    assert len([record for record in caplog.records if "cannot be written" in record.getMessage()]) == 1


def test_a_reading_without_a_time_is_left_out_alone(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START)
    writer(Snapshot(float("nan"), 0.0, (Sample(GPU, {"up": 1}),), (Event("gap", "missed 2 ticks"),)))
    writer(gpu_at(1))
    assert writer.close(timeout_seconds=PATIENCE_SECONDS)
    assert [line["elapsed_seconds"] for line in lines(tmp_path)] == [1.0]
    assert writer.lost_samples == 2


def test_an_integer_beyond_all_floats_leaves_its_neighbors_readable(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "vm", START)
    for number, value in enumerate([50, 10**400, 60]):
        writer(gpu_at(number, temperature_celsius=value))
    assert writer.close(timeout_seconds=PATIENCE_SECONDS)
    rows = Database([RunFolder(tmp_path)]).rows("SELECT temperature_celsius AS c FROM gpu WHERE isfinite(c)")
    assert [row["c"] for row in rows] == [50.0, 60.0]


def test_a_writer_that_can_write_nothing_at_all_is_down(tmp_path: Path) -> None:
    supervisor = Supervisor()
    writer = Writer(tmp_path, START, supervisor=supervisor)
    for number in range(5):
        writer(gpu_at(number, temperature_celsius=object()))  # type: ignore[arg-type]
    writer.close()
    (health,) = supervisor.health()
    assert (health.status, health.skipped_items) == ("down", 5)
    assert health.reason.startswith("a sample of gpu, which cannot be written: TypeError")


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def move(self) -> bool:
        self.now += 60.0
        return True


@pytest.fixture
def hanging_events(tmp_path: Path) -> Iterator[Path]:
    """A folder in which whoever writes events hangs: opening a pipe waits for somebody who reads."""
    os.mkfifo(tmp_path / "events.jsonl")
    yield tmp_path
    os.open(tmp_path / "events.jsonl", os.O_RDONLY | os.O_NONBLOCK)  # whoever still waits may go on


def test_a_disk_that_hangs_holds_up_neither_readings_nor_the_end_and_what_is_not_written_is_counted(
    hanging_events: Path,
) -> None:
    clock = Clock()
    supervisor = Supervisor(clock)
    writer = Writer(hanging_events, START, supervisor=supervisor)
    called = []
    writer(Snapshot(START.timestamp(), 0.0, (), (Event("gap", "missed 2 ticks"),)))
    for number in range(100):
        writer(gpu_at(number))
    writer.defer(lambda: called.append("deferred"))
    assert eventually(lambda: clock.move() and supervisor.troubled())
    (health,) = supervisor.health()
    assert str(health).startswith(f"writer: down: writing to {hanging_events}: no progress for ")
    assert not writer.close(last=lambda: called.append("last"), timeout_seconds=0.1)
    assert called == []
    assert writer.lost_samples == 101 - len(lines(hanging_events))


def test_what_was_deferred_is_written_by_the_writing_thread_and_again_until_the_disk_takes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "BATCH_SECONDS", 0.01)
    threads: list[str] = []

    def save() -> None:
        threads.append(threading.current_thread().name)
        if len(threads) < 3:
            raise OSError(28, "No space left on device")

    supervisor = Supervisor()
    writer = Writer(tmp_path, START, supervisor=supervisor)
    writer.defer(save)
    assert eventually(lambda: len(threads) == 3)
    assert writer.close(timeout_seconds=PATIENCE_SECONDS)
    assert threads == ["writer"] * 3
    assert len([record for record in caplog.records if "No space left on device" in record.getMessage()]) == 2
    assert supervisor.troubled() == []


def test_files_bear_the_time_the_run_started(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START)
    writer(gpu_at(0))
    writer.close()
    assert [file.name for file in tmp_path.iterdir()] == ["gpu_metrics_20261116_013054.jsonl"]


def test_events_have_a_file_of_their_own(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START)
    writer(Snapshot(START.timestamp(), 0.0, (), (Event("gap", "missed 2 ticks", "info", {"ticks": 2}),)))
    writer.close()
    (event,) = lines(tmp_path, "events.jsonl")
    assert event["kind"] == "gap" and event["ticks"] == 2 and event["severity"] == "info"


def test_a_full_segment_is_continued_in_a_new_file_and_nothing_is_lost_between(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START, segment_bytes=2000)
    for number in range(100):
        writer(gpu_at(number))
        if number % 10 == 9:
            writer.flush()
    writer.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 3
    assert all(file.stat().st_size < 6000 for file in files)
    assert sorted(int(str(line["elapsed_seconds"]).split(".")[0]) for line in lines(tmp_path)) == list(range(100))


def test_each_full_segment_is_reported_once_and_is_no_longer_written(tmp_path: Path) -> None:
    told: list[tuple[Path, int]] = []
    writer = Writer(tmp_path, START, segment_bytes=2000, closed=lambda path: told.append((path, path.stat().st_size)))
    for number in range(50):
        writer(gpu_at(number))
        writer(Snapshot(START.timestamp(), 0.0, (), (Event("gap", "x" * 500),)))  # the events stay in one file
        if number % 10 == 9:
            writer.flush()
    writer.close()
    files = sorted(tmp_path.glob("gpu_metrics_*"), key=lambda file: file.stat().st_mtime_ns)
    assert [path for path, _ in told] == files[:-1]
    assert [size for _, size in told] == [file.stat().st_size for file in files[:-1]]


def test_a_new_segment_does_not_take_the_name_of_a_sealed_one(tmp_path: Path) -> None:
    (tmp_path / "gpu_metrics_20261116_013054.parquet").touch()
    writer = Writer(tmp_path, START)
    writer(gpu_at(0))
    writer.close()
    assert [file.name for file in tmp_path.glob("*.jsonl")] == ["gpu_metrics_20261116_013054_1.jsonl"]


def test_at_most_two_seconds_stay_unwritten(tmp_path: Path) -> None:
    writer = Writer(tmp_path, START)
    writer(gpu_at(0))
    assert eventually(lambda: len(lines(tmp_path)) == 1)
    assert writer_module.BATCH_SECONDS == 2
    writer.close()


def test_sixty_samples_and_every_event_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BATCH_SECONDS", 3600.0)
    writer = Writer(tmp_path, START)
    for number in range(60):
        writer(gpu_at(number))
    assert eventually(lambda: len(lines(tmp_path)) == 60)
    writer(gpu_at(60))
    writer(gpu_at(61)._replace(events=(Event("alert_firing", "GPU 0 is hot", "warning"),)))
    assert eventually(lambda: len(lines(tmp_path, "events.jsonl")) == 1)
    assert len(lines(tmp_path)) == 62
    writer.close()


def test_a_killed_process_loses_at_most_the_last_batch(tmp_path: Path) -> None:
    script = f"""
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from pulsetrain.runs import writer as module
from pulsetrain.snapshot import Sample, Snapshot, Subject
module.BATCH_SECONDS = 3600.0
writer = module.Writer(Path({str(tmp_path / "vm")!r}), datetime.now(UTC))
gpu = Subject("gpu", "G", {{"gpu_index": 0}})
for number in range(400):
    writer(Snapshot(time.time(), float(number), (Sample(gpu, {{"up": 1}}),)))
time.sleep(3600)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    assert eventually(lambda: sum(file.read_bytes().count(b"\n") for file in tmp_path.rglob("gpu_*")) > 400 - 60)
    process.kill()
    process.wait()
    database = Database([RunFolder(tmp_path)])
    kept = [row["elapsed_seconds"] for row in database.rows("SELECT elapsed_seconds FROM gpu ORDER BY ALL")]
    assert database.damaged_lines <= 1
    assert kept == [float(number) for number in range(len(kept))]
    assert len(kept) > 400 - 60


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    with small(tmp_path / "disk", "128k") as folder:
        yield folder


def test_a_full_disk_is_said_once_and_recording_resumes_with_whole_lines(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 100_000)
    writer = Writer(small_disk / "host", START)
    for number in range(400):
        writer(gpu_at(number))
    writer.flush()
    writer.flush()
    assert len([record for record in caplog.records if "No space left on device" in record.message]) == 1
    filler.unlink()
    writer.flush()
    writer(gpu_at(400))
    writer.close()
    kept = lines(small_disk / "host")
    assert [line["elapsed_seconds"] for line in kept] == [float(number) for number in range(401)]
    assert writer.lost_samples == 0
    (resumed,) = lines(small_disk / "host", "events.jsonl")
    assert resumed["kind"] == "recording_resumed"


def test_when_the_disk_stays_full_the_oldest_lines_go_and_are_counted(small_disk: Path) -> None:
    filler = small_disk / "filler"
    writer = Writer(small_disk / "host", START)
    writer(gpu_at(0))
    writer.flush()
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 1024)
    for number in range(1, 25_000):
        writer(gpu_at(number))
    writer.close()
    kept = len(lines(small_disk / "host"))
    assert kept < 100
    assert writer.lost_samples == 25_000 - kept  # those thrown away, and those that still waited at the end

"""A run while it is being written: its files become the snapshots that they were made of."""

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from pulsetrain.runs import outline as outlines
from pulsetrain.runs.folder import Host, RunFolder, host_name
from pulsetrain.runs.follow import Follow
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.outline import outline, recent
from pulsetrain.runs.seal import seal, seal_all
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Sampler, SamplerClock
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.sources import Options
from pulsetrain.sources.opening import open_sources

MakeRun = Callable[..., RunFolder]
Following = Callable[..., Follow]
START = datetime(2026, 11, 16, 12, tzinfo=UTC)
GPU = {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"}


class FakeClock(SamplerClock):
    """Time that passes only in waits."""

    now = 0.0

    def time(self) -> float:
        return START.timestamp() + self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return stop.is_set()


def here() -> Host:
    """A host whose watching process lives: this one."""
    me = psutil.Process()
    return Host(pid=me.pid, pid_start=me.create_time())


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    """One that goes on, on this machine, and has no lines yet."""
    return make_run(host_name=host_name(), status="running", hosts={host_name(): here()})


def end(run: RunFolder) -> None:
    about = run.load()
    about.status = "finished"
    run.save(about)


def write(run: RunFolder, table: str, *lines: dict[str, Any] | str, stamp: str = "20261116_120000") -> Path:
    """Append lines; a text is written as it is."""
    name = "events.jsonl" if table == "events" else f"{table}_metrics_{stamp}.jsonl"
    path = run.host_folder(host_name()) / name
    with path.open("a") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else text(**line))
    return path


def text(elapsed_seconds: float, **fields: Any) -> str:
    time = (START + timedelta(seconds=elapsed_seconds)).isoformat(timespec="milliseconds")[:-6] + "Z"
    return json.dumps({"timestamp": time, "elapsed_seconds": elapsed_seconds, **fields}) + "\n"


def gpu(elapsed: float, **values: Any) -> dict[str, Any]:
    return {"elapsed_seconds": elapsed, **GPU, **values}


@pytest.fixture
def follow() -> Iterator[Following]:
    """Follow a run on this machine, from a moment on."""
    with contextlib.ExitStack() as opened:

        def follow(run: RunFolder, start: float = -math.inf) -> Follow:
            return opened.enter_context(contextlib.closing(Follow(run, host_name(), start)))

        yield follow


def settled(follow: Follow) -> list[Snapshot]:
    """What is shown when nothing more is written."""
    return [*follow.read(), *follow.read()]


def test_the_snapshots_are_those_that_were_written(run: RunFolder, follow: Following) -> None:
    writer = Writer(run.host_folder(host_name()), START)
    written: list[Snapshot] = []
    opened = open_sources(Options(simulate="2xL4,1xH100"))
    sampler = Sampler(opened.sources, 0.5, [writer, written.append], FakeClock())
    sampler.run(ticks=20)
    sampler.stop()
    writer.close()
    followed = settled(follow(run))
    assert [round(snapshot.elapsed, 3) for snapshot in followed] == [round(s.elapsed, 3) for s in written]
    for was, found in zip(written, followed, strict=True):
        assert found.time == pytest.approx(was.time, abs=0.001)
        for sample in was.samples:
            (again,) = [other for other in found.samples if other.subject == sample.subject]
            assert again.values == {field: value for field, value in sample.values.items() if value is not None}
            assert again.subject.labels == sample.subject.labels


def test_a_tick_is_shown_once_and_when_all_its_files_have_it(run: RunFolder, follow: Following) -> None:
    following = follow(run)
    write(run, "gpu", gpu(0, up=1), gpu(1, up=1))
    assert following.read() == []
    write(run, "host", {"elapsed_seconds": 0, "cpu_ratio": 0.5}, {"elapsed_seconds": 1, "cpu_ratio": 0.6})
    shown = following.read()
    assert [[sample.subject.table for sample in snapshot.samples] for snapshot in shown] == [["gpu", "host"]] * 2
    assert following.read() == []


def test_half_a_line_waits_for_its_rest_and_damaged_ones_are_skipped(run: RunFolder, follow: Following) -> None:
    following = follow(run)
    whole = text(**gpu(1, up=1))
    write(run, "gpu", gpu(0, up=1), "{damaged\n", '{"no": "time"}\n', "[1]\n", whole[:30])
    assert [snapshot.elapsed for snapshot in settled(following)] == [0]
    write(run, "gpu", whole[30:])
    assert [snapshot.elapsed for snapshot in settled(following)] == [1]


def test_reports_of_a_training_join_the_tick_after_them(run: RunFolder, follow: Following) -> None:
    write(run, "host", *({"elapsed_seconds": float(second), "cpu_ratio": 0.1} for second in range(3)))
    write(
        run,
        "training",
        {"elapsed_seconds": 0.0, "event": "training_process", "message": "records"},
        {"elapsed_seconds": 0.4, "rank": 0, "step": 1, "step_seconds": 0.2, "loss": 0.9},
        {"elapsed_seconds": 0.6, "rank": 0, "step": 2, "step_seconds": 0.2, "loss": None, "nonfinite": {"loss": "nan"}},
        {"elapsed_seconds": 1.5, "rank": 1, "step": 2, "accuracy": 0.5},
    )
    _, second, third = settled(follow(run))
    (report,) = [sample for sample in second.samples if sample.subject.table == "training"]
    assert (report.values["step"], report.values["step_seconds"]) == (2, 0.4)
    assert str(report.values["loss"]) == "nan"
    assert [s.values["accuracy"] for s in third.samples if s.subject.key == "rank 1"] == [0.5]


def test_events_are_reported_with_their_details(run: RunFolder, follow: Following) -> None:
    write(run, "gpu", gpu(5, up=0))
    write(run, "events", {"elapsed_seconds": 5, "kind": "gpu_lost", "severity": "error", "message": "gone", "xid": 79})
    (snapshot,) = settled(follow(run))
    assert snapshot.events == (Event("gpu_lost", "gone", "critical", {"xid": 79}),)
    assert snapshot.samples[0].values == {"up": 0}


def test_an_event_without_elapsed_time_is_placed_by_the_clock(run: RunFolder, follow: Following) -> None:
    write(run, "gpu", gpu(0, up=1), gpu(9, up=1))
    line = json.loads(text(4.0, kind="recording_resumed", severity="warning", message="resumed"))
    del line["elapsed_seconds"]
    write(run, "events", json.dumps(line) + "\n")
    first, second, third = settled(follow(run))
    assert [snapshot.elapsed for snapshot in (first, second, third)] == pytest.approx([0, 4, 9])
    assert second.events[0].kind == "recording_resumed"


def test_a_file_that_is_full_is_read_to_its_end_although_it_was_sealed_and_is_gone(
    run: RunFolder, follow: Following
) -> None:
    full = write(run, "gpu", gpu(0, up=1))
    following = follow(run)
    following.read()
    write(run, "gpu", gpu(1, up=1))
    write(run, "gpu", gpu(2, up=1), stamp="20261116_120002")
    seal(full.parent, [full.name])
    assert not full.exists()
    assert [snapshot.elapsed for snapshot in settled(following)] == [0, 1, 2]
    write(run, "gpu", gpu(3, up=1), stamp="20261116_120002")
    assert [snapshot.elapsed for snapshot in settled(following)] == [3]


def test_a_run_that_ends_shows_all_that_is_left_and_says_that_it_was_the_last(
    run: RunFolder, follow: Following
) -> None:
    following = follow(run)
    write(run, "gpu", gpu(0, up=1), gpu(1, up=1))
    write(run, "training", {"elapsed_seconds": 1.2, "rank": 0, "step": 7})
    end(run)
    shown = following.read()
    assert [(snapshot.elapsed, snapshot.last) for snapshot in shown] == [(0, False), (1, False), (1.2, True)]
    assert shown[-1].samples[0].values["step"] == 7
    assert following.ended


def test_a_run_whose_watching_process_is_gone_has_ended(make_run: MakeRun, follow: Following) -> None:
    run = make_run(host_name=host_name(), status="running", hosts={host_name(): Host(pid=1, pid_start=1.0)})
    (only,) = follow(run).read()
    assert only.last


def test_a_folder_that_is_removed_ends_what_follows_it(run: RunFolder, follow: Following) -> None:
    following = follow(run)
    run.remove()
    assert following.read()[-1].last


def test_following_may_begin_at_any_moment(run: RunFolder, follow: Following) -> None:
    write(run, "gpu", *(gpu(second / 10, up=1, power_draw_watts=float(second)) for second in range(5000)))
    shown = settled(follow(run, 489.95))
    assert [snapshot.elapsed for snapshot in shown] == [second / 10 for second in range(4900, 5000)]


@pytest.mark.parametrize("moment", [0.0, 0.05, 123.4, 499.9, 1000.0])
def test_a_moment_is_found_in_a_file(run: RunFolder, moment: float) -> None:
    path = write(run, "gpu", *(gpu(second / 10, up=1, padding="x" * 100) for second in range(5000)))
    with LineFile(path) as file:
        file.seek(moment)
        lines = file.next_tick()
    expected = [second / 10 for second in range(5000) if second / 10 >= moment][:1]
    assert [line["elapsed_seconds"] for line in lines] == expected


def test_a_short_run_needs_no_outline(run: RunFolder) -> None:
    write(run, "gpu", *(gpu(second, up=1) for second in range(100)))
    assert recent(run, host_name()) == -math.inf
    assert list(outline(run, host_name(), -math.inf)) == []


def test_lines_of_one_moment_have_no_outline(make_run: Callable[..., RunFolder]) -> None:
    run = make_run(host_name=host_name(), gpu=[{"gpu_index": 0, "elapsed_seconds": 0.0}] * 3)
    assert list(outline(run, host_name(), math.inf)) == []


@pytest.mark.parametrize("sealed", [False, True])
def test_a_long_run_is_outlined_by_ticks_at_even_distances(
    run: RunFolder, follow: Following, sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines, "RECENT_BYTES", 20_000)
    monkeypatch.setattr(outlines, "PICKS", 50)
    seconds = 7200
    first = write(run, "gpu", *(gpu(t, up=1, power_draw_watts=float(t)) for t in range(0, seconds - 100, 2)))
    write(run, "gpu", *(gpu(t, up=1) for t in range(seconds - 100, seconds, 2)), stamp="20261116_130000")
    write(run, "host", *({"elapsed_seconds": t, "cpu_core_ratio": {"0": 0.5}} for t in range(0, seconds, 2)))
    write(
        run, "training", *({"elapsed_seconds": t + 0.5, "rank": 0, "step": t, "made_up": 1.0} for t in range(seconds))
    )
    write(run, "events", {"elapsed_seconds": 3, "kind": "gap", "severity": "info", "message": "first"})
    if sealed:
        seal(first.parent, [first.name])
    start = recent(run, host_name())
    assert seconds - 500 < start < seconds
    past = list(outline(run, host_name(), start))
    times = [snapshot.elapsed for snapshot in past]
    assert times == sorted(set(times))
    assert times[0] == 0
    assert times[-1] < start
    assert 50 < len(past) < 2 * 50 + 10
    ticks = [{sample.subject.table: sample.values for sample in snapshot.samples} for snapshot in past]
    middle = next(tick for tick, time in zip(ticks, times, strict=True) if time > 1000)
    assert middle.keys() == {"gpu", "host", "training"}
    assert middle["host"]["cpu_core_ratio"] == {"0": 0.5}
    assert middle["training"]["made_up"] == 1.0
    assert [event.message for snapshot in past for event in snapshot.events] == ["first"]
    later = settled(follow(run, start))
    assert later[0].elapsed >= start
    assert later[-1].elapsed == seconds - 2


def test_a_file_whose_first_line_is_damaged_is_outlined_from_its_beginning(run: RunFolder) -> None:
    path = write(run, "gpu", *(gpu(second, up=1) for second in range(100)))
    path.write_bytes(b'{"elapsed_sec\n' + path.read_bytes())
    assert [snapshot.elapsed for snapshot in outline(run, host_name(), 50.0)][:2] == [0, 1]


def test_all_of_a_run_that_was_sealed_is_outlined(run: RunFolder, follow: Following) -> None:
    write(run, "gpu", *(gpu(t, up=1, power_draw_watts=float(t)) for t in range(100)))
    end(run)
    seal_all(run)
    start = recent(run, host_name())
    past = list(outline(run, host_name(), start))
    assert [snapshot.elapsed for snapshot in past] == list(range(100))
    (only,) = follow(run, start).read()
    assert only.last


def test_a_process_on_a_gpu_and_the_same_of_the_command_are_two_subjects(run: RunFolder, follow: Following) -> None:
    on_gpu = {"elapsed_seconds": 0, "pid": 7, "gpu_index": 0, "uuid": "GPU-1", "gpu_memory_mb": 10.0}
    write(run, "process", on_gpu, {"elapsed_seconds": 0, "pid": 7, "cpu_seconds": 1.0})
    (snapshot,) = settled(follow(run))
    values: list[dict[str, Value]] = [{"gpu_memory_mb": 10.0}, {"cpu_seconds": 1.0}]
    subjects = [Subject("process", "7@GPU-1"), Subject("process", "7")]
    assert list(snapshot.samples) == [Sample(s, v) for s, v in zip(subjects, values, strict=True)]

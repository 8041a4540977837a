"""A recorded run once more: the same snapshots, in order, at the pace that was asked for."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pulsetrain.errors import UsageError
from pulsetrain.live import Live
from pulsetrain.runs import replay
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, RunFolder
from pulsetrain.runs.replay import Replay
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Sampler, SamplerClock
from pulsetrain.snapshot import Event, Snapshot, Subject
from pulsetrain.sources import Options
from pulsetrain.sources.opening import open_sources

MakeRun = Callable[..., RunFolder]
START = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
GPU = {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"}


class FakeClock(SamplerClock):
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def time(self) -> float:
        return START + self.now - 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return stop.is_set()


def snapshots(run: RunFolder, host: str = "vm", start: float = 0.0) -> list[Snapshot]:
    database = Database([run])
    try:
        return list(Replay(database, host, start=start))
    finally:
        database.close()


def state(live: Live) -> dict[tuple[str, str], tuple[dict[str, Any], ...]]:
    """All that a live view can show: labels, values and rates of every subject."""
    tables = ("gpu", "mig", "host", "process")
    return {
        (table, found.subject.key): (_known(found.subject.labels), _known(found.values), found.rates)
        for table in tables
        for found in live.table(table)
    }


def _known(fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def test_live_views_show_what_they_showed_when_it_was_recorded(make_run: MakeRun) -> None:
    run = make_run()
    writer = Writer(run.host_folder("vm"), datetime.fromtimestamp(START, UTC))
    live, then = Live(), {}

    def note(snapshot: Snapshot) -> None:
        live(snapshot)
        then[snapshot.elapsed] = state(live)

    opened = open_sources(Options(simulate="2xL4,1xH100"))
    sampler = Sampler(opened.sources, 0.5, [writer, note], FakeClock())
    sampler.run(ticks=40)
    sampler.stop()
    writer.close()

    live, now = Live(), {}
    for snapshot in snapshots(run):
        assert snapshot.time == START + snapshot.elapsed
        live(snapshot)
        now[snapshot.elapsed] = state(live)
    assert len(now) >= 40 and {"gpu", "host"} <= {table for table, _ in now[10.0]}
    assert now == then


def test_values_come_back_as_they_were_and_absent_ones_do_not(make_run: MakeRun) -> None:
    run = make_run(
        gpu=[{**GPU, "up": 1, "fan_speed_percent": None, "throttle_reasons": ["idle", "sw_power_cap"]}],
        host=[{"cpu_core_ratio": {"0": 0.5, "1": 1.0}, "cpu_ratio": 0.75}],
    )
    (snapshot,) = snapshots(run)
    gpu, host = snapshot.samples
    assert gpu.subject == Subject("gpu", "GPU-1") and gpu.subject.labels == GPU
    assert gpu.values == {"up": 1, "throttle_reasons": ["idle", "sw_power_cap"]}
    assert host.values == {"cpu_core_ratio": {"0": 0.5, "1": 1.0}, "cpu_ratio": 0.75}


def test_a_lost_gpu_is_lost_again(make_run: MakeRun) -> None:
    run = make_run(gpu=[{**GPU, "up": 1, "power_draw_watts": 70.0}, {**GPU, "up": 0, "power_draw_watts": None}])
    live = Live()
    for snapshot in snapshots(run):
        live(snapshot)
    (gpu,) = live.table("gpu")
    assert gpu.values == {"up": 0}


def test_subjects_are_distinguished_as_their_sources_do_it(make_run: MakeRun) -> None:
    run = make_run(
        gpu=[{"gpu_index": 3, "uuid": None, "name": "unknown", "elapsed_seconds": 0.0, "up": 0}],
        mig=[{**GPU, "elapsed_seconds": 0.0, "mig_uuid": f"MIG-{i}", "multiprocessors": 14} for i in (1, 2)],
        process=[
            {"pid": 7, "elapsed_seconds": 0.0, "gpu_index": 0, "uuid": "GPU-1", "gpu_memory_mb": 100.0},
            {"pid": 7, "elapsed_seconds": 0.0, "cpu_seconds": 1.0},
        ],
    )
    (snapshot,) = snapshots(run)
    keys = [sample.subject.key for sample in snapshot.samples]
    assert keys == ["index 3", "MIG-1", "MIG-2", "7@GPU-1", "7"]


def test_the_reports_of_each_rank_are_merged_up_to_the_next_tick(make_run: MakeRun) -> None:
    def report(elapsed: float, rank: int, step: int) -> dict[str, Any]:
        return {"elapsed_seconds": elapsed, "rank": rank, "step": step, "step_seconds": 0.25, "samples": 64}

    run = make_run(
        host=[{"cpu_ratio": 0.5}, {"cpu_ratio": 0.5}, {"cpu_ratio": 0.5}],
        training=[
            {"elapsed_seconds": 0.01, "rank": 0, "event": "phase_begin", "message": "x begins", "phase": "x"},
            *(report(0.25 * step, 0, step) for step in range(1, 6)),
            report(0.75, 1, 3),
            report(2.5, 0, 10),
        ],
    )
    first, second, third, last = snapshots(run)
    assert [len(snapshot.samples) for snapshot in (first, third)] == [1, 2]
    _, zero, one = second.samples
    four = {"step": 4, "step_seconds": 1.0, "samples": 256, "step_counts": {"0.25": 4}}
    assert (zero.subject.key, zero.values) == ("rank 0", four)
    assert (one.subject.key, one.values["step_seconds"]) == ("rank 1", 0.25)
    assert third.samples[1].values["step"] == 5
    assert (last.elapsed, last.time, last.samples[0].values["step"]) == (2.5, START + 2.5, 10)


def test_events_stand_in_the_snapshot_of_their_tick_with_all_that_they_said(make_run: MakeRun) -> None:
    xid: dict[str, str | int] = {"gpu_index": 0, "uuid": "GPU-1", "xid": 79, "color": "red"}
    run = make_run(
        host=[{"cpu_ratio": 0.5}, {"cpu_ratio": 0.5}],
        events=[{"elapsed_seconds": 1.0, "kind": "xid", "severity": "error", "message": "XID 79"} | xid],
    )
    first, second = snapshots(run)
    assert first.events == ()
    assert second.events == (Event("xid", "XID 79", "critical", xid),)


def test_an_event_of_the_writer_comes_at_its_wall_clock_time(make_run: MakeRun) -> None:
    resumed = {"elapsed_seconds": 1.5, "kind": "recording_resumed", "severity": "warning", "message": "resumed"}
    run = make_run(host=[{"cpu_ratio": 0.5}] * 3, events=[resumed])
    file = run.host_folder("vm") / "events.jsonl"
    file.write_text(file.read_text().replace('"elapsed_seconds": 1.5, ', ""))
    assert [(s.elapsed, len(s.events)) for s in snapshots(run)] == [(0, 0), (1, 0), (1.5, 1), (2, 0)]


def test_two_lines_of_one_subject_and_tick_become_one_sample(make_run: MakeRun) -> None:
    run = make_run(host=[{"cpu_ratio": 0.5}, {"cpu_ratio": 0.6}, {"elapsed_seconds": 0.0, "cpu_energy_joules": 9.0}])
    first, second = snapshots(run)
    assert [sample.values for sample in first.samples] == [{"cpu_ratio": 0.5, "cpu_energy_joules": 9.0}]
    assert [sample.values for sample in second.samples] == [{"cpu_ratio": 0.6}]


def test_the_folder_of_a_killed_run_replays_up_to_its_cut_off_line(make_run: MakeRun) -> None:
    run = make_run(gpu=[{**GPU, "up": 1}] * 3, status="running")
    file = next(run.host_folder("vm").glob("gpu_metrics_*.jsonl"))
    file.write_bytes(file.read_bytes()[:-20])
    assert [snapshot.elapsed for snapshot in snapshots(run)] == [0.0, 1.0]


def test_a_long_run_is_read_in_pieces_without_losing_or_doubling_a_line(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(
        gpu=[{**GPU, "elapsed_seconds": n * 0.7, "energy_joules": n} for n in range(100)],
        host=[{"elapsed_seconds": n * 1.4, "cpu_ratio": 0.5} for n in range(50)],
        training=[{"elapsed_seconds": n * 0.1, "rank": 0, "step": n, "samples": 1} for n in range(1, 750)],
    )
    whole = snapshots(run)
    monkeypatch.setattr(replay, "WINDOW_LINES", 50)
    assert snapshots(run) == whole
    samples = [sample for snapshot in whole for sample in snapshot.samples]
    assert len([sample for sample in samples if sample.subject.table == "gpu"]) == 100
    assert sum(float(str(s.values["samples"])) for s in samples if s.subject.table == "training") == 749


def test_one_host_is_shown_at_a_time(make_run: MakeRun) -> None:
    make_run(host_name="a", host=[{"cpu_ratio": 0.1}])
    run = make_run(host_name="b", host=[{"cpu_ratio": 0.2}, {"cpu_ratio": 0.3}], hosts={"a": Host(), "b": Host()})
    assert [[s.values for s in snapshot.samples] for snapshot in snapshots(run, "a")] == [[{"cpu_ratio": 0.1}]]
    assert len(snapshots(run, "b")) == 2


def test_it_can_begin_later_and_a_run_without_lines_has_no_snapshots(make_run: MakeRun) -> None:
    run = make_run(host=[{"cpu_ratio": 0.5}] * 5)
    assert [snapshot.elapsed for snapshot in snapshots(run, start=2.5)] == [3.0, 4.0]
    assert snapshots(run, start=10.0) == []
    assert snapshots(make_run("20261116-130000-empty-0000")) == []


# Pace


@pytest.fixture
def gappy(make_run: MakeRun) -> Iterator[Database]:
    """Ticks at 5, 6, 7 and, after a gap, 60 seconds."""
    database = Database([make_run(host=[{"elapsed_seconds": t, "cpu_ratio": 0.5} for t in (5.0, 6.0, 7.0, 60.0)])])
    yield database
    database.close()


def test_snapshots_come_at_the_recorded_pace_times_the_speed_and_gaps_stay(gappy: Database) -> None:
    clock = FakeClock()
    seen: list[tuple[float, float]] = []
    shown = Replay(gappy, "vm", speed=20.0, clock=clock).run(
        [lambda snapshot: seen.append((clock.now - 1000.0, snapshot.elapsed))], threading.Event()
    )
    assert shown == 4
    assert [elapsed for _, elapsed in seen] == [5.0, 6.0, 7.0, 60.0]
    assert [at for at, _ in seen] == pytest.approx([0.0, 0.05, 0.1, 2.75])


def test_a_slow_consumer_does_not_delay_what_follows(gappy: Database) -> None:
    clock = FakeClock()
    seen: list[float] = []

    def slow(snapshot: Snapshot) -> None:
        seen.append(clock.now - 1000.0)
        clock.now += 1.5

    Replay(gappy, "vm", clock=clock).run([slow], threading.Event())
    assert seen == [0.0, 1.5, 3.0, 55.0]


def test_at_infinite_speed_nothing_waits(gappy: Database) -> None:
    clock = FakeClock()
    assert Replay(gappy, "vm", speed=float("inf"), clock=clock).run([], threading.Event()) == 4
    assert set(clock.waits) == {0.0}


def test_it_stops_when_told_to(gappy: Database) -> None:
    stop = threading.Event()
    seen: list[Snapshot] = []

    def consumer(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 2:
            stop.set()

    assert Replay(gappy, "vm", clock=FakeClock()).run([consumer], stop) == 2
    assert len(seen) == 2


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_that_is_none_is_an_error(gappy: Database, speed: float) -> None:
    with pytest.raises(UsageError, match="speed"):
        Replay(gappy, "vm", speed=speed)


def test_a_loss_that_is_not_a_number_and_a_value_of_the_programs_come_again(make_run: Callable[..., RunFolder]) -> None:
    run = make_run(
        host=[{}, {"elapsed_seconds": 3.0}],
        training=[{"rank": 0, "step": 1, "accuracy": 0.5, "loss": None, "nonfinite": {"loss": "nan"}}],
    )
    samples = [sample for snapshot in Replay(Database([run]), "vm") for sample in snapshot.samples]
    (report,) = [sample.values for sample in samples if sample.subject.table == "training"]
    assert report["accuracy"] == 0.5
    assert str(report["loss"]) == "nan"

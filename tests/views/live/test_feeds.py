"""Where snapshots come from: this machine, runs in progress and runs that are over."""

import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import psutil
import pytest
from tests.views.live.viewer import Show, reading
from tests.waiting import eventually

from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import Host, RunFolder, host_name
from pulsetrain.runs.seal import seal_all
from pulsetrain.runs.writer import Writer
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources import Options
from pulsetrain.views.live.feeds import LocalFeed, ReplayFeed, RunFeed, ThreadedFeed
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.session import Session

MakeRun = Callable[..., RunFolder]
LINE = {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"}


def here() -> dict[str, Host]:
    me = psutil.Process()
    return {host_name(): Host(pid=me.pid, pid_start=me.create_time())}


def test_this_machine_is_read_by_ourselves(show: Show) -> None:
    session = Session(WatchOptions(sources=Options(simulate="2xL4"), interval_seconds=0.1))
    session.open()
    feed = LocalFeed(session)
    viewer = show(feed)
    assert eventually(lambda: len(viewer.snapshots) > 3)
    assert feed.live
    assert feed.title == host_name()
    assert len(list(viewer.history.live.table("gpu"))) == 2


def test_a_run_in_progress_is_shown_from_its_beginning_and_on_to_its_end(make_run: MakeRun, show: Show) -> None:
    lines = [{**LINE, "up": 1, "power_draw_watts": float(second)} for second in range(50)]
    run = make_run(gpu=lines, host_name=host_name(), status="running", hosts=here())
    feed = RunFeed(run)
    viewer = show(feed)
    assert (feed.live, feed.title) == (True, f"test on {host_name()}")
    assert eventually(lambda: viewer.watts() == 49.0)
    with next(run.host_folder(host_name()).glob("gpu_*")).open("a") as file:
        late = {"timestamp": "2026-11-16T12:00:50.000Z", "elapsed_seconds": 50.0, **LINE, "up": 0}
        file.write(json.dumps(late) + "\n")
    assert eventually(viewer.lost)
    about = run.load()
    about.status = "finished"
    run.save(about)
    assert eventually(viewer.ended)
    assert [snapshot.elapsed for snapshot in viewer.snapshots] == [*range(51), 50.0]  # the last one only says so
    assert viewer.history.span is not None
    start, end = viewer.history.span
    assert viewer.history.series("gpu", "GPU-1", "power_draw_watts", start - 1, end, 51)[-3:] == [48.0, 49.0, None]


def test_a_run_of_another_machine_is_followed_by_what_its_writer_writes(make_run: MakeRun, show: Show) -> None:
    run = make_run(host_name="gpu01", status="running", hosts={"gpu01": Host(pid=1)})
    writer = Writer(run.host_folder("gpu01"), datetime(2026, 11, 16, 12, tzinfo=UTC))
    viewer = show(RunFeed(run, "gpu01"))
    for number in range(5):
        writer(reading(100.0 + number, float(number)))
    writer.close()
    assert eventually(lambda: viewer.watts() == 104.0)
    assert viewer.in_order()


def test_a_run_that_is_over_is_shown_whole(make_run: MakeRun, show: Show) -> None:
    run = make_run(gpu=[{**LINE, "up": 1, "power_draw_watts": float(number)} for number in range(20)])
    feed = RunFeed(run)
    viewer = show(feed)
    assert eventually(viewer.ended)
    assert not feed.live
    assert len(viewer.snapshots) == 20


def test_the_time_of_a_sealed_run_stops_at_its_end(make_run: MakeRun, show: Show) -> None:
    run = make_run(gpu=[{**LINE, "up": 1, "power_draw_watts": float(number)} for number in range(20)])
    seal_all(run)
    viewer = show(RunFeed(run))
    assert eventually(viewer.ended)
    assert viewer.watts() == 19.0
    assert viewer.history.live.time == datetime(2026, 11, 16, 12, 0, 19, tzinfo=UTC).timestamp()


def test_a_run_that_is_over_can_be_replayed(make_run: MakeRun, show: Show) -> None:
    run = make_run(gpu=[{**LINE, "up": 1, "power_draw_watts": float(number)} for number in range(20)])
    feed = ReplayFeed(run, speed=math.inf)
    viewer = show(feed)
    assert eventually(lambda: viewer.watts() == 19.0)
    assert (feed.live, feed.title) == (False, "test on vm (replay)")


def test_a_run_that_cannot_be_read_for_a_while_is_reported_once_and_continues(make_run: MakeRun, show: Show) -> None:
    run = make_run(
        gpu=[{**LINE, "up": 1, "power_draw_watts": 5.0}], host_name=host_name(), status="running", hosts=here()
    )
    hindrance = run.host_folder(host_name()) / "host_metrics_20261116_120000.parquet"
    hindrance.write_bytes(b"PAR1 is what such a file ends with, but this is none. PAR1")
    viewer = show(RunFeed(run))
    assert eventually(viewer.events)
    hindrance.unlink()
    assert eventually(lambda: viewer.watts() == 5.0)
    assert [event.kind for event in viewer.events()] == ["run_unreadable"]


def test_a_run_without_a_host_cannot_be_shown(make_run: MakeRun) -> None:
    with pytest.raises(UsageError, match="has no host"):
        RunFeed(make_run(hosts={}))


def test_a_replay_that_fails_says_so_and_ends(make_run: MakeRun, show: Show) -> None:
    viewer = show(ReplayFeed(make_run(gpu=[LINE]), speed=-1.0))
    assert eventually(viewer.ended)
    assert [event.kind for event in viewer.events()] == ["feed_failed"]


def test_a_fault_in_a_feed_is_reported_and_does_not_leave_an_old_moment_on_the_screen(show: Show) -> None:
    class Faulty(ThreadedFeed):
        title, live = "faulty", True

        def _snapshots(self) -> Iterator[Snapshot]:
            yield Snapshot(1.8e9, 0.0, ())
            raise KeyError("gpu_index")

    viewer = show(Faulty())
    assert eventually(viewer.ended)
    (event,) = viewer.events()
    assert (event.kind, event.message) == ("feed_failed", "faulty cannot be shown: KeyError: 'gpu_index'")

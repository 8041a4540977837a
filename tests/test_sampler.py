"""The sampler: its grid, its gaps, and that no source can hold up or hide another."""

import threading
import time
from collections.abc import Callable, Iterable

import pytest
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain.sampler import Sampler, SamplerClock
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject
from pulsetrain.supervise import Supervisor

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0})
HOST = Subject("host", "")


class Steady:
    """A source that gives what it is told to."""

    def __init__(
        self,
        give: Callable[[], Iterable[Sample | Event]] = lambda: [Sample(GPU, {"up": 1})],
        name: str = "steady",
        period: float | None = None,
    ) -> None:
        self.name = name
        self.period = period
        self.reads = 0
        self.closed = False
        self._give = give

    def read(self) -> Iterable[Sample | Event]:
        self.reads += 1
        return self._give()

    def close(self) -> None:
        self.closed = True


class FakeClock(SamplerClock):
    """Time that passes only when the sampler waits, or when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 1.8e9
        self.waits: list[float] = []

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.pass_(seconds)
        return stop.is_set()

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


def events(snapshots: list[Snapshot], kind: str) -> list[Event]:
    return [event for snapshot in snapshots for event in snapshot.events if event.kind == kind]


def test_ticks_lie_on_a_grid_however_long_each_one_takes() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        clock.pass_(0.3)  # every tick costs something

    Sampler([Steady()], 1.0, [consume], clock).run(ticks=100)
    assert [snapshot.elapsed for snapshot in seen] == pytest.approx([float(number) for number in range(100)])


def test_a_tick_that_took_too_long_leaves_a_recorded_gap() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 2:
            clock.pass_(3.5)

    Sampler([Steady()], 1.0, [consume], clock).run(ticks=8)
    assert [round(snapshot.elapsed) for snapshot in seen] == [0, 1, 5, 6, 7]
    (gap,) = events(seen, "gap")
    assert gap.details == {"source": "sampler", "ticks": 3, "seconds": 3.0}


def test_a_source_that_hangs_does_not_hold_up_the_others_and_its_gap_is_recorded() -> None:
    release = threading.Event()
    first = threading.Event()

    def hang() -> Iterable[Sample]:
        if not first.is_set():
            first.set()
            release.wait(PATIENCE_SECONDS)
        return [Sample(HOST, {"cpu_ratio": 0.5})]

    seen: list[Snapshot] = []

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        time.sleep(0.01)

    sampler = Sampler([Steady(), Steady(hang, "slow")], 3.0, [consume], FakeClock())
    sampler.start()
    assert eventually(lambda: len(seen) >= 8)
    release.set()
    assert eventually(lambda: events(seen, "gap"))
    sampler.stop()
    before = seen[:8]
    assert all(any(sample.subject == GPU for sample in snapshot.samples) for snapshot in before)
    assert not any("cpu_ratio" in sample.values for snapshot in before for sample in snapshot.samples)
    (gap,) = events(seen, "gap")
    assert gap.details["source"] == "slow"
    assert isinstance(gap.details["ticks"], int) and gap.details["ticks"] >= 6
    # What it gave at last keeps the time at which it was asked.
    late = next(s for s in seen if any("cpu_ratio" in sample.values for sample in s.samples))
    assert late.elapsed == 0.0


def test_a_source_that_never_answers_counts_as_down() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []
    release = threading.Event()

    def hang() -> Iterable[Sample]:
        release.wait(PATIENCE_SECONDS)
        return []

    Sampler([Steady(hang, "hung"), Steady()], 0.5, [seen.append], clock).run(ticks=12)
    release.set()
    (down,) = events(seen, "source_down")
    assert down.message.startswith("hung: no answer for")
    assert _health(seen[-1])["source_up"] == {"hung": 0, "steady": 1}


def test_a_source_that_fails_is_reported_down_once_and_tried_again_with_increasing_delay() -> None:
    seen: list[Snapshot] = []

    def fail() -> Iterable[Sample]:
        raise OSError("cable out")

    source = Steady(fail)
    Sampler([source], 1.0, [seen.append], FakeClock()).run(ticks=50)
    assert 4 <= source.reads <= 8
    (down,) = events(seen, "source_down")
    assert down.message == "steady: OSError: cable out"
    assert _health(seen[-1])["source_up"] == {"steady": 0}


def test_a_source_that_answers_again_is_said_to_be_back() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []
    answers: list[Exception | None] = [OSError("busy"), None, None]

    def give() -> Iterable[Sample]:
        answer = answers.pop(0) if answers else None
        if answer:
            raise answer
        return [Sample(GPU, {"up": 1})]

    Sampler([Steady(give)], 1.0, [seen.append], clock).run(ticks=4)
    assert [event.kind for snapshot in seen for event in snapshot.events] == ["source_down", "source_up"]
    assert _health(seen[-1])["source_up"] == {"steady": 1}


def test_sources_about_the_same_subject_make_one_sample() -> None:
    seen: list[Snapshot] = []
    one = Steady(lambda: [Sample(GPU, {"up": 1, "temperature_celsius": 60.0})], "one")
    two = Steady(lambda: [Sample(Subject("gpu", "GPU-1"), {"sm_active_ratio": 0.5})], "two")
    Sampler([one, two], 1.0, [seen.append], FakeClock()).run(ticks=1)
    (gpu,) = [sample for sample in seen[0].samples if sample.subject.table == "gpu"]
    assert gpu.values == {"up": 1, "temperature_celsius": 60.0, "sm_active_ratio": 0.5}


def test_a_slow_source_is_read_on_its_own_cadence_and_is_only_where_it_was_read() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []
    slow = Steady(lambda: [Sample(GPU, {"power_limit_watts": 300.0})], "slow", period=5.0)

    def has_limit(snapshot: Snapshot) -> bool:
        return any("power_limit_watts" in sample.values for sample in snapshot.samples)

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if snapshot.elapsed % 5 == 0 and not has_limit(snapshot):  # no tick waits for the slow source: we do
            eventually(lambda: not sampler._done.empty())

    sampler = Sampler([Steady(), slow], 1.0, [consume], clock)
    sampler.run(ticks=20)
    with_limit = [snapshot for snapshot in seen if has_limit(snapshot)]
    assert [snapshot.elapsed // 5 for snapshot in with_limit] == [0, 1, 2, 3]
    assert slow.reads == 4
    assert all(len([x for x in s.samples if x.subject == GPU]) == 1 for s in with_limit)


def test_a_jump_of_the_wall_clock_is_recorded_and_durations_do_not_care() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 2:
            clock.wall -= 3600

    Sampler([Steady()], 1.0, [consume], clock).run(ticks=4)
    (jump,) = events(seen, "clock_jump")
    assert jump.details == {"seconds": -3600.0}
    assert [round(snapshot.elapsed) for snapshot in seen] == [0, 1, 2, 3]


def test_a_consumer_that_fails_on_one_snapshot_gets_the_next_and_the_others_get_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Snapshot] = []
    exported: list[Snapshot] = []

    def exporter(snapshot: Snapshot) -> None:
        if len(seen) == 1:
            raise ValueError("not a number")
        exported.append(snapshot)

    Sampler([Steady()], 1.0, [exporter, seen.append], FakeClock()).run(ticks=5)
    assert [round(snapshot.elapsed) for snapshot in seen] == [0, 1, 2, 3, 4]
    assert [round(snapshot.elapsed) for snapshot in exported] == [0, 2, 3, 4]
    assert [record.getMessage() for record in caplog.records] == [
        "exporter skipped a reading: ValueError: not a number"
    ]


def test_what_a_consumer_skipped_is_in_the_snapshots_and_in_one_event() -> None:
    seen: list[Snapshot] = []

    def exporter(snapshot: Snapshot) -> None:
        raise ValueError("not a number")

    Sampler([Steady()], 1.0, [exporter, seen.append], FakeClock()).run(ticks=8)
    assert "part_up" not in _health(seen[0])
    assert [_health(snapshot)["part_skipped_items"] for snapshot in seen[1:3]] == [{"exporter": 1}, {"exporter": 2}]
    assert [_health(snapshot)["part_up"] for snapshot in seen[1:]] == 4 * [{"exporter": 1}] + 3 * [{"exporter": 0}]
    assert [event.kind for snapshot in seen for event in snapshot.events] == ["part_degraded", "part_down"]
    assert events(seen, "part_down")[0].details == {"part": "exporter", "skipped_items": 5}


def test_a_stage_that_fails_on_one_snapshot_leaves_that_one_as_it_was() -> None:
    seen: list[Snapshot] = []

    def ledger(snapshot: Snapshot) -> Snapshot:
        if snapshot.elapsed == 1:
            raise ZeroDivisionError
        return snapshot._replace(last=True)

    Sampler([Steady()], 1.0, [seen.append], FakeClock(), stages=[ledger]).run(ticks=3)
    assert [snapshot.last for snapshot in seen] == [True, False, True]
    assert _health(seen[2])["part_skipped_items"] == {"ledger": 1}


def test_a_source_that_gives_something_else_than_samples_is_down_and_the_others_are_read() -> None:
    seen: list[Snapshot] = []
    odd = Steady(lambda: ["not a sample"], "odd")  # type: ignore[list-item]
    Sampler([odd, Steady()], 1.0, [seen.append], FakeClock()).run(ticks=3)
    assert _health(seen[-1])["source_up"] == {"odd": 0, "steady": 1}
    assert all(any(sample.subject == GPU for sample in snapshot.samples) for snapshot in seen)
    (down,) = events(seen, "source_down")
    assert down.message == "odd: TypeError: it gave a str"


def test_stopping_takes_one_last_reading_and_closes_the_sources() -> None:
    seen: list[Snapshot] = []
    source = Steady()
    sampler = Sampler([source], 30.0, [seen.append])
    sampler.start()
    assert eventually(lambda: seen)
    sampler.stop()
    assert len(seen) == 2
    assert source.closed


def test_a_source_that_cannot_be_closed_keeps_no_other_from_it() -> None:
    class Stubborn(Steady):
        def close(self) -> None:
            raise OSError("it will not")

    other = Steady(name="other")
    supervisor = Supervisor()
    sampler = Sampler([Stubborn(), other], 1.0, supervisor=supervisor)
    sampler.stop()
    assert other.closed
    assert [part.reason for part in supervisor.health()] == ["the end of steady: OSError: it will not"]


def test_each_snapshot_reports_the_health_and_cost_of_the_sources() -> None:
    seen: list[Snapshot] = []
    Sampler([Steady()], 1.0, [seen.append], FakeClock()).run(ticks=1)
    health = _health(seen[0])
    assert health["source_up"] == {"steady": 1}
    assert isinstance(health["source_read_seconds"], dict) and health["source_read_seconds"]["steady"] >= 0
    assert isinstance(health["pulsetrain_cpu_seconds"], float)


def _health(snapshot: Snapshot) -> dict[str, object]:
    return dict(next(sample.values for sample in snapshot.samples if sample.subject == HOST))

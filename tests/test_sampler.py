"""The sampler: its grid, its gaps, and that no source can hold up or hide another."""

import threading
import time
from collections.abc import Callable, Iterable

import pytest

from pulsetrain.sampler import Clock, Sampler
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject

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


class FakeClock(Clock):
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
            release.wait(10)
        return [Sample(HOST, {"cpu_ratio": 0.5})]

    seen: list[Snapshot] = []
    sampler = Sampler([Steady(), Steady(hang, "slow")], 0.1, [seen.append])
    sampler.start()
    while len(seen) < 8:
        time.sleep(0.01)
    release.set()
    while not events(seen, "gap"):
        time.sleep(0.01)
    sampler.stop()
    before = seen[:8]
    assert all(any(sample.subject == GPU for sample in snapshot.samples) for snapshot in before)
    assert not any("cpu_ratio" in sample.values for snapshot in before for sample in snapshot.samples)
    (gap,) = events(seen, "gap")
    assert gap.details["source"] == "slow"
    assert isinstance(gap.details["ticks"], int) and gap.details["ticks"] >= 6
    # What it gave at last keeps the time at which it was asked.
    late = next(s for s in seen if any("cpu_ratio" in sample.values for sample in s.samples))
    assert late.elapsed < 0.1


def test_a_source_that_never_answers_counts_as_down() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []
    release = threading.Event()

    def hang() -> Iterable[Sample]:
        release.wait(10)
        return []

    Sampler([Steady(hang, "hung"), Steady()], 0.5, [seen.append], clock).run(ticks=12)
    release.set()
    (down,) = events(seen, "source_down")
    assert down.message.startswith("hung: no answer for")
    assert _health(seen[-1])["source_up"] == {"hung": 0, "steady": 1}


def test_a_source_that_fails_is_said_down_once_and_tried_again_ever_more_seldom() -> None:
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


def test_a_slow_source_is_read_on_its_own_cadence_and_stands_only_where_it_was_read() -> None:
    clock = FakeClock()
    seen: list[Snapshot] = []
    slow = Steady(lambda: [Sample(GPU, {"power_limit_watts": 300.0})], "slow", period=5.0)

    def consume(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        time.sleep(0.005)  # the slow source is not waited for: give its thread time

    Sampler([Steady(), slow], 1.0, [consume], clock).run(ticks=20)
    assert slow.reads == 4
    with_limit = [s for s in seen if any("power_limit_watts" in sample.values for sample in s.samples)]
    assert 3 <= len(with_limit) <= 4
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


def test_a_consumer_that_fails_is_switched_off_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Snapshot] = []

    def broken(snapshot: Snapshot) -> None:
        raise ValueError("full")

    Sampler([Steady()], 1.0, [broken, seen.append], FakeClock()).run(ticks=5)
    assert len(seen) == 5
    assert len([record for record in caplog.records if "switched off" in record.message]) == 1


def test_stopping_takes_one_last_reading_and_closes_the_sources() -> None:
    seen: list[Snapshot] = []
    source = Steady()
    sampler = Sampler([source], 30.0, [seen.append])
    sampler.start()
    while not seen:
        time.sleep(0.01)
    sampler.stop()
    assert len(seen) == 2
    assert source.closed


def test_each_snapshot_tells_the_health_and_cost_of_the_sources() -> None:
    seen: list[Snapshot] = []
    Sampler([Steady()], 1.0, [seen.append], FakeClock()).run(ticks=1)
    health = _health(seen[0])
    assert health["source_up"] == {"steady": 1}
    assert isinstance(health["source_read_seconds"], dict) and health["source_read_seconds"]["steady"] >= 0
    assert isinstance(health["pulsetrain_cpu_seconds"], float)


def _health(snapshot: Snapshot) -> dict[str, object]:
    return dict(next(sample.values for sample in snapshot.samples if sample.subject == HOST))

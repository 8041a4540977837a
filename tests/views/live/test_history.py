"""What was seen so far: drawn in any window, gone back to, and never more than memory allows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.snapshot import Sample, Snapshot, Subject, Value
from pulsetrain.views.live import history
from pulsetrain.views.live.history import History

START = 1_794_830_000.0
GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"})
HOST = Subject("host", "")
RANK = Subject("training", "rank 0", {"rank": 0})


def snapshot(elapsed: float, *samples: tuple[Subject, dict[str, Value]], jump: float = 0.0) -> Snapshot:
    return Snapshot(START + elapsed + jump, elapsed, tuple(Sample(subject, values) for subject, values in samples))


def watts(history: History, seconds: float, points: int, **more: object) -> list[float | None]:
    assert history.span is not None
    end = history.span[1]
    return list(history.series("gpu", "GPU-1", "power_draw_watts", end - seconds, end, points, **more))  # type: ignore[arg-type]


def filled(values: list[float], interval: float = 1.0) -> History:
    found = History()
    for number, value in enumerate(values):
        found(snapshot(number * interval, (GPU, {"up": 1, "power_draw_watts": value})))
    return found


def test_the_last_values_are_drawn_one_by_one() -> None:
    assert watts(filled([100.0, 200.0, 300.0, 400.0]), 3.0, 3) == [200.0, 300.0, 400.0]


def test_a_value_holds_until_the_next_one() -> None:
    assert watts(filled([100.0, 200.0, 300.0]), 2.0, 4)[:3] == [100.0, 200.0, 200.0]


def test_what_was_drawn_keeps_its_shape_as_time_passes() -> None:
    values = [float(number * 37 % 101) for number in range(200)]
    found = filled(values)
    before = watts(found, 60.0, 20)
    for number in range(200, 203):
        found(snapshot(float(number), (GPU, {"power_draw_watts": 1.0})))
    after = watts(found, 60.0, 20)
    assert before[2:-1] in (after[1:-2], after[0:-3])


@given(st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=3000), st.sampled_from([0.1, 1.0, 10.0]))
def test_thinning_keeps_the_least_and_the_most(values: list[float], interval: float) -> None:
    found = filled(values, interval)
    assert found.span is not None
    seconds = found.span[1] - found.span[0] + interval
    known = {of: [v for v in watts(found, seconds, 50, of=of) if v is not None] for of in ("low", "mean", "high")}
    assert min(known["low"]) == min(values)
    assert max(known["high"]) == max(values)
    assert min(values) <= min(known["mean"]) <= max(known["mean"]) <= max(values)


def test_each_window_shows_the_mean_of_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEVEL_POINTS", 16)
    found = filled([float(number // 1000) for number in range(4000)])
    assert watts(found, 4000.0, 4) == pytest.approx([0.0, 1.0, 2.0, 3.0], abs=0.1)


def test_an_hour_of_16_gpus_at_10_hertz_takes_bounded_memory() -> None:
    gpus = [Subject("gpu", f"GPU-{index}", {"gpu_index": index}) for index in range(16)]
    found = History()
    sizes = []
    for tick in range(36_000):
        values: dict[str, Value] = {"power_draw_watts": float(tick % 400)}
        found(snapshot(tick / 10, *((gpu, values) for gpu in gpus)))
        if tick % 9000 == 8999:
            sizes.append(found.size)
    points = history.LEVEL_POINTS * (1 + math.ceil(math.log2(36_000 / history.LEVEL_POINTS)))
    assert found.size <= 16 * points + 3600
    assert sizes[3] - sizes[2] < sizes[1] - sizes[0] + 16 * history.LEVEL_POINTS  # by the logarithm, not by the hour


def test_what_is_older_than_can_be_kept_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEVEL_POINTS", 8)
    monkeypatch.setattr(history, "MOST_LEVELS", 3)
    monkeypatch.setattr(history, "FRAMES", 4)
    found = filled([1.0] * 1000)
    assert found.size == 3 * 8 + 3 * 4


def test_made_up_names_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_SERIES", 10)
    found = History()
    for number in range(100):
        found(snapshot(float(number), (RANK, {f"made_up_{number}": 1.0})))
    assert len(found.fields("training", "rank 0")) == 10


def test_a_gap_in_the_record_is_a_gap_in_the_line() -> None:
    found = History()
    for elapsed in (*range(10), *range(40, 50)):
        found(snapshot(float(elapsed), (GPU, {"power_draw_watts": 100.0})))
    drawn = watts(found, 50.0, 50)
    assert drawn[:10] == [100.0] * 10
    assert drawn[12:40] == [None] * 28
    assert drawn[40:] == [100.0] * 10


def test_a_slow_reading_has_no_gaps() -> None:
    found = History()
    for elapsed in range(61):
        slow: dict[str, Value] = {"pcie_sent_bytes_per_second": 5.0} if elapsed % 10 == 0 else {}
        found(snapshot(float(elapsed), (GPU, {"power_draw_watts": 1.0, **slow})))
    assert found.series("gpu", "GPU-1", "pcie_sent_bytes_per_second", START, START + 60, 60) == [5.0] * 60


def test_the_line_of_a_lost_gpu_ends_and_continues_when_it_is_back() -> None:
    found = History()
    for elapsed in range(30):
        lost = 10 <= elapsed < 20
        found(snapshot(float(elapsed), (GPU, {"up": 0} if lost else {"up": 1, "power_draw_watts": 100.0})))
    drawn = watts(found, 30.0, 30)
    assert drawn == [100.0] * 10 + [None] * 10 + [100.0] * 10


def test_a_counter_is_drawn_as_its_rate_and_restarts_after_a_reset() -> None:
    found = History()
    for elapsed, count in enumerate((1000, 1500, 2500, 100, 400)):
        found(snapshot(2.0 * elapsed, (HOST, {"disk_read_bytes": count})))
    assert found.series("host", "", "disk_read_bytes", START, START + 8, 4) == [250.0, 500.0, None, 150.0]


def test_amounts_of_a_training_are_those_of_one_step() -> None:
    found = History()
    report: dict[str, Value] = {"step_seconds": 2.0, "data_wait_seconds": 0.5, "step_counts": {"0.5": 3, "1.0": 1}}
    for elapsed in range(4):
        found(snapshot(float(elapsed), (RANK, report)))
    assert found.series("training", "rank 0", "step_seconds", START, START + 3, 3) == [0.5] * 3
    assert found.series("training", "rank 0", "data_wait_seconds", START, START + 3, 3) == [0.125] * 3


def test_the_state_of_a_moment_that_has_passed_can_be_seen_again() -> None:
    found = History()
    for elapsed in range(1000):
        busy = float(elapsed % 100)
        found(
            snapshot(
                float(elapsed),
                (GPU, {"up": 1, "utilization_percent": busy, "throttle_reasons": ["sw_power_cap"]}),
                (HOST, {"disk_read_bytes": 50 * elapsed, "cpu_core_ratio": {"0": 0.5}}),
            )
        )
    then = found.at(START + 950.4)
    (gpu,) = then.table("gpu")
    assert (then.time, then.elapsed) == (START + 950, 950.0)
    assert gpu.subject.labels == GPU.labels
    assert gpu.values == {"up": 1, "utilization_percent": 50.0, "throttle_reasons": ["sw_power_cap"]}
    assert then.host.rates["disk_read_bytes"] == 50.0
    assert then.host.values["cpu_core_ratio"] == {"0": 0.5}
    assert abs(found.at(START + 20).elapsed - 20) <= 8  # what is older is kept more seldom
    assert found.at(START - 5).elapsed == 0.0
    assert found.at(None) is found.live


def test_a_reset_forgets_the_past_and_keeps_the_present() -> None:
    found = filled([100.0, 200.0])
    found.reset()
    assert (found.span, found.size) == (None, 0)
    assert next(found.live.table("gpu")).values["power_draw_watts"] == 200.0
    found(snapshot(2.0, (GPU, {"power_draw_watts": 300.0})))
    assert watts(found, 3.0, 3) == [None, None, 300.0]


def test_a_clock_that_is_set_back_does_not_tear_the_line() -> None:
    found = History()
    for elapsed in range(10):
        found(snapshot(float(elapsed), (GPU, {"power_draw_watts": float(elapsed)}), jump=-3600.0 if elapsed > 5 else 0))
    assert found.span == (START, START + 9)
    assert watts(found, 10.0, 10) == [float(number) for number in range(10)]


def test_what_nobody_knows_is_drawn_as_nothing() -> None:
    found = filled([1.0])
    assert found.series("gpu", "GPU-9", "power_draw_watts", START, START + 1, 3) == [None] * 3
    assert found.series("gpu", "GPU-1", "power_draw_watts", START, START, 3) == [None] * 3

"""The present state of a machine, kept up from snapshots."""

from pulsetrain.live import HOLD_SECONDS, Live
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0})


def at(elapsed: float, **values: Value) -> Snapshot:
    return Snapshot(1.8e9 + elapsed, elapsed, (Sample(GPU, dict(values)),))


def test_a_slow_value_stands_between_its_readings_and_goes_when_it_is_old() -> None:
    live = Live()
    live(at(0, up=1, power_limit_watts=300.0))
    live(at(10, up=1))
    assert next(live.table("gpu")).number("power_limit_watts") == 300.0
    live(at(HOLD_SECONDS + 1, up=1))
    assert next(live.table("gpu")).number("power_limit_watts") is None


def test_a_lost_gpu_keeps_none_of_its_last_values() -> None:
    live = Live()
    live(at(0, up=1, utilization_percent=90, power_limit_watts=300.0))
    live(at(1, up=0, utilization_percent=None))
    state = next(live.table("gpu"))
    assert state.values == {"up": 0, "utilization_percent": None}


def test_counters_give_rates_over_the_true_time_between_two_readings() -> None:
    live = Live()
    live(at(0, up=1, energy_joules=1000.0))
    live(at(2.5, up=1, energy_joules=1500.0))
    assert next(live.table("gpu")).rates["energy_joules"] == 200.0


def test_a_subject_that_shows_nothing_new_is_gone() -> None:
    live = Live()
    live(at(0, up=1))
    live(Snapshot(1.8e9, HOLD_SECONDS + 1, ()))
    assert list(live.table("gpu")) == []

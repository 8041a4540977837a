"""Energy from power that is looked at now and then: near the truth, and never further from it than is told."""

import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain.errors import PulsetrainError
from pulsetrain.sources.polling import MOST_SECONDS, STRATUM_SECONDS, EnergyIntegral, PowerPoller, PowerSensor

TRUTHFUL = PowerSensor(update_seconds=0.1, window_seconds=0.1)
LIMIT_WATTS = 700.0

Watts = Callable[[float], float]


def square(low: float, high: float, period: float, phase: float) -> Watts:
    return lambda t: low if (t + phase) % period < period / 2 else high


def square_joules(low: float, high: float, period: float, phase: float, seconds: float) -> float:
    """From second 0 of the curve's own time to this one."""
    whole, rest = divmod(seconds + phase, period)
    return whole * period * (low + high) / 2 + min(rest, period / 2) * low + max(0.0, rest - period / 2) * high


def moments(seconds: float, seed: int) -> list[float]:
    """One random moment in each stretch, as the poller has them."""
    rng = random.Random(seed)
    return [(n + rng.random()) * STRATUM_SECONDS for n in range(int(seconds / STRATUM_SECONDS))]


def added_up(watts: Watts, times: list[float], sensor: PowerSensor = TRUTHFUL) -> dict[str, Any]:
    integral = EnergyIntegral(sensor, LIMIT_WATTS)
    for t in times:
        integral.add(t, watts(t))
    return integral.values(times[-1])


def bound(values: dict[str, Any]) -> float:
    return float(4 * values["polled_energy_variance_joules2"] ** 0.5 + values["polled_energy_unseen_joules"])


@settings(derandomize=True)  # it is about chance: the same every time
@given(
    period=st.sampled_from([0.02, 0.05, 0.1, 0.13, 0.5, 1.0, 5.0]) | st.floats(0.02, 10),
    phase=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_a_loop_of_any_period_is_seen_within_five_per_cent_and_within_the_bound(
    period: float, phase: float, seed: int
) -> None:
    curve = (100.0, 400.0, period, phase * period)
    times = moments(60, seed)
    truth = square_joules(*curve, times[-1]) - square_joules(*curve, times[0])
    values = added_up(square(*curve), times)
    assert values["polled_energy_joules"] == pytest.approx(truth, rel=0.05)
    assert abs(values["polled_energy_joules"] - truth) <= bound(values) + 1


def test_power_that_never_changes_is_counted_exactly_though_every_value_repeats() -> None:
    values = added_up(lambda _: 250.0, [0.0, 0.4, 0.7, 1.2])
    assert values["polled_energy_joules"] == pytest.approx(300)
    assert bound(values) == 0


def test_the_time_since_the_last_look_is_counted_too_and_the_sum_never_falls() -> None:
    integral = EnergyIntegral(TRUTHFUL, LIMIT_WATTS)
    integral.add(0.0, 400.0)
    assert integral.values(0.1)["polled_energy_joules"] == pytest.approx(40)
    integral.add(0.1, 0.0)  # it had gone down in between
    assert integral.values(0.1)["polled_energy_joules"] == pytest.approx(40)
    integral.add(0.2, 400.0)
    assert integral.values(0.2)["polled_energy_joules"] == pytest.approx(40)
    integral.add(0.3, 400.0)
    assert integral.values(0.3)["polled_energy_joules"] == pytest.approx(80)


def test_a_look_that_fails_leaves_a_gap_in_which_nothing_is_counted() -> None:
    integral = EnergyIntegral(TRUTHFUL, LIMIT_WATTS)
    for t, watts in ((0.0, 100.0), (0.1, 100.0), (0.2, None), (0.3, None), (0.4, 100.0), (0.5, 100.0)):
        integral.add(t, watts)
    values = integral.values(0.5)
    assert values["polled_energy_joules"] == pytest.approx(20)
    assert values["polled_energy_gap_seconds"] == pytest.approx(0.3)


def test_two_looks_that_are_far_apart_leave_a_gap() -> None:
    values = added_up(lambda _: 100.0, [0.0, 0.1, 0.1 + 2 * MOST_SECONDS])
    assert values["polled_energy_joules"] == pytest.approx(10)
    assert values["polled_energy_gap_seconds"] == pytest.approx(2 * MOST_SECONDS)


def test_what_a_slow_sensor_does_not_see_may_have_been_anything() -> None:
    quarter = PowerSensor(update_seconds=0.1, window_seconds=0.025)
    values = added_up(lambda _: 400.0, [n / 10 for n in range(101)], quarter)
    assert values["polled_energy_joules"] == pytest.approx(4000)
    assert values["polled_energy_unseen_joules"] == pytest.approx(0.75 * 4000)


def test_a_quick_sensor_errs_only_where_power_changes() -> None:
    half = PowerSensor(update_seconds=0.02, window_seconds=0.01)
    assert added_up(lambda _: 400.0, [0.0, 0.1, 0.2], half)["polled_energy_unseen_joules"] == 0
    changing = added_up(square(100, 400, 0.2, 0), [0.0, 0.1, 0.2], half)
    assert changing["polled_energy_unseen_joules"] == pytest.approx(2 * 300 * 0.01)


def test_without_a_power_limit_nobody_can_say_how_far_it_is_off() -> None:
    integral = EnergyIntegral(TRUTHFUL, None)
    integral.add(0.0, 100.0)
    assert "polled_energy_unseen_joules" not in integral.values(0.0)
    assert "polled_energy_edge_joules" not in integral.values(0.0)


def test_the_poller_looks_until_there_is_nothing_more_to_look_at_and_can_start_again() -> None:
    done = threading.Event()
    looks = itertools.count(1)

    def look() -> bool:
        if next(looks) % 5:
            return True
        done.set()
        return False

    poller = PowerPoller("test", look)
    for _ in range(2):
        poller.start()
        assert done.wait(PATIENCE_SECONDS)
        done.clear()
        assert poller._thread is not None
        poller._thread.join()
    poller.close()
    assert next(looks) == 11


def test_a_look_that_fails_is_a_reason_to_be_down_until_one_goes_well() -> None:
    failing, well = threading.Event(), threading.Event()
    broken = True

    def look() -> bool:
        if broken:
            failing.set()
            raise OSError("the sensor is gone")
        well.set()
        return True

    poller = PowerPoller("test", look)
    poller.start()
    assert failing.wait(PATIENCE_SECONDS)
    assert eventually(lambda: reason(poller) == "power cannot be polled: OSError: the sensor is gone")
    broken = False
    assert well.wait(PATIENCE_SECONDS)
    assert eventually(lambda: reason(poller) == "")
    poller.close()


def reason(poller: PowerPoller) -> str:
    try:
        poller.start()
    except PulsetrainError as error:
        return error.message
    return ""

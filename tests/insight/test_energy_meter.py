"""The energy of one device from its lines: right, never negative, the same however the lines come, within its bound."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pulsetrain.insight.energy.curve import EPOCH, Array, EnergyCurve, HostClock, total
from pulsetrain.insight.energy.meter import COLUMNS, Meter, Method, Readings, Stretch, curve_of

LIMIT_WATTS = 700.0
NONE = float("nan")


def column(*values: float) -> Array:
    return np.array(values, float)


def readings(seconds: Sequence[float] | Array, **columns: Sequence[float] | Array) -> Readings:
    return Readings(column(*seconds), **{name: column(*values) for name, values in columns.items()})


def measured(
    lines: Readings, limit_watts: float | None = LIMIT_WATTS, chunk: int = 1_000_000
) -> tuple[EnergyCurve, Meter]:
    meter = Meter(limit_watts=limit_watts)
    parts = [meter.add(lines[begin : begin + chunk]) for begin in range(0, len(lines), chunk)]
    return curve_of([*parts, meter.finish()], EPOCH, limit_watts), meter


def stretch_of(lines: Readings, **options: Any) -> Stretch:
    meter = Meter(**{"limit_watts": LIMIT_WATTS} | options)
    first, rest = meter.add(lines), meter.finish()
    names = ("joules", "method", "slack", "gap_seconds", "utilization")
    joined = {name: np.concatenate((getattr(first, name), getattr(rest, name))) for name in names}
    return replace(first, times=lines.seconds, **joined)


def methods(lines: Readings) -> list[Method]:
    return [Method(method) for method in stretch_of(lines).method]


# What counts


def test_the_counter_counts_and_not_power() -> None:
    curve, _ = measured(readings([0, 1, 2], counter=[5000, 5100, 5300], power=[300, 300, 300]))
    assert curve.joules.tolist() == [0, 100, 300]


def test_a_gap_is_bridged_exactly_by_the_counter() -> None:
    lost = [100.0, NONE, NONE, NONE, 100.0]
    lines = readings([0, 1, 2, 3, 4], counter=[10, NONE, NONE, NONE, 810], power=lost)
    curve, _ = measured(lines)
    assert curve.joules[-1] == 800
    assert methods(lines) == [Method.COUNTER] * 4


def test_a_gap_without_a_counter_is_bridged_with_the_mean_of_both_ends_and_reported() -> None:
    lines = readings([0, 1, 2, 3, 4], power=[100, 100, NONE, 300, 300])
    stretch = stretch_of(lines)
    assert stretch.joules.tolist() == [100, 200, 200, 300]
    assert stretch.gap_seconds.tolist() == [0, 1, 1, 0]
    assert np.sum(stretch.slack[1:3]) == pytest.approx(2 * 500)  # anything between nothing and the limit


def test_what_nobody_saw_is_not_zero_but_unknown() -> None:
    stretch = stretch_of(readings([0, 1, 2, 3], power=[100, 100, NONE, NONE]))
    assert stretch.method.tolist() == [Method.POWER, Method.UNKNOWN, Method.UNKNOWN]
    assert stretch.slack[1:].tolist() == [LIMIT_WATTS, LIMIT_WATTS]


def test_power_is_multiplied_with_the_time_that_really_passed() -> None:
    """A tick of 5 s that takes 5.4 s."""
    curve, _ = measured(readings([5.4 * tick for tick in range(11)], power=[200] * 11))
    assert curve.joules[-1] == pytest.approx(200 * 54)


def test_a_reset_is_bridged_by_power() -> None:
    lines = readings([0, 1, 2, 3], counter=[5000, 5100, 20, 120], power=[100, 100, 140, 100])
    curve, meter = measured(lines)
    assert curve.joules.tolist() == [0, 100, 220, 320]
    assert methods(lines) == [Method.COUNTER, Method.POWER, Method.COUNTER]
    assert meter.faults.resets == 1


def test_a_counter_that_is_stuck_while_power_is_drawn_is_replaced_from_where_it_stopped() -> None:
    counter = [0, 100, 200, *[300] * 5, 400, 500]
    lines = readings(range(10), counter=counter, power=[100] * 10)
    curve, meter = measured(lines)
    assert curve.joules[-1] == 900
    assert methods(lines) == [Method.COUNTER] * 3 + [Method.POWER] * 4 + [Method.COUNTER] * 2
    assert meter.faults.still_seconds == 4


def test_a_counter_that_catches_up_after_a_stand_still_is_not_counted_twice() -> None:
    lines = readings(range(9), counter=[0, 4000, *[8000] * 5, 28000, 32000], power=[4000] * 9)
    curve, meter = measured(lines)
    assert curve.joules[-1] == 8 * 4000
    assert meter.faults.jumps == 1


def test_a_counter_that_pauses_for_a_moment_is_only_coarse() -> None:
    lines = readings([0, 0.04, 0.08, 0.12, 0.16], counter=[10, 10, 10, 20, 20], power=[100] * 5)
    assert measured(lines)[0].joules[-1] == 10


def test_a_counter_without_any_power_beside_it_is_believed_when_it_rests() -> None:
    curve, _ = measured(readings(range(9), counter=[5] * 9))
    assert curve.joules[-1] == 0


def test_polled_power_comes_before_power_at_the_ticks() -> None:
    lines = readings(
        [0, 1, 2], power=[400, 400, 400], polled=[0, 250, 500], variance=[0, 4, 8], unseen=[0, 1, 2], gap=[0, 0, 0]
    )
    curve, _ = measured(lines)
    assert curve.joules[-1] == 500
    assert curve.inner_error(0, 2) == pytest.approx(4 * 8**0.5 + 2)


def test_time_that_polling_missed_is_bridged_with_power_and_reported_in_the_bound() -> None:
    lines = readings([0, 1, 2], power=[200, 200, 200], polled=[0, 100, 300], gap=[0, 0.5, 0.5], unseen=[0, 0, 0])
    curve, _ = measured(replace(lines, variance=column(0, 0, 0)))
    assert curve.joules.tolist() == [0, 200, 400]
    assert curve.inner_error(0, 2) == pytest.approx(0.5 * LIMIT_WATTS)


def test_where_the_counter_is_known_to_the_moment_the_edges_are_exact() -> None:
    lines = readings(
        [0, 1, 2], counter=[1000, 1100, 1200], exact=[1003, NONE, 1207], exact_error=[1, NONE, 2], power=[100] * 3
    )
    curve, _ = measured(lines)
    assert curve.joules[-1] == 204
    assert curve.error_between(0, 2) == 3


def test_without_a_power_limit_the_bound_of_power_is_unknown() -> None:
    curve, _ = measured(readings([0, 1], power=[100, 100]), limit_watts=None)
    assert np.isnan(curve.error_between(0, 1))


def test_utilization_is_that_of_the_end_of_an_interval_or_the_last_one_known() -> None:
    lines = readings(range(5), power=[100] * 5, utilization=[0, 0, 50, NONE, 0])
    assert stretch_of(lines).utilization.tolist() == [0, 50, 50, 0]


# However the lines come


@st.composite
def histories(draw: st.DrawFn) -> Readings:
    """Lines of a device to which all sorts of things happen."""
    count = draw(st.integers(2, 40))

    def numbers(strategy: st.SearchStrategy[float]) -> Array:
        return np.array(draw(st.lists(strategy, min_size=count, max_size=count)), float)

    seconds = np.cumsum(numbers(st.sampled_from([0.1, 0.5, 1.0, 5.4])))
    watts = numbers(st.sampled_from([0.0, 60.0, 350.0]) | st.floats(0, 700))
    rises = watts * np.diff(seconds, prepend=seconds[0])
    moves = np.array(draw(st.lists(st.sampled_from([1, 1, 1, 0]), min_size=count, max_size=count)))
    counter = 1000 + np.cumsum(rises * moves)
    if draw(st.booleans()):
        counter[draw(st.integers(0, count - 1)) :] -= 1000 + rises[0]  # a reset, which may even lie below zero
    known = numbers(st.sampled_from([1.0, 1.0, 1.0, NONE]))
    has_counter, has_power, polled = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    columns: dict[str, Array] = {"utilization": numbers(st.sampled_from([0.0, 50.0, NONE]))}
    if has_counter:
        columns["counter"] = counter * known
    if has_power:
        columns["power"] = watts * (known if draw(st.booleans()) else numbers(st.sampled_from([1.0, 1.0, NONE])))
    if polled:
        columns |= {"polled": np.cumsum(rises), "variance": np.cumsum(rises / 9), "gap": 0 * rises}
        columns["unseen"] = np.cumsum(rises / 5)
    return Readings(seconds, **columns)


def assert_same(one: EnergyCurve, other: EnergyCurve) -> None:
    for name in ("times", "joules", "variance", "slack", "edge"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-6)


@given(histories(), st.integers(1, 10))
def test_a_few_lines_at_a_time_give_the_same_as_all_at_once(lines: Readings, chunk: int) -> None:
    whole, meter = measured(lines)
    pieces, meter_of_pieces = measured(lines, chunk=chunk)
    assert_same(whole, pieces)
    assert meter.faults.resets == meter_of_pieces.faults.resets
    assert meter.faults.still_seconds == pytest.approx(meter_of_pieces.faults.still_seconds)


@given(histories(), st.randoms(use_true_random=False))
def test_lines_out_of_order_and_lines_that_stand_there_twice_change_nothing(lines: Readings, rng: Any) -> None:
    order = [*range(len(lines)), *(number for number in range(len(lines)) if rng.random() < 0.3)]
    rng.shuffle(order)
    columns = {name: lines.column(name)[order] for name in COLUMNS if getattr(lines, name) is not None}
    assert_same(measured(lines)[0], measured(Readings(lines.seconds[order], **columns))[0])


@given(histories(), st.floats(0.1, 10))
def test_twice_the_power_is_twice_the_energy(lines: Readings, factor: float) -> None:
    names = [name for name in ("counter", "power", "polled", "unseen") if getattr(lines, name) is not None]
    scaled = replace(lines, **{name: lines.column(name) * factor for name in names})
    (curve, meter), (other, other_meter) = measured(lines), measured(scaled)
    assume(meter.faults.jumps == other_meter.faults.jumps)  # what no device can draw is no matter of scale
    np.testing.assert_allclose(other.joules, curve.joules * factor, rtol=1e-9, atol=1e-6)


@given(histories())
def test_energy_never_falls(lines: Readings) -> None:
    curve, _ = measured(lines)
    assert np.all(np.diff(curve.joules) >= 0)
    assert np.all(np.diff(curve.times) > 0)


@given(histories(), st.lists(st.floats(-10, 250), min_size=1, max_size=20))
def test_any_partition_of_time_adds_up_to_the_whole(lines: Readings, cuts: list[float]) -> None:
    curve, _ = measured(lines)
    edges = np.array([-100.0, *sorted(cuts), 1e6])
    assert np.sum(curve.joules_between(edges[:-1], edges[1:])) == pytest.approx(curve.joules[-1], rel=1e-9, abs=1e-6)


# Within the bound

POWERS = st.lists(st.tuples(st.floats(0.02, 3), st.floats(0, LIMIT_WATTS)), min_size=3, max_size=30)
TICKS = st.lists(st.floats(0.05, 3), min_size=2, max_size=30)


def truth_of(steps: list[tuple[float, float]], times: Array) -> Array:
    """Energy up to each time, of power that holds each value for so long, the last one for ever."""
    edges = np.concatenate(([0.0], np.cumsum([seconds for seconds, _ in steps]), [1e6]))
    watts = np.array([watts for _, watts in steps] + [steps[-1][1]])
    return np.asarray(np.interp(times, edges, np.concatenate(([0.0], np.cumsum(watts * np.diff(edges))))))


def watts_of(steps: list[tuple[float, float]], times: Array) -> Array:
    edges = np.cumsum([seconds for seconds, _ in steps])
    values = np.array([watts for _, watts in steps])
    return np.asarray(values[np.minimum(np.searchsorted(edges, times, "right"), len(values) - 1)])


@given(POWERS, TICKS, st.floats(0, 0.1), st.data())
def test_the_truth_lies_within_the_bound_of_a_counter_that_moves_every_100_ms(
    steps: list[tuple[float, float]], ticks: list[float], phase: float, data: st.DataObject
) -> None:
    times = np.cumsum(ticks)
    shown = np.floor((times + phase) / 0.1) * 0.1 - phase
    counter = truth_of(steps, np.maximum(0, shown))
    curve, _ = measured(Readings(times, counter=counter, power=watts_of(steps, times)))
    begin, end = sorted(data.draw(st.tuples(*[st.floats(times[0], times[-1])] * 2)))
    truth = truth_of(steps, np.array([begin, end]))
    assert abs(curve.joules_between(begin, end) - np.diff(truth)[0]) <= curve.error_between(begin, end) + 1e-6


@given(POWERS, TICKS)
def test_the_truth_lies_within_the_bound_of_power_at_the_ticks(
    steps: list[tuple[float, float]], ticks: list[float]
) -> None:
    times = np.cumsum(ticks)
    curve, _ = measured(Readings(times, power=watts_of(steps, times)))
    truth = truth_of(steps, times)
    assert abs(curve.joules[-1] - (truth[-1] - truth[0])) <= curve.error_between(times[0], times[-1]) + 1e-6


# Time


def test_a_wall_clock_that_was_set_does_not_change_energy_and_moments_are_found_on_both_sides() -> None:
    elapsed = np.arange(6.0)
    clock = HostClock.of(elapsed, 1000 + elapsed + np.array([0, 0, 0, 3600, 3600, 3600]))
    curve = replace(measured(readings(elapsed, power=[100] * 6))[0], clock=clock)
    assert curve.joules[-1] == 500
    assert curve.walls.tolist() == [1000, 1001, 1002, 4603, 4604, 4605]
    edges = curve.elapsed_at(np.array([1000.0, 1001.0, 2000.0, 4604.0, 4605.0]))
    assert edges.tolist() == [0, 1, 3, 4, 5]  # it slept between 1002 and 4603, and used nothing then


def test_a_wall_clock_that_was_set_back_counts_every_joule_once() -> None:
    elapsed = np.arange(8.0)
    clock = HostClock.of(elapsed, 1000 + elapsed - np.array([0, 0, 0, 0, 2, 2, 2, 2]))
    curve = replace(measured(readings(elapsed, power=[100] * 8))[0], clock=clock)
    edges = curve.elapsed_at(np.arange(990.0, 1020.0))
    assert np.all(np.diff(edges) >= 0)
    assert np.sum(curve.joules_between(edges[:-1], edges[1:])) == pytest.approx(700)


def test_a_wall_clock_that_was_set_back_was_wrong_until_then() -> None:
    elapsed = np.arange(6.0)
    clock = HostClock.of(elapsed, 8200 + elapsed - np.array([0, 0, 0, 7200, 7200, 7200]))
    assert clock.wall_at(elapsed).tolist() == [1000, 1001, 1002, 1003, 1004, 1005]


def test_curves_on_different_moments_add_up() -> None:
    one = measured(readings([0, 1, 2], power=[100] * 3))[0]
    other = measured(readings([0.5, 1.5, 2.5], power=[200] * 3))[0]
    both = total([one, other], EPOCH)
    assert both.times.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert both.joules.tolist() == [0, 50, 200, 350, 500, 600]


def test_two_lines_of_one_moment_are_one_line() -> None:
    """A reading that came late stands in a line of its own."""
    lines = readings(
        [0, 0, 1, 1], counter=[10, NONE, NONE, 110], exact=[NONE, 15, NONE, NONE], power=[100, NONE, 100, NONE]
    )
    curve, _ = measured(lines)
    assert (curve.times.tolist(), curve.joules.tolist()) == ([0, 1], [0, 95])


def test_a_meter_without_lines_has_nothing() -> None:
    meter = Meter()
    assert list(itertools.chain(meter.add(Readings(np.zeros(0))).joules, meter.finish().joules)) == []

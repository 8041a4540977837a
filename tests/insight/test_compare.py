"""Runs side by side: noise is told from difference, and nothing is claimed without evidence in the records."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.insight.compared import load_training, write_training

from pulsetrain.insight.compare import Comparison, compare
from pulsetrain.insight.compare.figures import Figure
from pulsetrain.insight.compare.sides import LONGEST_LABEL, Side, load_sides
from pulsetrain.insight.compare.significance import (
    MOST_VALUES,
    Difference,
    block_length,
    difference,
    draw_mean,
    draw_quantile,
)
from pulsetrain.insight.energy.figures import Energy
from pulsetrain.insight.steps import Floats
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]

# Significance


def step_times(count: int, likeness: float, seed: int) -> Floats:
    """About 10 ms each, 10 % noise, of which so much is carried over from one step to the next."""
    noise = np.random.default_rng(seed).normal(size=count + 100)
    carried = np.array(list(accumulate(noise, lambda before, new: likeness * before + new)))[100:]
    times: Floats = 0.01 * np.exp(0.1 * carried * np.sqrt(1 - likeness**2))
    return times


def medians(before: Floats, after: Floats) -> Difference:
    found = difference(draw_quantile(before, 0.5), draw_quantile(after, 0.5))
    assert found is not None
    return found


@pytest.mark.parametrize("likeness", [0.0, 0.8])
def test_two_halves_of_the_same_process_are_called_equal_about_19_times_in_20(likeness: float) -> None:
    trials = 60
    halves = [np.split(step_times(1000, likeness, seed), 2) for seed in range(trials)]
    equal = sum(not medians(*pair).certain for pair in halves)
    assert equal >= 0.87 * trials  # taken for independent, 32 of 60 at a likeness of 0.8


def test_a_true_shift_of_3_percent_is_found_with_enough_steps() -> None:
    found = [medians(step_times(3000, 0.6, seed), 1.03 * step_times(3000, 0.6, seed + 500)) for seed in range(20)]
    assert sum(one.real and one.change > 0 for one in found) >= 18
    assert sum(one.low < 0.03 < one.high for one in found) >= 17


def test_a_difference_can_be_certain_and_yet_too_small_to_matter() -> None:
    before = np.full(1000, 0.01)
    found = medians(before, 1.004 * before)
    assert found.certain and not found.real


@pytest.mark.parametrize(("share", "least"), [(0.5, 20), (0.95, 200)])
def test_too_few_values_tell_nothing(share: float, least: int) -> None:
    values = step_times(least, 0.0, 1)
    assert draw_quantile(values[1:], share) is None
    assert draw_quantile(values, share) is not None


@settings(max_examples=30)
@given(st.integers(20, 200), st.floats(1e-6, 1e3), st.floats(0.5, 2.0), st.integers(0, 2**31))
def test_a_change_does_not_depend_on_the_unit_and_lies_within_its_interval(
    count: int, unit: float, factor: float, seed: int
) -> None:
    before, after = step_times(count, 0.5, seed), factor * step_times(count, 0.5, seed + 1)
    found, scaled = medians(before, after), medians(unit * before, unit * after)
    assert (found.change, found.low, found.high) == pytest.approx((scaled.change, scaled.low, scaled.high))
    assert found.change == pytest.approx(np.median(after) / np.median(before) - 1)
    assert found.low <= found.change + 0.02 and found.change - 0.02 <= found.high


def test_steps_that_are_more_alike_are_drawn_in_longer_blocks() -> None:
    lengths = [block_length(step_times(2000, likeness, 7)) for likeness in (0.0, 0.5, 0.9)]
    assert lengths == sorted(lengths) and lengths[0] < 5 < lengths[2]
    assert block_length(np.ones(100)) == 1


def test_rare_long_steps_move_the_mean_and_not_the_median() -> None:
    before, after = step_times(2000, 0.0, 3), step_times(2000, 0.0, 4)
    after[::20] += 0.05
    assert not medians(before, after).real
    average = difference(draw_mean(before), draw_mean(after))
    assert average is not None and average.real and average.change == pytest.approx(0.25, abs=0.03)


def test_very_many_steps_are_thinned_without_meeting_their_beat() -> None:
    values = np.full(4 * MOST_VALUES, 0.01)
    values[::4] = 0.02
    drawn = draw_mean(values)
    assert drawn is not None and np.median(drawn.draws) == pytest.approx(0.0125, rel=0.01)


# Runs


@pytest.fixture
def side(make_run: MakeRun) -> Callable[..., Side]:
    """Write and load a training: `side("slow", wait=8.0)`."""
    return partial(load_training, make_run)


def figure(comparison: Comparison, key: str) -> Figure:
    (found,) = [figure for figure in comparison.figures if figure.key == key]
    return found


def test_causes_that_account_for_more_come_first(side: Callable[..., Side]) -> None:
    found = compare([side("base"), side("other", wait=30.0, other=15.0, samples=8)])
    assert [cause.kind for cause in found.explanations[0].causes] == ["data_wait", "other", "small_batches"]


@pytest.mark.parametrize(("error", "certain"), [(0.01, True), (0.2, False)])
def test_energy_differs_only_beyond_its_error(side: Callable[..., Side], error: float, certain: bool) -> None:
    def with_energy(side: Side, joules: float) -> Side:
        total = Energy(joules=100.0, error_joules=100.0 * error, origin="measured", method="counter")
        energy = msgspec.structs.replace(side.report.energy, total=total, joules_per_sample=joules)
        return replace(side, report=msgspec.structs.replace(side.report, energy=energy))

    base = side("base")
    test = figure(compare([with_energy(base, 1.0), with_energy(base, 1.1)]), "joules_per_sample").tests[1]
    assert test is not None and test.certain is certain and test.change == pytest.approx(0.1)


def test_names_too_long_for_a_table_become_numbers(make_run: MakeRun) -> None:
    folders = [make_run(id=f"20261116-120000-{letter}", name=letter * (LONGEST_LABEL + 1)) for letter in "ab"]
    assert [found.label for found in load_sides(folders)] == ["run 1", "run 2"]


def test_a_cause_has_the_evidence_of_both_runs(side: Callable[..., Side]) -> None:
    found = compare([side("base"), side("slow", wait=81.0)])
    (cause,) = found.explanations[0].causes
    assert cause.kind == "data_wait" and cause.share == pytest.approx(0.9)
    assert (cause.run, cause.against) == ("slow", "base")
    assert cause.here == {"data_wait_share": pytest.approx(0.9)} and cause.finding is not None
    assert cause.there == {"data_wait_share": pytest.approx(0.1)}


def test_what_a_rule_speaks_of_too_has_the_finding_of_the_verdict(make_run: MakeRun) -> None:
    folders = [write_training(make_run, "base"), write_training(make_run, "slow", wait=81.0)]
    for limits, rule in ((DEFAULTS, "InputBound"), (Thresholds(data_wait_ratio=0.95), None)):
        base, slow = load_sides(folders, limits)
        (cause,) = compare([base, slow], limits).explanations[0].causes
        assert cause.kind == "data_wait" and (cause.finding.rule if cause.finding else None) == rule
        assert slow.report.verdict is not None
        assert cause.finding == slow.report.verdict.main


def test_python_is_a_cause_only_where_the_verdict_says_so_too(make_run: MakeRun) -> None:
    python: Any = {"host": {"job_cpu_cores": 1.0}, "process": {"cpu_cores": 0.99}}
    for busy, kinds in ((6.0, ["host_bound"]), (60.0, [])):
        folders = [
            write_training(make_run, "base", gpus=(98.0,)),
            write_training(make_run, "x", gpus=(busy,), **python),
        ]
        sides = load_sides(folders)
        assert [cause.kind for cause in compare(sides).explanations[0].causes] == kinds
        assert bool(sides[1].finding("LaunchBound")) is bool(kinds)


def test_thresholds_of_the_user_decide_what_is_a_cause(side: Callable[..., Side]) -> None:
    sides = [side("base"), side("slow", wait=2.0)]
    assert [cause.kind for cause in compare(sides).explanations[0].causes] == ["data_wait"]
    strict = compare(sides, Thresholds(time_share_ratio=0.2))
    assert strict.explanations[0].asked == "held_back" and strict.explanations[0].causes == []

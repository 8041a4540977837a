"""Which steps of a training are steady, and what they say about its speed."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pulsetrain.insight.steps import StepFacts, read_steps
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]
Line = dict[str, Any]


def step_lines(seconds: Iterable[float], *, begin: float = 0.0, **fields: Any) -> list[Line]:
    """Steps that follow on each other."""
    lines, now = [], begin
    for number, length in enumerate(seconds, 1):
        now += length
        lines.append({"elapsed_seconds": now, "step": number, "step_seconds": length} | fields)
    return lines


def phase_line(name: str, begin: float, end: float, **fields: Any) -> Line:
    return {"elapsed_seconds": end, "phase": name, "phase_seconds": end - begin} | fields


def steps_of(make_run: MakeRun, lines: list[Line]) -> StepFacts:
    found = read_steps(Database([make_run(training=lines)]))
    assert found is not None
    return found


def test_a_run_without_steps_has_none(make_run: MakeRun) -> None:
    assert read_steps(Database([make_run(training=[{"step": 3, "loss": 1.0}])])) is None


# The warm-up


@pytest.mark.parametrize(("count", "warm_up"), [(29, 0), (30, 10), (200, 10), (400, 20), (3000, 100)])
def test_the_warm_up_is_five_percent_of_the_steps_at_least_10_and_at_most_100(
    make_run: MakeRun, count: int, warm_up: int
) -> None:
    steps = steps_of(make_run, step_lines([0.5] * count))
    assert (steps.warm_up, steps.count, steps.total) == (warm_up, count - warm_up, count)
    assert steps.warm_up_seconds == pytest.approx(0.5 * warm_up)


def test_a_first_step_that_compiles_is_left_out_of_few(make_run: MakeRun) -> None:
    lines = step_lines([42.0] + [1.0] * 12, forward_seconds=0.4, backward_seconds=0.49, optimizer_seconds=0.11)
    lines[0] |= {"optimizer_seconds": 41.11}
    steps = steps_of(make_run, lines)
    assert (steps.warm_up, steps.warm_up_seconds, steps.count) == (1, 42.0, 12)
    assert steps.share("optimizer") == pytest.approx(0.11)
    assert steps.mean_seconds == pytest.approx(1.0)


def test_a_first_step_like_the_others_stays(make_run: MakeRun) -> None:
    assert steps_of(make_run, step_lines([1.9] + [1.0] * 12)).warm_up == 0


def test_of_two_steps_nobody_knows_which_is_odd(make_run: MakeRun) -> None:
    assert steps_of(make_run, step_lines([42.0, 1.0])).count == 2


# Phases


def test_steps_with_a_validation_are_left_out(make_run: MakeRun) -> None:
    lines = step_lines([1.0] * 15 + [5.0] + [1.0] * 14 + [5.0] + [1.0] * 9, samples=8)
    lines += [phase_line("validation", 15.2, 19.2), phase_line("validation", 34.2, 38.2)]
    steps = steps_of(make_run, lines)
    assert (steps.total, steps.warm_up, steps.interrupted, steps.interrupted_by) == (40, 10, 2, ("validation",))
    assert steps.mean_seconds == pytest.approx(1.0)
    assert steps.samples_per_second == pytest.approx(8.0)
    assert steps.phases == pytest.approx({"validation": 8.0})


def test_where_most_steps_have_a_validation_its_time_is_cut_out_of_them(make_run: MakeRun) -> None:
    lines = step_lines([3.0] * 5, forward_seconds=0.75, other_seconds=2.25, samples=4)
    lines += [phase_line("validation", 3.0 * n + 0.5, 3.0 * n + 2.5) for n in range(5)]
    steps = steps_of(make_run, lines)
    assert (steps.count, steps.interrupted, steps.interrupted_by) == (5, 0, ("validation",))
    assert steps.mean_seconds == pytest.approx(1.0)
    assert steps.share("forward") == pytest.approx(0.75)
    assert steps.share("other") == pytest.approx(0.25)
    assert steps.samples_per_second == pytest.approx(4.0)


def test_a_validation_before_the_first_update_does_not_make_it_slow(make_run: MakeRun) -> None:
    steps = steps_of(make_run, [*step_lines([9.0, 1.0, 1.0, 1.0]), phase_line("validation", 0.0, 8.0)])
    assert (steps.warm_up, steps.interrupted, steps.count) == (0, 1, 3)


def test_a_phase_around_steps_is_training(make_run: MakeRun) -> None:
    lines = [*step_lines([1.0] * 8, phase="fine-tuning"), phase_line("fine-tuning", 0.0, 8.0)]
    lines.append(phase_line("validation", 3.0, 3.5))
    steps = steps_of(make_run, lines)
    assert (steps.count, steps.interrupted) == (7, 1)
    assert steps.phases == pytest.approx({"validation": 0.5})


def test_of_phases_inside_each_other_the_inner_one_counts(make_run: MakeRun) -> None:
    lines = [phase_line("checkpoint", 6.0, 7.0), phase_line("validation", 5.0, 8.0), *step_lines([1.0] * 4 + [5.0])]
    steps = steps_of(make_run, lines)
    assert steps.phases == pytest.approx({"validation": 2.0, "checkpoint": 1.0})
    assert steps.mean_seconds == pytest.approx(1.0)


def test_a_phase_that_begins_as_a_step_ends_belongs_to_the_next(make_run: MakeRun) -> None:
    """Times are rounded, so the two may overlap a little."""
    lines = [*step_lines([1.0, 1.0, 4.0, 1.0, 1.0]), phase_line("validation", 1.999999, 5.0)]
    steps = steps_of(make_run, lines)
    assert steps.interrupted == 1
    assert steps.mean_seconds == pytest.approx(1.0)


def test_time_between_steps_is_a_pause_unless_a_phase_fills_it(make_run: MakeRun) -> None:
    lines = [*step_lines([1.0] * 4), *step_lines([1.0] * 4, begin=10.0), phase_line("test", 5.0, 8.0)]
    steps = steps_of(make_run, lines)
    assert (steps.began, steps.ended) == (0.0, 14.0)
    assert steps.outside == pytest.approx(6.0)
    assert steps.pauses == pytest.approx(3.0)


def test_the_pace_of_steps_to_come_has_validations_but_not_the_warm_up(make_run: MakeRun) -> None:
    lines = [*step_lines([30.0] + [1.0] * 4 + [5.0] + [1.0] * 4), phase_line("validation", 34.5, 38.5)]
    steps = steps_of(make_run, lines)
    assert steps.warm_at == 30.0
    assert steps.pace_seconds == pytest.approx(13 / 9)


# What a step is made of


def test_without_its_parts_a_step_is_not_all_other(make_run: MakeRun) -> None:
    steps = steps_of(make_run, step_lines([1.0] * 5, other_seconds=1.0))
    assert set(steps.parts.values()) == {None}


def test_the_mean_step_time_and_the_rates_agree(make_run: MakeRun) -> None:
    steps = steps_of(make_run, step_lines([0.1, 0.1, 0.4, 0.1, 0.1, 0.1], samples=32, tokens=64, mfu_ratio=0.3))
    assert steps.samples_per_step is not None and steps.tokens_per_step is not None
    assert steps.samples_per_second == pytest.approx(steps.samples_per_step / steps.mean_seconds)
    assert steps.tokens_per_second == pytest.approx(steps.tokens_per_step / steps.mean_seconds)
    assert steps.mfu_ratio == pytest.approx(0.3)


# Ranks


def test_throughput_of_all_ranks_is_the_sum_of_theirs(make_run: MakeRun) -> None:
    lines = [*step_lines([0.5] * 6, rank=0, samples=8), *step_lines([1.0] * 6, rank=1, samples=8)]
    steps = steps_of(make_run, lines)
    assert steps.samples_per_second == pytest.approx(16.0)
    assert steps.totals.samples_per_second == pytest.approx(24.0)
    assert (steps.totals.samples_per_step, steps.totals.tokens_per_second) == (16.0, None)


def test_throughput_of_all_ranks_is_unknown_where_one_does_not_report_it(make_run: MakeRun) -> None:
    steps = steps_of(make_run, [*step_lines([0.5] * 6, rank=0, samples=8), *step_lines([0.5] * 6, rank=1)])
    assert (steps.samples_per_second, steps.totals.samples_per_second) == (16.0, None)

"""Runs side by side: noise is told from difference, a difference is taken apart, nothing is claimed without record."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.compare import Comparison, compare
from pulsetrain.insight.compare.causes import Cause
from pulsetrain.insight.compare.figures import Figure
from pulsetrain.insight.compare.sides import LONGEST_LABEL, Side, load_sides
from pulsetrain.insight.compare.significance import (
    MOST_VALUES,
    Difference,
    Floats,
    block_length,
    difference,
    draw_mean,
    draw_quantile,
)
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.figures import Energy
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
def run(make_run: MakeRun) -> Callable[..., RunFolder]:
    """Write a run of 300 steps on one GPU: `run("slow", wait=8.0, busy=6)`; times of a step in milliseconds."""

    def write(
        name: str,
        *,
        steps: int = 300,
        wait: float = 1.0,
        forward: float = 3.0,
        backward: float = 5.0,
        optimizer: float = 1.0,
        other: float = 0.0,
        pause: float = 0.0,
        samples: int | None = 64,
        gpus: tuple[float, ...] = (90.0,),
        gpu: dict[str, Any] | None = None,
        host: dict[str, Any] | None = None,
        process: dict[str, Any] | None = None,
        noise: float = 0.0,
        **about: Any,
    ) -> RunFolder:
        rng = np.random.default_rng(sum(map(ord, name)))
        elapsed, training = 1.0, []
        for step in range(1, steps + 1):
            parts = {
                "data_wait": wait,
                "forward": forward,
                "backward": backward,
                "optimizer": optimizer,
                "other": other,
            }
            factor = 1e-3 * float(np.exp(noise * rng.normal()))
            line = {f"{part}_seconds": factor * milliseconds for part, milliseconds in parts.items()}
            seconds = sum(line.values())
            elapsed += seconds + pause / 1000
            about_step: dict[str, Any] = {
                "step": step,
                "rank": 0,
                "step_seconds": seconds,
                "loss": 1 / step,
                "samples": samples,
            }
            training.append({"elapsed_seconds": elapsed} | line | about_step)
        ticks = [tick / 4 for tick in range(int(4 * elapsed) + 2)]
        boards: dict[str, Any] = {"up": 1, "memory_used_mb": 9000.0, "power_draw_watts": 300.0, "name": "NVIDIA L4"}
        machine = {
            "cpu_ratio": 0.1,
            "cpu_cores": 8,
            "cpu_iowait_ratio": 0.0,
            "job_cpu_cores": 0.7,
            "job_cpu_seconds": 1,
        }
        return make_run(
            id=f"20261116-120000-{name}-0000",
            name=name,
            end=datetime(2026, 11, 16, 12, 0, 10, tzinfo=UTC),
            training=training,
            gpu=[
                {
                    "elapsed_seconds": tick,
                    "gpu_index": index,
                    "uuid": f"GPU-{name}-{index}",
                    "utilization_percent": busy,
                }
                | {"energy_joules": 300 * tick}
                | boards
                | (gpu or {})
                for tick in ticks
                for index, busy in enumerate(gpus)
            ],
            host=[{"elapsed_seconds": tick} | machine | (host or {}) for tick in ticks],
            process=[{"elapsed_seconds": tick, "pid": 7} | (process or {"cpu_cores": 0.5}) for tick in ticks],
            **about,
        )

    return write


_LOADED: dict[str, Side] = {}


@pytest.fixture
def side(run: Callable[..., RunFolder]) -> Callable[..., Side]:
    """The same as `run`, and loaded: each only once for all tests."""

    def load(name: str, **given: Any) -> Side:
        key = f"{name} {given}"
        if key not in _LOADED:
            (_LOADED[key],) = load_sides([run(name, **given)])
        return _LOADED[key]

    return load


def figure(comparison: Comparison, key: str) -> Figure:
    (found,) = [figure for figure in comparison.figures if figure.key == key]
    return found


def causes(comparison: Comparison) -> list[Cause]:
    return comparison.explanations[0].causes


def test_a_longer_step_is_taken_apart_into_what_it_waits_for(side: Callable[..., Side]) -> None:
    found = compare([side("base"), side("slow", wait=81.0)])
    assert found.verdicts == ["slow needs 9.0 times as long for a step as base (95 % sure: 9.0 to 9.0 times)."]
    assert found.explanations[0].sentences == [
        "On average a step of slow takes 80.0 ms more (10.0 ms -> 90.0 ms): of these 80.0 ms waiting for data."
    ]
    assert [cause.kind for cause in causes(found)] == ["data_wait"]
    assert "90 % of its step time (base: 10 %)" in causes(found)[0].text
    assert "0.7 of 8 cores busy: more loading processes (num_workers) may help" in causes(found)[0].text


def test_a_shorter_step_is_told_as_such_and_the_slower_run_explained(side: Callable[..., Side]) -> None:
    found = compare([side("slow", wait=2.0), side("base")])
    assert found.verdicts == ["base needs 9.1 % less time for a step than slow (95 % sure: 9.1 to 9.1 %)."]
    assert "a step of base takes 1.00 ms less (11.0 ms -> 10.0 ms)" in found.explanations[0].sentences[0]
    assert found.explanations[0].question == "What holds slow back"


def test_what_goes_the_other_way_is_said_too(side: Callable[..., Side]) -> None:
    found = compare([side("base"), side("other", wait=6.0, optimizer=0.2)])
    (sentence,) = found.explanations[0].sentences
    assert sentence.endswith(": of these 5.00 ms waiting for data; but 800 µs less optimizer.")


@pytest.mark.parametrize(
    ("slow", "kind", "words"),
    [
        ({"wait": 50.0, "host": {"cpu_ratio": 0.99}}, "data_wait", "All 8 cores were busy (99 %)"),
        ({"wait": 50.0, "host": {"cpu_iowait_ratio": 0.3}}, "data_wait", "waited for I/O 30 % of the time"),
        ({"other": 10.0}, "other", "logging, checkpoints, validation) 50 % of its step time (base: 0 %)"),
        ({"pause": 30.0}, "outside_steps", "outside of steps (base: 0 %)"),
        ({"gpus": (90.0, 0.0, 0.0, 0.0)}, "idle_gpus", "3 of the 4 GPUs of other were busy less than 2 %"),
        ({"samples": 8}, "small_batches", "has 8 samples (base: 64)"),
        (
            {"host": {"job_cpu_cores": 1.0}, "process": {"cpu_cores": 0.99}},
            "host_bound",
            "kept one core busy (0.99 of 8) and a step takes only",
        ),
        ({"host": {"cpu_ratio": 0.9}}, "busy_machine", "Other programs kept 6.5 of 8 cores busy"),
        (
            {"gpu": {"throttle_reasons": ["hw_thermal"], "clock_sm_hertz": 1.2e9}},
            "throttled",
            "100 % of the time (base: 0 %), to 1,200 MHz on average (against 1,800 MHz)",
        ),
        ({"process": {"cpu_seconds": 1.0}, "gpus": (0.0,)}, "gpu_not_used", "rose by 0 MiB at most"),
    ],
)
def test_each_cause_is_found_with_its_figures(
    side: Callable[..., Side], slow: dict[str, Any], kind: str, words: str
) -> None:
    base = side("base", gpus=(98.0,), gpu={"throttle_reasons": [], "clock_sm_hertz": 1.8e9})
    found = compare([base, side("other", **{"gpus": (6.0,)} | slow)])
    assert found.explanations[0].question == "Why the GPU of other is less busy"
    assert causes(found)[0].kind == kind
    assert words in causes(found)[0].text


def test_causes_that_account_for_more_come_first(side: Callable[..., Side]) -> None:
    found = compare([side("base"), side("other", wait=30.0, other=15.0, samples=8)])
    assert [cause.kind for cause in causes(found)] == ["data_wait", "other", "small_batches"]


def test_why_one_used_98_percent_of_the_gpu_and_the_other_6(side: Callable[..., Side]) -> None:
    found = compare([side("base", gpus=(98.0,)), side("other", wait=154.0, gpus=(6.0,))])
    _, use, work = found.explanations[0].sentences
    assert use == "The GPUs of base were busy 98 % of the time while training, those of other 6 %."
    assert "the work is about the same, the waiting differs" in work
    assert figure(found, "gpu_busy_share").changes[1] == pytest.approx(-0.92)


def test_nothing_is_claimed_about_the_use_of_simulated_gpus(side: Callable[..., Side]) -> None:
    found = compare([side("base", gpus=(98.0,)), side("other", gpus=(6.0,), gpu={"simulated": True})])
    assert found.explanations[0].sentences == [] and causes(found) == []
    assert any("other are simulated" in note for note in found.notes)
    assert figure(found, "gpu_busy_share").how == "simulated"


def test_when_the_records_show_no_cause_none_is_named(side: Callable[..., Side]) -> None:
    found = compare([side("base", gpus=(98.0,)), side("other", gpus=(6.0,))])
    assert causes(found) == []
    assert found.explanations[0].sentences[-1] == "The records do not show why the GPU of other is less busy."


def test_runs_that_do_not_differ_are_not_explained(side: Callable[..., Side]) -> None:
    found = compare([side("one", noise=0.1), side("two", noise=0.1)])
    assert "no difference beyond noise" in found.verdicts[0]
    assert found.explanations[0].sentences == [] and causes(found) == []


def test_long_steps_now_and_then_are_told_from_typical_ones(side: Callable[..., Side]) -> None:
    base = side("base", noise=0.02)
    assert base.steps is not None
    seconds = 0.9 * base.steps.seconds
    seconds[::10] += 0.04
    other = replace(base, label="other", steps=replace(base.steps, seconds=seconds))
    (verdict,) = compare([base, other]).verdicts
    assert re.match(
        r"other needs 9\.\d % less time for a step than base \(.*\); but on average, long ones included", verdict
    )
    assert re.search(r"other needs 3\d\.\d % more time for a step than base", verdict)


def test_batches_of_different_size_are_compared_by_sample(side: Callable[..., Side]) -> None:
    found = compare([side("small", samples=32), side("large", samples=64, forward=4.0)])
    assert found.speeds[0].per == "sample" and "% less time for a sample than small" in found.verdicts[0]
    assert "a sample of large takes" in found.explanations[0].sentences[0]
    assert figure(found, "step_seconds_p50").better == "" and figure(found, "sample_seconds_p50").better == "lower"
    assert any("samples in a step differ (small 32, large 64)" in note for note in found.notes)


def test_the_warm_up_is_left_out(make_run: MakeRun) -> None:
    lines = [{"step": n, "step_seconds": 5.0 if n < 10 else 0.01, "elapsed_seconds": 50.0 + n} for n in range(200)]
    (side,) = load_sides([make_run(training=lines)])
    assert side.steps is not None
    assert (side.steps.warm_up, side.steps.count) == (10, 190)
    assert side.steps.mean_seconds == pytest.approx(0.01)


def test_only_the_steps_of_the_first_rank_are_taken(make_run: MakeRun) -> None:
    lines = [
        {"rank": rank, "step_seconds": 0.1 + rank, "elapsed_seconds": float(n)} for n in range(40) for rank in (0, 1)
    ]
    (side,) = load_sides([make_run(training=lines)])
    assert side.steps is not None and set(side.steps.seconds) == {0.1}


def test_too_few_steps_are_said_to_tell_nothing(side: Callable[..., Side]) -> None:
    found = compare([side("base"), side("short", steps=12)])
    assert found.verdicts == ["base and short: too few steps to tell (285 and 12)."]
    assert figure(found, "step_seconds_p50").tests == [None, None]
    assert figure(found, "step_seconds_p50").values[1] is not None


def test_a_run_without_steps_is_compared_by_its_machine_alone(side: Callable[..., Side], make_run: MakeRun) -> None:
    (bare,) = load_sides([make_run(name="bare", host=[{"cpu_ratio": 0.5, "cpu_cores": 4}])])
    found = compare([side("base"), bare])
    assert found.verdicts == ["base and bare: no steps of bare were recorded."]
    assert figure(found, "step_seconds_p50").values[1] is None and figure(found, "gpu_busy_share").values[1] is None
    assert figure(found, "step_seconds_p50").changes == [None, None]
    assert figure(found, "cpu_share").changes[1] == pytest.approx(0.4)
    assert any("bare has no training steps" in note for note in found.notes)
    assert any(note == "The GPUs differ: base 1x L4; bare none." for note in found.notes)


def test_parts_that_were_not_recorded_stay_unknown(make_run: MakeRun) -> None:
    def plain(name: str, seconds: float) -> RunFolder:
        lines = [{"step": n, "step_seconds": seconds, "elapsed_seconds": n * seconds} for n in range(100)]
        return make_run(id=f"20261116-120000-{name}", name=name, training=lines)

    found = compare(load_sides([plain("one", 0.1), plain("two", 0.2)]))
    assert found.explanations[0].sentences[0].endswith("; its parts were not recorded in both runs.")
    assert "forward_seconds" not in {figure.key for figure in found.figures}
    assert "samples_per_second" not in {figure.key for figure in found.figures}


def test_doubtful_runs_are_named(run: Callable[..., RunFolder], side: Callable[..., Side]) -> None:
    folder = run("broken", status="failed", exit_code=3, lost_samples=5)
    file = next(folder.path.glob("*/training_metrics_*"))
    file.write_bytes(b"\x00\xff{]\n" * 5)
    found = compare([side("base"), *load_sides([folder])])
    assert found.verdicts == ["base and broken: no steps of broken were recorded."]
    assert "broken ended with exit code 3." in found.notes
    assert "5 lines of broken could not be read and are left out." in found.notes
    assert "5 readings of broken could not be written." in found.notes


def test_a_run_can_be_compared_with_itself_and_is_told_apart_by_numbers(
    run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    folder = run("one")
    (tmp_path / "link").symlink_to(folder.path)
    found = compare(load_sides([folder, RunFolder(tmp_path / "link")]))
    assert found.verdicts == [
        "run 1 and run 2 show no difference beyond noise in the time for a step (+0.0 to +0.0 %)."
    ]
    assert found.notes == ["run 2 is a run that stands here already: it is compared with itself."]


def accounted(side: Side, accounting: Any, currency: str) -> Side:
    """The same run with 1 J a sample, an intensity of 360 g/kWh and a price."""
    energy = msgspec.structs.replace(side.report.energy, joules_per_sample=1.0)
    carbon = Carbon(
        grams=1.0, grams_per_kwh=360.0, region="Germany", provider="test", accounting=accounting, quality="annual"
    )
    cost = Cost(amount=1.0, currency=currency, basis=f"1 {currency}/h", per_sample=0.002)
    return replace(side, report=msgspec.structs.replace(side.report, energy=energy, carbon=carbon, cost=cost))


def test_carbon_and_cost_are_told_by_sample_and_never_mixed_across_kinds(side: Callable[..., Side]) -> None:
    one, two = side("base"), side("other", gpus=(6.0,))
    found = compare([accounted(one, "lifecycle", "EUR"), accounted(two, "operational", "USD")])
    assert figure(found, "grams_per_1000_samples_lifecycle").values == [pytest.approx(0.1), None]
    assert figure(found, "grams_per_1000_samples_operational").values == [None, pytest.approx(0.1)]
    assert figure(found, "cost_per_1000_samples_EUR").values == [2.0, None]
    assert figure(found, "cost_per_1000_samples_USD").changes == [None, None]
    assert "Prices differ: base 1 EUR/h; other 1 USD/h." in found.notes


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

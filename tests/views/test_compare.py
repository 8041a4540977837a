"""What a comparison says: a difference is taken apart, and what makes it doubtful is named."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.insight.compared import load_training, write_training

from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.compare import compare
from pulsetrain.insight.compare.figures import Figure
from pulsetrain.insight.compare.sides import Side, load_sides
from pulsetrain.insight.cost import Cost
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.compare.cells import cells
from pulsetrain.views.compare.content import CauseText, ComparisonDocument, document
from pulsetrain.views.compare.html import compare_html
from pulsetrain.views.compare.text import compare_lines
from pulsetrain.views.text import Style

MakeRun = Callable[..., RunFolder]


@pytest.fixture
def side(make_run: MakeRun) -> Callable[..., Side]:
    """Write and load a training: `side("slow", wait=8.0)`."""
    return partial(load_training, make_run)


def compared(*sides: Side) -> ComparisonDocument:
    return document(compare(sides))


def figure(comparison: ComparisonDocument, key: str) -> Figure:
    (found,) = [figure for figure in comparison.figures if figure.key == key]
    return found


def causes(comparison: ComparisonDocument) -> list[CauseText]:
    return comparison.explanations[0].causes


def test_a_longer_step_is_taken_apart_into_what_it_waits_for(side: Callable[..., Side]) -> None:
    found = compared(side("base"), side("slow", wait=81.0))
    assert found.verdicts == ["A step takes 9.0x as long in slow as in base (95 % interval 9.0 to 9.0x)."]
    assert found.explanations[0].sentences == [
        "On average a step of slow takes 80.0 ms more (10.0 ms -> 90.0 ms): of these 80.0 ms waiting for data."
    ]
    assert [cause.kind for cause in causes(found)] == ["data_wait"]
    assert causes(found)[0].rule == "InputBound"
    assert causes(found)[0].text.startswith(
        "InputBound: slow waits for data 90 % of its step time (base: 10 %). Load in"
    )
    assert "num_workers=7" in causes(found)[0].text


def test_a_shorter_step_is_reported_as_such_and_the_slower_run_explained(side: Callable[..., Side]) -> None:
    found = compared(side("slow", wait=2.0), side("base"))
    assert found.verdicts == ["A step takes 9.1 % less time in base than in slow (95 % interval 9.1 to 9.1 %)."]
    assert "a step of base takes 1.00 ms less (11.0 ms -> 10.0 ms)" in found.explanations[0].sentences[0]
    assert found.explanations[0].question == "What holds slow back"


def test_what_goes_the_other_way_is_said_too(side: Callable[..., Side]) -> None:
    found = compared(side("base"), side("other", wait=6.0, optimizer=0.2))
    (sentence,) = found.explanations[0].sentences
    assert sentence.endswith(": of these 5.00 ms waiting for data; but 800 µs less optimizer.")


@pytest.mark.parametrize(
    ("slow", "kind", "words"),
    [
        ({"wait": 50.0, "host": {"cpu_iowait_ratio": 0.3}}, "data_wait", "(base: 10 %). Use a local SSD"),
        ({"other": 10.0}, "other", "logging, checkpoints, validation) 50 % of its step time (base: 0 %)"),
        ({"pause": 30.0}, "outside_steps", "outside of steps (base: 0 %)"),
        (
            {"gpus": (90.0, 0.0, 0.0, 0.0)},
            "idle_gpus",
            "3 of the 4 GPUs of other were idle: at most 1 % utilization",
        ),
        ({"samples": 8}, "small_batches", "has 8 samples (base: 64)"),
        (
            {"host": {"job_cpu_cores": 1.0}, "process": {"cpu_cores": 0.99}},
            "host_bound",
            "used one whole core (0.99 of 8) and a step takes only",
        ),
        ({"host": {"cpu_ratio": 0.9}}, "busy_machine", "Other programs used 6.5 of 8 cores"),
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
    found = compared(base, side("other", **{"gpus": (6.0,)} | slow))
    assert found.explanations[0].question == "Why GPU utilization of other is lower"
    assert causes(found)[0].kind == kind
    assert words in causes(found)[0].text


def test_why_one_used_98_percent_of_the_gpu_and_the_other_6(side: Callable[..., Side]) -> None:
    found = compared(side("base", gpus=(98.0,)), side("other", wait=154.0, gpus=(6.0,)))
    _, use, work = found.explanations[0].sentences
    assert use == "GPU utilization while training was 98 % in base and 6 % in other."
    assert "the work is about the same; the waiting differs" in work
    assert figure(found, "gpu_busy_share").changes[1] == pytest.approx(-0.92)


def test_nothing_is_claimed_about_the_use_of_simulated_gpus(side: Callable[..., Side]) -> None:
    found = compared(side("base", gpus=(98.0,)), side("other", gpus=(6.0,), gpu={"simulated": True}))
    assert found.explanations[0].sentences == [] and causes(found) == []
    assert any("other are simulated" in note for note in found.notes)
    assert figure(found, "gpu_busy_share").how == "simulated"


def test_when_the_records_show_no_cause_none_is_named(side: Callable[..., Side]) -> None:
    found = compared(side("base", gpus=(98.0,)), side("other", gpus=(6.0,)))
    assert causes(found) == []
    assert found.explanations[0].sentences[-1] == "The records do not show why GPU utilization of other is lower."


def test_runs_that_do_not_differ_are_not_explained(side: Callable[..., Side]) -> None:
    found = compared(side("one", noise=0.1), side("two", noise=0.1))
    assert "no difference beyond noise" in found.verdicts[0]
    assert found.explanations[0].sentences == [] and causes(found) == []


def test_long_steps_now_and_then_are_distinguished_from_typical_ones(side: Callable[..., Side]) -> None:
    base = side("base", noise=0.02)
    assert base.steps is not None
    seconds = 0.9 * base.steps.seconds
    seconds[::10] += 0.04
    facts = replace(base.facts, steps=replace(base.steps, seconds=seconds))
    other = replace(base, label="other", facts=facts)
    (verdict,) = compared(base, other).verdicts
    assert re.match(
        r"A step takes 9\.\d % less time in other than in base \(.*\); but on average, long ones included", verdict
    )
    assert re.search(r"a step takes 3\d\.\d % longer in other than in base", verdict)


def test_batches_of_different_size_are_compared_by_sample(side: Callable[..., Side]) -> None:
    found = compared(side("small", samples=32), side("large", samples=64, forward=4.0))
    assert found.speeds[0].per == "sample" and "% less time in large than in small" in found.verdicts[0]
    assert "a sample of large takes" in found.explanations[0].sentences[0]
    assert figure(found, "step_seconds_p50").better == "" and figure(found, "sample_seconds_p50").better == "lower"
    assert any("samples in a step differ (small 32, large 64)" in note for note in found.notes)


def test_too_few_steps_are_said_to_tell_nothing(side: Callable[..., Side]) -> None:
    found = compared(side("base"), side("short", steps=12))
    assert found.verdicts == ["base and short: too few steps to compare (285 and 12)."]
    assert figure(found, "step_seconds_p50").tests == [None, None]
    assert figure(found, "step_seconds_p50").values[1] is not None


def test_a_run_without_steps_is_compared_by_its_machine_alone(side: Callable[..., Side], make_run: MakeRun) -> None:
    (bare,) = load_sides([make_run(name="bare", host=[{"cpu_ratio": 0.5, "cpu_cores": 4}])])
    found = compared(side("base"), bare)
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

    found = compared(*load_sides([plain("one", 0.1), plain("two", 0.2)]))
    assert found.explanations[0].sentences[0].endswith("; its parts were not recorded in both runs.")
    assert "forward_seconds" not in {figure.key for figure in found.figures}
    assert "samples_per_second" not in {figure.key for figure in found.figures}


def test_doubtful_runs_are_named(make_run: MakeRun, side: Callable[..., Side]) -> None:
    folder = write_training(make_run, "broken", status="failed", exit_code=3, lost_samples=5)
    file = next(folder.path.glob("*/training_metrics_*"))
    file.write_bytes(b"\x00\xff{]\n" * 5)
    found = compared(side("base"), *load_sides([folder]))
    assert found.verdicts == ["base and broken: no steps of broken were recorded."]
    assert "broken ended with exit code 3." in found.notes
    assert "5 lines of broken could not be read and were skipped." in found.notes
    assert "5 readings of broken could not be written." in found.notes


def test_a_run_can_be_compared_with_itself_and_is_distinguished_by_numbers(make_run: MakeRun, tmp_path: Path) -> None:
    folder = write_training(make_run, "one")
    (tmp_path / "link").symlink_to(folder.path)
    found = compared(*load_sides([folder, RunFolder(tmp_path / "link")]))
    assert found.verdicts == ["run 1 and run 2 show no difference beyond noise in the time per step (+0.0 to +0.0 %)."]
    assert found.notes == ["run 2 is listed twice: it is compared with itself."]


def accounted(side: Side, accounting: Any, currency: str) -> Side:
    """The same run with 1 J a sample, an intensity of 360 g/kWh and a price."""
    energy = msgspec.structs.replace(side.report.energy, joules_per_sample=1.0)
    carbon = Carbon(
        grams=1.0, grams_per_kwh=360.0, region="Germany", provider="test", accounting=accounting, quality="annual"
    )
    cost = Cost(amount=1.0, currency=currency, basis=f"1 {currency}/h", per_sample=0.002)
    return replace(side, report=msgspec.structs.replace(side.report, energy=energy, carbon=carbon, cost=cost))


def test_carbon_and_cost_are_reported_by_sample_and_never_mixed_across_kinds(side: Callable[..., Side]) -> None:
    one, two = side("base"), side("other", gpus=(6.0,))
    found = compared(accounted(one, "lifecycle", "EUR"), accounted(two, "operational", "USD"))
    assert figure(found, "grams_per_1000_samples_lifecycle").values == [pytest.approx(0.1), None]
    assert figure(found, "grams_per_1000_samples_operational").values == [None, pytest.approx(0.1)]
    assert figure(found, "cost_per_1000_samples_EUR").values == [2.0, None]
    assert figure(found, "cost_per_1000_samples_USD").changes == [None, None]
    assert "Prices differ: base 1 EUR/h; other 1 USD/h." in found.notes


def test_each_run_has_the_headline_of_its_own_verdict_everywhere(side: Callable[..., Side]) -> None:
    sides = side("base"), side("slow", wait=81.0)
    found = compared(*sides)
    assert [run.finding for run in found.runs] == ["", "InputBound"]
    assert [run.verdict for run in found.runs] == [one.report.verdict and one.report.verdict.headline for one in sides]
    assert any(
        "verdict InputBound: 90 % of each step waits" in line for line in compare_lines(found, Style(StringIO()))
    )
    assert "Verdict: InputBound: 90 % of each step waits" in compare_html(found, sides)


def test_settings_that_differ_are_rows_in_text_page_and_json(side: Callable[..., Side]) -> None:
    sides = [
        with_run(
            side("base"), {"lr": 0.1, "model": {"depth": 12}, "seed": 1}, {"team": "a"}, ["python", "t.py", "--fast"]
        ),
        with_run(side("other"), {"lr": 0.01, "model": {"depth": 24}, "seed": 1}, {}, ["python", "t.py", "--size=3"]),
    ]
    found = compared(*sides)
    assert [(one.name, one.values) for one in found.settings] == [
        ("team", ["a", ""]),
        ("lr", ["0.1", "0.01"]),
        ("model.depth", ["12", "24"]),
        ("--fast", ["yes", ""]),
        ("--size", ["", "3"]),
    ]
    rows = [line.split() for line in compare_lines(found, Style(StringIO()))]
    start = rows.index(["settings", "that", "differ"])
    assert rows[start + 1 : start + 6] == [
        ["team", "a", "-"],
        ["lr", "0.1", "0.01"],
        ["model.depth", "12", "24"],
        ["--fast", "yes", "-"],
        ["--size", "-", "3"],
    ]
    assert '<th scope="row">model.depth</th><td class="r">12</td><td class="r">24</td>' in compare_html(found, sides)
    assert not compared(sides[0], sides[0]).settings


def with_run(side: Side, config: dict[str, Any], tags: dict[str, str], command: list[str]) -> Side:
    run = msgspec.structs.replace(side.report.run, config=config, tags=tags, command=command)
    return replace(side, report=msgspec.structs.replace(side.report, run=run))


def test_a_row_has_one_unit(side: Callable[..., Side]) -> None:
    row = Figure(
        key="joules", name="GPU energy", section="energy", unit="J", values=[680.0, 18000.0], changes=[], tests=[]
    )
    row = msgspec.structs.replace(row, changes=[None, 25.5], tests=[None, None])
    assert [cell.value for cell in cells(row)] == ["0.189 Wh", "5.00 Wh"]
    times = msgspec.structs.replace(row, unit="seconds", values=[0.0021, 1.25])
    assert [cell.value for cell in cells(times)] == ["0.00210 s", "1.25 s"]

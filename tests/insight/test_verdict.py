"""The verdict about recorded runs: what is found, what is not, and why nobody can tell."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pulsetrain.errors import UsageError
from pulsetrain.insight.changes import find_changes, parse_span
from pulsetrain.insight.report import make_report
from pulsetrain.insight.robust import change_points
from pulsetrain.insight.verdict import JUDGES
from pulsetrain.rules.declared import RECORD_RULES
from pulsetrain.rules.finding import Finding, Verdict
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import CountingOptions, RunFolder

MakeRun = Callable[..., RunFolder]
Line = dict[str, Any]


def steps(count: int = 200, seconds: float = 0.1, **fields: Any) -> list[Line]:
    """A loop that computes most of its time and learns, with the least noise that real ones have."""
    draw = random.Random(1)
    lines, elapsed = [], 5.0
    for number in range(1, count + 1):
        given = {name: value(number) if callable(value) else value for name, value in fields.items()}
        parts = {"data_wait_seconds": 0.02, "forward_seconds": 0.3, "backward_seconds": 0.5, "optimizer_seconds": 0.1}
        length = given.pop("length", seconds) * draw.uniform(0.97, 1.03)
        line: Line = {name: share * length for name, share in parts.items()}
        line |= {
            "step": number,
            "step_seconds": length,
            "other_seconds": 0.08 * length,
            "samples": 64,
            "accumulation": 1,
        }
        line |= {"loss": 2 * 0.99**number * draw.uniform(0.95, 1.05), "gradient_norm": draw.uniform(0.5, 1.5), **given}
        elapsed += line["step_seconds"]
        lines.append({"elapsed_seconds": elapsed, **line})
    return lines


def verdict_of(run: RunFolder, limits: Thresholds = DEFAULTS, counting: CountingOptions | None = None) -> Verdict:
    verdict = make_report(run, counting, thresholds=limits).verdict
    assert verdict is not None
    return verdict


def main_of(run: RunFolder) -> Finding:
    main = verdict_of(run).main
    assert main is not None
    return main


def test_every_rule_for_records_has_a_judge_and_only_existing_thresholds() -> None:
    assert JUDGES.keys() == RECORD_RULES.keys()
    for rule in RECORD_RULES.values():
        assert rule.on_record is not None
        assert set(rule.on_record.thresholds) <= set(Thresholds.__struct_fields__), rule.name
        assert set(rule.on_record.explains) <= RECORD_RULES.keys(), rule.name


def test_a_run_that_computes_is_held_back_by_nothing(make_run: MakeRun) -> None:
    verdict = verdict_of(make_run(training=steps()))
    assert verdict.headline == "Nothing holds it back: computing takes 90 % of a steady step."
    assert verdict.main is None
    assert [(finding.rule, finding.severity) for finding in verdict.findings] == [("ComputeBound", "info")]


def test_what_waiting_for_data_costs_is_reported_in_time_and_money(make_run: MakeRun) -> None:
    run = make_run(training=steps(data_wait_seconds=0.06, forward_seconds=0.01, backward_seconds=0.02), seconds=30.0)
    verdict = verdict_of(run, counting=CountingOptions(price="3.60 USD/h"))
    assert verdict.main is not None and verdict.main.rule == "InputBound"
    cost = verdict.main.cost
    assert cost.seconds == pytest.approx(200 * 0.06, rel=0.15)
    assert cost.money == pytest.approx(0.001 * (cost.seconds or 0), rel=0.01)
    assert "USD a day" in verdict.main.advice


def test_a_rule_that_is_not_wanted_finds_nothing(make_run: MakeRun) -> None:
    run = make_run(training=steps(data_wait_seconds=0.06, forward_seconds=0.01, backward_seconds=0.02))
    assert verdict_of(run, Thresholds(off=frozenset({"InputBound"}))).main is None
    assert verdict_of(run, Thresholds(data_wait_ratio=0.9)).main is None


def test_what_another_finding_explains_comes_after_it_as_info(make_run: MakeRun) -> None:
    lines = steps(loss=lambda n: None if n > 100 else 2.0, gradient_norm=lambda n: 1.0 if n < 90 else 1e4)
    for line in lines[100:]:
        line["nonfinite"] = {"loss": "nan"}
    verdict = verdict_of(make_run(training=lines))
    assert verdict.headline == "The loss is NaN or infinite from step 101 on."
    gravity = {finding.rule: finding.severity for finding in verdict.findings}
    assert gravity == {"NonFinite": "critical", "GradientExplosion": "info", "LossNotDecreasing": "info"}


def lengthened(lines: list[Line], part: str, seconds: Callable[[int], float]) -> list[Line]:
    """The same steps, in each of which a part takes so much longer."""
    later = 0.0
    for line in lines:
        more = seconds(line["step"])
        later += more
        line[f"{part}_seconds"] += more
        line["step_seconds"] += more
        line["elapsed_seconds"] += later
    return lines


LOADERS = [
    {"elapsed_seconds": 6.0 + n, "pid": pid, "parent_pid": parent, "command": "python train.py", "cpu_cores": 0.1}
    for n in range(5)
    for pid, parent in ((10, 1), (11, 10), (12, 10), (13, 10), (14, 10))
]


@pytest.mark.parametrize("part", ["data_wait", "forward", "optimizer", "other"])
def test_a_handful_of_steps_that_lost_the_cpu_are_no_bottleneck(part: str, make_run: MakeRun) -> None:
    """200 steps of 5 ms, every 12th of which loses the CPU for 60 ms: half of the time in training."""
    lines = lengthened(steps(seconds=0.005), part, lambda n: 0.06 if n % 12 == 0 else 0.0)
    found = verdict_of(make_run(training=lines, seconds=8.0))
    assert found.main is None
    outliers = next(finding for finding in found.findings if finding.rule == "StepOutliers")
    assert outliers.severity == "info"


@pytest.mark.parametrize(
    ("late", "process", "found"),
    [
        (lambda n: 0.005, [], True),
        (lambda n: 0.0 if n % 4 else 0.03, LOADERS, True),  # four workers that bring their batches together
        (lambda n: 0.0 if n % 4 else 0.03, [], False),
        (lambda n: 0.0 if n % 50 else 0.5, [], True),  # a new file now and then
    ],
)
def test_waits_for_data_that_come_again_and_again_are_one(
    late: Callable[[int], float], process: list[Line], found: bool, make_run: MakeRun
) -> None:
    lines = lengthened(steps(1000, seconds=0.01), "data_wait", late)
    main = verdict_of(make_run(training=lines, process=process, seconds=30.0)).main
    assert (main is not None and main.rule == "InputBound") is found


def test_what_holds_a_run_back_is_a_warning_when_it_costs_enough_and_enough_steps_show_it(make_run: MakeRun) -> None:
    def input_bound(id: str, lines: list[Line], limits: Thresholds = DEFAULTS) -> str | None:
        findings = verdict_of(make_run(id, training=lines, seconds=10.0), limits).findings
        return next((finding.severity for finding in findings if finding.rule == "InputBound"), None)

    def waits(count: int, seconds: float) -> list[Line]:
        return lengthened(steps(count, seconds=seconds), "data_wait", lambda n: seconds)

    assert input_bound("often", waits(300, 0.02)) == "warning"
    assert input_bound("short", waits(80, 0.005)) == "info", "0.4 s in all"
    asked = Thresholds(least_cost_seconds=0.1, least_cost_ratio=0.01)
    assert input_bound("asked", waits(80, 0.005), asked) == "warning"
    assert input_bound("few", waits(10, 0.5)) == "info", "ten steps"
    assert input_bound("long", waits(10, 5.0)) == "warning", "ten steps of ten seconds"


def test_a_rank_that_other_programs_hold_up_now_and_then_is_not_a_straggler(make_run: MakeRun) -> None:
    def of_two(id: str, late: Callable[[int], float]) -> Verdict:
        slow = lengthened(steps(seconds=0.02), "forward", late)
        return verdict_of(make_run(id, training=[*steps(seconds=0.02), *({**line, "rank": 1} for line in slow)]))

    assert [finding.rule for finding in of_two("disturbed", lambda n: 0.02 * (n % 5 > 1)).findings] == ["ComputeBound"]
    slow = of_two("slow", lambda n: 0.02)
    assert slow.main is not None and slow.main.rule == "Straggler"


def test_a_slow_down_of_the_whole_step_while_others_compute_is_not_a_warning(make_run: MakeRun) -> None:
    """The largest part grows most, and is not the cause."""
    host = [
        {"elapsed_seconds": n / 2, "cpu_ratio": 1.0 if n > 34 else 0.5, "cpu_cores": 2, "job_cpu_cores": 1.0}
        for n in range(80)
    ]

    def slower(id: str, later: list[Line]) -> str:
        findings = verdict_of(make_run(id, training=later, host=host)).findings
        return next(finding.severity for finding in findings if finding.rule == "SlowedDown")

    shares = {"forward_seconds": 0.8, "backward_seconds": 0.08, "optimizer_seconds": 0.02}
    lines = steps(length=lambda n: 0.1 if n < 120 else 0.2)
    for line in lines:
        line |= {part: share * line["step_seconds"] for part, share in shares.items()}
    assert slower("evenly", lines) == "info"
    assert slower("alone", lengthened(steps(), "forward", lambda n: 0.1 * (n >= 120))) == "warning"


def test_a_loss_that_does_not_fall_is_found_and_one_that_has_converged_is_not(make_run: MakeRun) -> None:
    draw = random.Random(2)
    flat = steps(loss=lambda n: 2.0 + draw.uniform(-0.1, 0.1))
    assert main_of(make_run("flat", training=flat)).rule == "LossNotDecreasing"
    converged = steps(400, loss=lambda n: 0.3 + 2 * 0.9**n + draw.uniform(-0.02, 0.02))
    assert verdict_of(make_run("converged", training=converged)).main is None


def test_a_slow_down_has_its_step_and_one_that_comes_back_is_none(make_run: MakeRun) -> None:
    slow = main_of(make_run("slow", training=steps(length=lambda n: 0.1 if n < 120 else 0.2)))
    assert slow.rule == "SlowedDown" and "From step 120 on" in slow.summary
    assert slow.cost.seconds == pytest.approx(81 * 0.1, rel=0.05)
    back = verdict_of(make_run("back", training=steps(length=lambda n: 0.2 if 80 < n < 120 else 0.1)))
    assert back.main is None


def test_a_validation_that_rises_while_the_training_falls_is_overfitting(make_run: MakeRun) -> None:
    def logged(rise: float) -> list[Line]:
        lines = steps()
        for place in range(19, 200, 20):
            lines[place]["val_loss"] = 1.0 + rise * max(0, place - 80) / 100 + max(0, 80 - place) / 100
        return lines

    found = main_of(make_run("over", training=logged(0.5)))
    assert found.rule == "Overfit" and found.summary.startswith("val_loss rose by")
    assert verdict_of(make_run("fits", training=logged(0.01))).main is None


def test_memory_that_rises_all_the_time_is_growth_and_a_step_up_is_not(make_run: MakeRun) -> None:
    def host(mb: Callable[[int], float]) -> list[Line]:
        return [
            {"elapsed_seconds": 2.0 * n, "job_memory_bytes": mb(n) * 2**20, "memory_available_bytes": 2**33}
            for n in range(30)
        ]

    long = steps(500)
    leak = main_of(make_run("leak", training=long, host=host(lambda n: 500 + 20 * n)))
    assert leak.rule == "MemoryGrowth" and "MiB a second" in leak.summary and "full in" in leak.summary
    assert verdict_of(make_run("step", training=long, host=host(lambda n: 500 if n < 10 else 900))).main is None


def test_a_run_without_a_training_says_why_nobody_can_tell(make_run: MakeRun) -> None:
    host = [{"elapsed_seconds": float(n), "cpu_ratio": 0.5} for n in range(3)]
    verdict = verdict_of(make_run(host=host))
    assert verdict.headline.startswith("Cannot tell what holds it back: ")
    assert verdict.main is None and verdict.findings == ()


def test_a_run_of_an_older_version_is_judged_by_what_it_has(make_run: MakeRun) -> None:
    lines = [{"step": n, "loss": 1.0, "learning_rate": 0.1} for n in range(80)]
    assert verdict_of(make_run(training=lines)).findings[0].rule == "LossNotDecreasing"


def test_a_run_that_would_fit_a_smaller_machine_has_a_finding_that_says_so(make_run: MakeRun) -> None:
    gpu = [
        {"elapsed_seconds": float(n), "gpu_index": 0, "uuid": "GPU-0", "name": "NVIDIA A100-SXM4-40GB", "up": 1}
        | {"utilization_percent": 12.0, "memory_percent": 10.0, "memory_used_mb": 4096.0, "memory_total_mb": 40960.0}
        for n in range(30)
    ]
    run = make_run(gpu=gpu, training=steps(), account=CountingOptions(price="gcp:a2-highgpu-1g@us-central1"))
    hints = verdict_of(run).sizing
    assert "batches up to about 9 times as large would fit" in hints[0]
    assert "It would fit a n1-standard-4+T4 at 15 % of the cost" in hints[1]
    assert "MIG slice" in hints[2]


@pytest.mark.parametrize(("length", "shift", "found"), [(200, 1.5, True), (200, 1.03, False), (15, 1.5, False)])
def test_a_shift_counts_at_ten_steps_and_five_percent(length: int, shift: float, found: bool) -> None:
    draw = np.random.default_rng(3)
    values = draw.uniform(0.99, 1.01, length)
    values[length // 2 :] *= shift
    assert bool(change_points(values)) is found


def test_what_else_changed_is_named_with_the_largest_change_first(make_run: MakeRun) -> None:
    draw = random.Random(4)
    gpu = [
        {"elapsed_seconds": float(n), "gpu_index": 0, "uuid": "GPU-0", "up": 1, "power_draw_watts": 200 + draw.random()}
        | {"clock_sm_hertz": 1.9e9 if n < 60 else 1.2e9, "temperature_celsius": 60 + draw.random()}
        for n in range(120)
    ]
    changes = find_changes(Database([run := make_run(gpu=gpu)]), 60, 90)
    assert run and [(change.field, change.before, change.after) for change in changes] == [
        ("clock_sm_hertz", 1.9e9, 1.2e9)
    ]
    with pytest.raises(UsageError, match="not a time range"):
        parse_span("90-60")

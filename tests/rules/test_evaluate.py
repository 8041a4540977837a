"""Rules evaluated in Python: they mean what their PromQL means."""

from collections.abc import Callable, Iterable

import pytest
from tests.alerts.test_rules import CASES, LIMITS, Case
from tests.rules.series import labels_of, recorded

from pulsetrain.rules.declared import RULES
from pulsetrain.rules.evaluate import Evaluator
from pulsetrain.rules.expression import (
    Expression,
    Threshold,
    both,
    gpu,
    increase_over,
    mean_over,
    share_of_samples,
)
from pulsetrain.rules.history import MOST_SAMPLES
from pulsetrain.rules.labels import LabelSet, Vector
from pulsetrain.rules.rule import Rule
from pulsetrain.rules.thresholds import Thresholds, duration_seconds
from pulsetrain.snapshot import Metric

INTERVAL = 30.0


def firing(rule: Rule, case: Case, end: float) -> set[LabelSet]:
    """The subjects of which a rule has been true for as long as it must hold."""
    evaluator = Evaluator([rule], LIMITS)
    series = recorded(case.all_series, INTERVAL)
    since: dict[LabelSet, float] = {}
    for number in range(int(end / INTERVAL) + 1):
        time = number * INTERVAL
        true = {labels for _, found in evaluator.evaluate(time, series.at(time)) for labels in found}
        since = {labels: since.get(labels, time) for labels in true}
    hold = duration_seconds(rule.hold_in(LIMITS))
    return {labels for labels, began in since.items() if end - began >= hold}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert} {case.severity}".strip())
def test_a_rule_is_true_in_python_when_its_alert_fires_in_prometheus(case: Case) -> None:
    (rule,) = (r for r in RULES if r.name == case.alert and case.severity in ("", r.severity))
    expected = {LabelSet.of(labels_of(labels)) for labels in case.fires}
    if rule.name == "PulsetrainDown":
        expected = set()  # only Prometheus knows whether it can scrape
    assert firing(rule, case, duration_seconds(case.at)) == expected
    assert firing(rule, case, duration_seconds(case.quiet)) == set()


# What is kept


class Shown:
    """What a machine shows now: values by metric and GPU."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float]] = {}

    def read(self, metric: Metric) -> Vector:
        shown = self.values.get(metric.field, {})
        extra = {"reason": "hw_thermal"} if metric.kind == "words" else {}
        return {LabelSet.of({"host": "a", "uuid": uuid, **extra}): value for uuid, value in shown.items()}


def rule_of(when: Expression) -> Rule:
    return Rule(name="Any", topic="machine", severity="info", when=when, summary="", description="", advice="")


def last(evaluator: Evaluator, shown: Shown, seconds: Iterable[float]) -> dict[str, float]:
    """The values after the last of these seconds, by GPU."""
    found: Vector = {}
    for second in seconds:
        found = next((vector for _, vector in evaluator.evaluate(second, shown)), {})
    return {labels.mapping["uuid"]: value for labels, value in found.items()}


def test_a_fast_series_is_thinned_out_and_its_figures_stay_true() -> None:
    throttled = gpu("throttle_reasons", reason=("hw_thermal",))
    evaluator = Evaluator([rule_of(share_of_samples(throttled, gpu("up"), "10m", "reason"))])
    shown = Shown()
    for second in range(5000):
        shown.values = {"up": {"GPU-0": 1}, "throttle_reasons": {"GPU-0": 1} if second % 9 < 3 else {}}
        share = last(evaluator, shown, [float(second)])
    assert share["GPU-0"] == pytest.approx(1 / 3, abs=0.02)
    assert evaluator.kept_samples < 2 * 3 * MOST_SAMPLES


def test_what_happened_last_counts_at_once_however_long_the_window() -> None:
    evaluator = Evaluator([rule_of(increase_over("1h", gpu("xid_errors")) > 0)])
    shown = Shown()
    shown.values = {"xid_errors": {"GPU-0": 4, "GPU-1": 4}}
    assert last(evaluator, shown, range(100)) == {}
    shown.values = {"xid_errors": {"GPU-0": 5, "GPU-1": 4}}
    assert last(evaluator, shown, [100]).keys() == {"GPU-0"}


def test_subjects_that_are_gone_are_forgotten() -> None:
    evaluator = Evaluator([rule_of(mean_over("5m", gpu("utilization_percent")))])
    shown = Shown()
    for day in range(50):
        shown.values = {"utilization_percent": {f"GPU-{day}": 50.0}}
        last(evaluator, shown, (day * 86400.0 + second for second in range(0, 600, 5)))
    assert evaluator.kept_samples < 4 * MOST_SAMPLES


def test_only_what_windows_need_is_kept() -> None:
    evaluator = Evaluator([rule_of(gpu("temperature_celsius") > 80)])
    shown = Shown()
    shown.values = {"temperature_celsius": {"GPU-0": 95.0}}
    assert last(evaluator, shown, range(1000)) == {"GPU-0": 95.0}
    assert evaluator.kept_samples == 0


def test_a_rule_without_its_signals_abstains_and_says_which_are_missing() -> None:
    rule = rule_of(both(gpu("fan_speed_percent").equals(0), gpu("temperature_celsius") > 60))
    evaluator = Evaluator([rule])
    shown = Shown()
    shown.values = {"temperature_celsius": {"GPU-0": 95.0}}
    assert evaluator.evaluate(0.0, shown) == []
    assert evaluator.missing(rule) == ["gpu_fan_speed_percent"]


def test_rules_that_are_off_or_without_a_limit_are_not_evaluated() -> None:
    names = {rule.name for rule in Evaluator(RULES, Thresholds(off=frozenset({"GpuHot"}), cost_limit=5)).rules}
    assert "GpuHot" not in names and "EnergyAboveLimit" not in names
    assert {"CostAboveLimit", "GpuLost"} <= names


# Mistakes in a declaration


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Threshold("gpu_hot"),
        lambda: Threshold("gpu_hot_celsius") < gpu("temperature_celsius"),
        lambda: 0 < gpu("temperature_celsius") < 5,
        lambda: gpu("temperature"),
    ],
)
def test_a_mistake_in_a_rule_is_found_when_it_is_declared(declare: Callable[[], Expression]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        declare()

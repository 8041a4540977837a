"""Python's evaluator beside Prometheus' own, on the same random series: every kind of expression, and every rule."""

import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tests.alerts.test_rules import LIMITS
from tests.rules.series import labels_of, recorded
from tests.servers import program

from pulsetrain.alerts.promql import promql
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.evaluate import Evaluator
from pulsetrain.rules.expression import (
    Absolute,
    Aggregate,
    AggregateFunction,
    Earlier,
    Expression,
    Number,
    OverTime,
    RecordingRule,
    Threshold,
    WindowFunction,
    both,
    compared,
    data_age,
    either,
    gpu,
    highest,
    increase_over,
    joined,
    mean_over,
    median_of_peers,
    rate_over,
    risen,
    share_of_samples,
    training,
    unless,
)
from pulsetrain.rules.labels import LabelSet, Vector
from pulsetrain.rules.recording import RECORDING_RULES, of_runs
from pulsetrain.rules.rule import Rule

INTERVAL = 7.0
"""Of no window a divisor: versions of Prometheus differ in whether a sample at the very start of a window counts."""
SAMPLES = 150
MOMENTS = tuple(INTERVAL * number for number in (0, 1, 12, 61, 149))

USED, FULL, HEAT = gpu("utilization_percent"), gpu("memory_percent"), gpu("temperature_celsius")
XID, LOSS, STEP = gpu("xid_errors"), training("loss"), training("step")
KEPT = RecordingRule("run:heat:max", highest(HEAT, "run"), "for these tests")
OF_KEPT = RecordingRule("run:heat:mean1m", Aggregate("mean", OverTime("mean", KEPT, "1m"), ("run",)), "of another one")
AGGREGATES: tuple[AggregateFunction, ...] = ("mean", "sum", "count", "min", "max", "median", "group")
WINDOWS: tuple[WindowFunction, ...] = ("mean", "sum", "count", "min", "max", "increase", "rate")

KINDS: dict[str, Expression] = {
    "a metric": HEAT,
    "one of several labels": gpu("throttle_reasons", reason=("hw_thermal", "sw_thermal")),
    "a label that is there": gpu("up", run=()),
    "an age": data_age("training"),
    "sums and differences": USED + FULL - 3,
    "products and quotients": USED * FULL / (HEAT - 60),
    "parentheses": USED - (FULL - HEAT) * (USED - FULL),
    "a quotient of zeros": (USED - USED) / (FULL - FULL),
    "a threshold and a constant": Threshold("throttled_ratio") * HEAT - Number(2) * USED,
    "equal": USED.equals(FULL),
    "comparisons with numbers": either(either(HEAT > 90, HEAT < 20), both(HEAT >= 50, HEAT <= 60)),
    "a comparison of a comparison": (HEAT > 30) < USED,
    "brought labels": of_runs(USED),
    "compared with one for all": compared(HEAT, "<", Number(0.9) * median_of_peers(HEAT, "run"), ("run",)),
    "less one for all": joined(HEAT, "-", median_of_peers(HEAT, "run"), ("run",)),
    "and by labels": both(HEAT > 50, highest(USED, "host") > 50, on=("host",)),
    "unless": unless(HEAT > 10, USED > 50),
    "unless by labels": unless(HEAT, gpu("up", run=()), on=("host", "uuid")),
    "without a sign": Absolute(USED - FULL),
    "risen, also by its first sample": risen("2m", XID),
    "a share of samples": share_of_samples(
        gpu("throttle_reasons", reason=("hw_thermal", "sw_thermal")), gpu("up"), "5m", "reason"
    ),
    "the rise of a counter that is reset": increase_over("5m", XID),
    "its rate": rate_over("2m", STEP),
    "some time ago": Earlier(HEAT, "2m") - HEAT,
    "a kept expression some time ago": Earlier(KEPT, "2m"),
    "a window of a kept expression": mean_over("5m", KEPT, offset="130s"),
    "kept from a kept one": OF_KEPT,
    **{f"{name} by run": Aggregate(name, HEAT, ("run",)) for name in AGGREGATES},
    **{f"{name} of all": Aggregate(name, LOSS) for name in AGGREGATES},
    **{f"{name} without uuid and gpu": Aggregate(name, USED, without=("uuid", "gpu")) for name in AGGREGATES},
    **{f"{name} over a window": OverTime(name, STEP, "5m") for name in WINDOWS},
    **{f"{name} over an earlier window": OverTime(name, LOSS, "1m", offset="130s") for name in WINDOWS},
}
ASKED = {
    **KINDS,
    **{f"{rule.name} {rule.severity}": rule.when for rule in RULES if rule.name != "PulsetrainDown"},
    **{f"{rule.name} {rule.severity} that fires": rule.stays for rule in RULES if rule.margin},
    **{rule.name: rule for rule in RECORDING_RULES if "p95" not in rule.name and "1d" not in rule.name},
}


def random_series(chance: random.Random) -> dict[str, str]:
    """Of two runs and an agent on two hosts: gauges, counters that are reset, words that come and go; with gaps."""
    series = {}
    for number in range(6):
        run = f',run="{"r" if number < 3 else "s"}"' if number < 5 else ""
        labels = f'gpu="{number % 3}",host="{"ab"[number // 3]}",uuid="GPU-{number}"{run}'
        series[f"gpu_up{{{labels}}}"] = _gauge(chance, (1, 1, 1, 0))
        for field in ("utilization_percent", "memory_percent", "temperature_celsius", "fan_speed_percent"):
            series[f"gpu_{field}{{{labels}}}"] = _gauge(chance, range(0, 101, 10))
        for field in ("pcie_width", "pcie_max_width", "pcie_generation", "pcie_max_generation"):
            series[f"gpu_{field}{{{labels}}}"] = _gauge(chance, (8, 16))
        for field in ("clock_sm_hertz", "clock_sm_max_hertz"):
            series[f"gpu_{field}{{{labels}}}"] = _gauge(chance, (1.1e9, 1.5e9, 1.98e9))
        for reason in ("hw_thermal", "sw_thermal", "sw_power_cap"):
            series[f'gpu_throttle_reasons{{reason="{reason}",{labels}}}'] = _gauge(chance, (1,), gaps=0.5)
        series[f"gpu_xid_errors_total{{{labels}}}"] = _counter(chance, (0, 0, 1))
    for number in range(4):
        labels = f'host="{"ab"[number % 2]}",rank="{number}",run="{"r" if number < 3 else "s"}"'
        series[f"training_loss{{{labels}}}"] = _gauge(chance, (0.1, 0.7, -2.5, "NaN", "Inf", "-Inf"))
        series[f'training_nonfinite_total{{value="loss",{labels}}}'] = _counter(chance, (0, 0, 0, 1))
        series[f"gradient_norm{{{labels}}}"] = _gauge(chance, (0, 0.5, 12))
        series[f"training_steps_total{{{labels}}}"] = _counter(chance, (0, 3, 5))
        for field in ("step_duration_seconds_sum", "data_wait_seconds_total", "forward_seconds_total"):
            series[f"training_{field}{{{labels}}}"] = _counter(chance, (0.25, 1.5, 3))
        series[f"training_step_duration_seconds_count{{{labels}}}"] = _counter(chance, (1, 2))
        series[f'pulsetrain_data_age_seconds{{data="training",{labels}}}'] = _gauge(chance, (1, 400, 900))
    for host in "ab":
        series[f'host_memory_available_bytes{{host="{host}"}}'] = _gauge(chance, (1e9, 5e9))
        series[f'host_memory_total_bytes{{host="{host}"}}'] = _gauge(chance, (64e9,))
        for field in ("cost_total", "cost_projected"):
            series[f'run_{field}{{currency="EUR",host="{host}",run="r"}}'] = _counter(chance, (5, 9))
        for field in ("energy_joules_total", "carbon_grams_total", "gpu_seconds_total", "gpu_idle_seconds_total"):
            series[f'run_{field}{{device="gpu",host="{host}",run="r"}}'] = _counter(chance, (2e5, 9e5))
    return series


def _gauge(chance: random.Random, values: Sequence[object], gaps: float = 0.05) -> str:
    return _with_gaps(chance, [str(chance.choice(values)) for _ in range(SAMPLES)], gaps)


def _counter(chance: random.Random, steps: Sequence[float]) -> str:
    found, value = [], float(chance.choice((0, 1000)))
    for _ in range(SAMPLES):
        value = 0.0 if chance.random() < 0.02 else value + chance.choice(steps)
        found.append(str(value))
    return _with_gaps(chance, found, 0.05)


def _with_gaps(chance: random.Random, words: list[str], gaps: float) -> str:
    """A series that ends and comes back; it may begin late."""
    late = chance.choice((0, 0, 40))
    return " ".join("_" if n < late else "stale" if chance.random() < gaps else word for n, word in enumerate(words))


def answers_of_prometheus(folder: Path, series: dict[str, str]) -> list[Vector]:
    """What promtool finds for every expression at every moment: it tells when it expects something else."""
    recording = [{"record": rule.name, "expr": promql(rule.expression)} for rule in (*RECORDING_RULES, KEPT, OF_KEPT)]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": recording}]}))
    nothing = [{"labels": "nothing", "value": 0}]
    questions = [
        {"expr": promql(expression, LIMITS), "eval_time": f"{moment:.0f}s", "exp_samples": nothing}
        for expression in ASKED.values()
        for moment in MOMENTS
    ]
    test = {
        "interval": f"{INTERVAL:.0f}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": questions,
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{INTERVAL:.0f}s", "tests": [test]}
    (folder / "test.yml").write_text(yaml.safe_dump(document))
    command = [program("promtool"), "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = re.findall(r"^ *got: (.*)$", done.stdout + done.stderr, re.MULTILINE)
    assert len(found) == len(questions), (done.stdout + done.stderr)[:2000]
    return [_vector(text) for text in found]


def _vector(text: str) -> Vector:
    if text == "nil":
        return {}
    samples = re.findall(r"(\{[^}]*\}) (\S+?)(?:, |$)", text)
    return {LabelSet.of({**labels_of(labels), "__name__": ""}): float(value) for labels, value in samples}


def answers_of_python(series: dict[str, str]) -> list[Vector]:
    rules = [
        Rule(name=name, topic="machine", severity="info", when=when, summary="", description="", advice="")
        for name, when in ASKED.items()
    ]
    evaluator = Evaluator(rules, LIMITS)
    shown = recorded(series, INTERVAL)
    found: dict[str, list[Vector]] = {name: [] for name in ASKED}
    for number in range(SAMPLES):
        time = number * INTERVAL
        true = {rule.name: vector for rule, vector in evaluator.evaluate(time, shown.at(time))}
        if time in MOMENTS:
            for name, vectors in found.items():
                vectors.append(true.get(name, {}))
    return [vector for vectors in found.values() for vector in vectors]


@pytest.mark.parametrize("seed", range(3))
def test_python_and_prometheus_agree_on_every_kind_of_expression_and_every_rule(seed: int, tmp_path: Path) -> None:
    series = random_series(random.Random(seed))
    theirs, ours = answers_of_prometheus(tmp_path, series), answers_of_python(series)
    asked = [(name, moment) for name in ASKED for moment in MOMENTS]
    differing = {
        question: (mine, expected)
        for question, mine, expected in zip(asked, ours, theirs, strict=True)
        if mine != pytest.approx(dict(expected), rel=1e-9, abs=1e-9, nan_ok=True)
    }
    assert differing == {}
    answered = {name for (name, _), expected in zip(asked, theirs, strict=True) if expected}
    assert KINDS.keys() <= answered, "a kind without any value shows nothing"
    assert len(answered) > 0.75 * len(ASKED)

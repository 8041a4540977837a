"""The present state of a machine as rules read it: what `/metrics` shows, no more and no less."""

from pulsetrain.alerts.present import LiveSignals
from pulsetrain.alerts.promql import series_name
from pulsetrain.live import Live
from pulsetrain.outputs.families import families
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.evaluate import Evaluator
from pulsetrain.rules.expression import Signal, walk
from pulsetrain.rules.labels import LabelSet, Vector
from pulsetrain.runs.reports import merge, subject
from pulsetrain.snapshot import Label, Sample, Snapshot, Subject, Value

SCOPE = {"host": "gpu01", "run": "r1"}
GPUS = [Subject("gpu", f"GPU-{n}", {"gpu_index": n, "uuid": f"GPU-{n}", "name": "NVIDIA L4"}) for n in range(3)]
HOST, ACCOUNT = Subject("host", ""), Subject("account", "")
METRICS = {part.metric for rule in RULES for part in walk(rule.when) if isinstance(part, Signal)}


def report(rank: int, **line: object) -> Sample:
    values: dict[str, Value] = {}
    merge(values, {"step": 1, "step_seconds": 0.5, "data_wait_seconds": 0.1, "forward_seconds": 0.2, **line})
    return Sample(subject(rank), values)


def gpu_sample(number: int, **values: Value) -> Sample:
    full: dict[str, Value] = {
        "up": 1,
        "utilization_percent": 90.0,
        "memory_percent": 50.0,
        "temperature_celsius": 60.0,
        "xid_errors": 0,
        "throttle_reasons": ["sw_thermal", "sw_power_cap"],
        "fan_speed_percent": None,
        "clock_sm_hertz": 1.9e9,
        "clock_sm_max_hertz": 1.98e9,
    }
    return Sample(GPUS[number], full | values)


def process(pid: int, uuid: str = "") -> Sample:
    on_gpu: dict[str, Label] = {"gpu_index": 0, "uuid": uuid} if uuid else {}
    about: dict[str, Label] = {"pid": pid, "user": "me", "command": "python", **on_gpu}
    return Sample(Subject("process", f"{pid}@{uuid}" if uuid else str(pid), about), {"gpu_memory_mb": 900.0})


FIRST = Snapshot(
    1.8e9,
    0.0,
    (
        gpu_sample(0),
        gpu_sample(1, throttle_reasons=[]),
        gpu_sample(2),
        Sample(
            HOST, {"memory_available_bytes": 1e9, "memory_total_bytes": 64e9, "source_up": {"nvidia": 1, "host": 0}}
        ),
        Sample(ACCOUNT, {"cost": {"EUR": 5.0}, "energy_joules": {"gpu": 9.0, "cpu": 2.0}, "carbon_grams": 3.0}),
        process(7, "GPU-0"),
        process(8, "GPU-0"),
        process(7),
        report(0, loss=0.5),
        report(1, nonfinite={"loss": "nan"}, gradient_norm=0.0),
    ),
)
SECOND = Snapshot(1.8e9 + 4, 4.0, (gpu_sample(0), Sample(GPUS[2], {"up": 0}), process(8), report(0, loss=0.25)))


def shown_by_exporter(live: Live, now: float) -> dict[str, dict[LabelSet, float]]:
    found: dict[str, dict[LabelSet, float]] = {}
    for family in families(live, SCOPE, now=now):
        for point in family.points:
            found.setdefault(family.name + point.suffix, {})[LabelSet.of(dict(point.labels))] = point.value
    return found


def test_rules_read_every_metric_as_the_exporter_shows_it() -> None:
    live = Live()
    signals = LiveSignals(live, SCOPE)
    read = set()
    for snapshot in (FIRST, SECOND):
        live(snapshot)
        expected = shown_by_exporter(live, now=snapshot.time + 2.5)
        for metric in METRICS:
            mine = signals.at(snapshot.time + 2.5).read(metric)
            theirs = expected.get(series_name(metric), {})
            assert {labels: repr(float(value)) for labels, value in mine.items()} == {
                labels: repr(float(value)) for labels, value in theirs.items()
            }
            read |= {metric.name} if mine else set()
    assert len(read) >= 18


def true_of(evaluator: Evaluator, time: float, signals: LiveSignals) -> dict[str, Vector]:
    return {rule.name: found for rule, found in evaluator.evaluate(time, signals)}


def test_rules_are_true_of_a_live_machine_as_soon_as_a_snapshot_shows_it() -> None:
    live = Live()
    signals, evaluator = LiveSignals(live, SCOPE), Evaluator(RULES)
    live(FIRST)
    first = true_of(evaluator, 0.0, signals)
    assert first.keys() - {"ThermalThrottle", "PowerCap"} == {
        *("VanishingGradient", "HostMemoryLow", "NonFinite", "PulsetrainSourceDown")
    }
    live(SECOND)
    second = true_of(evaluator, 4.0, signals)
    assert [labels.mapping["uuid"] for labels in second["GpuLost"]] == ["GPU-2"]
    live(Snapshot(1.8e9 + 5, 5.0, (gpu_sample(0, temperature_celsius=95.0, xid_code_errors={"79": 1}),)))
    third = true_of(evaluator, 5.0, signals)
    assert [labels.mapping["gpu"] for labels in third["GpuHot"]] == ["0"]
    assert [labels.mapping["gpu"] for labels in third["GpuXidError"]] == ["0"]
    assert list(true_of(evaluator, 405.0, signals.at(1.8e9 + 405))["Stalled"].values()) == [401.0]

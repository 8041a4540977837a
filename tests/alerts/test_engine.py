"""The live engine, on snapshots of simulated time: what is pending, fires, is quiet and is resolved."""

from collections.abc import Iterable

import pytest

from pulsetrain.alerts.engine import AlertEngine
from pulsetrain.alerts.inhibitions import INHIBITIONS, Matcher, inhibited
from pulsetrain.alerts.silences import Silence
from pulsetrain.live import Live
from pulsetrain.outputs.families import families
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.reports import merge, subject
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value

START = 1.8e9
SCOPE = {"host": "gpu01", "run": "r1"}
GPUS = [Subject("gpu", f"GPU-{n}", {"gpu_index": n, "uuid": f"GPU-{n}", "name": "NVIDIA L4"}) for n in range(8)]
NAN: dict[str, object] = {"loss": None, "nonfinite": {"loss": "nan"}}


def gpu(number: int = 0, **values: Value) -> Sample:
    full: dict[str, Value] = {"up": 1, "utilization_percent": 90.0, "memory_percent": 50.0, "temperature_celsius": 60.0}
    return Sample(GPUS[number], full | values)


def training(**line: object) -> Sample:
    values: dict[str, Value] = {}
    merge(values, {"step": 1, "step_seconds": 0.5, **line})
    return Sample(subject(0), values)


class Machine:
    """An engine, and what it has said of the snapshots it got."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.silences: tuple[Silence, ...] = ()
        self.engine = AlertEngine(thresholds or Thresholds(), SCOPE, lambda: self.silences)
        self.live = Live()
        self.elapsed = -1.0

    def show(self, *samples: Sample, seconds: float = 1.0, step: float = 1.0) -> list[Event]:
        """The same samples for some time; the events that come of it."""
        found: list[Event] = []
        until = self.elapsed + seconds
        while self.elapsed < until:
            self.elapsed += step
            snapshot = self.engine(Snapshot(START + self.elapsed, self.elapsed, samples))
            self.live(snapshot)
            found += snapshot.events
        return found


def said(events: Iterable[Event]) -> list[tuple[str, str, str]]:
    return [(event.kind, str(event.details["rule"]), event.severity) for event in events]


def test_an_alert_fires_once_after_its_hold_time_and_is_resolved_when_it_was_clear_for_a_while() -> None:
    machine = Machine()
    hot = gpu(temperature_celsius=85.0)
    assert machine.show(hot, seconds=295) == []
    (fired,) = machine.show(hot, seconds=600)
    assert said([fired]) == [("alert_firing", "GpuHot", "warning")]
    assert fired.message == "GPU 0 on gpu01 is at 85 °C"
    assert fired.details["value"] == 85.0
    assert (fired.details["gpu_index"], fired.details["uuid"]) == (0, "GPU-0")
    assert str(fired.details["advice"]).startswith("Check fans")
    assert machine.show(gpu(), seconds=50) == []
    (resolved,) = machine.show(gpu(), seconds=30)
    assert said([resolved]) == [("alert_resolved", "GpuHot", "info")]
    assert resolved.message == "Resolved: GPU 0 on gpu01 is at 85 °C"
    assert machine.live.alerts == {}


def test_what_is_true_for_a_moment_only_never_fires() -> None:
    machine = Machine()
    for _ in range(3):
        assert machine.show(gpu(temperature_celsius=85.0), seconds=290) == []
        assert machine.show(gpu(), seconds=10) == []


def test_an_alert_that_flickers_is_one_alert() -> None:
    machine = Machine(Thresholds(hold={"GpuHot": "0"}))
    assert len(machine.show(gpu(temperature_celsius=81.0))) == 1
    for _ in range(20):
        assert machine.show(gpu(), seconds=30) == []
        assert machine.show(gpu(temperature_celsius=81.0), seconds=2) == []


def test_an_alert_is_resolved_only_when_its_value_is_beyond_its_margin() -> None:
    machine = Machine(Thresholds(hold={"GpuHot": "0"}))
    assert len(machine.show(gpu(temperature_celsius=81.0))) == 1
    assert machine.show(gpu(temperature_celsius=78.0), seconds=300) == []
    assert said(machine.show(gpu(temperature_celsius=76.0), seconds=70)) == [("alert_resolved", "GpuHot", "info")]
    assert machine.show(gpu(temperature_celsius=78.0), seconds=300) == []


def test_a_rule_without_a_hold_time_fires_with_the_snapshot_that_shows_its_cause() -> None:
    machine = Machine()
    assert machine.show(training(loss=0.5), seconds=10) == []
    assert said(machine.show(training(**NAN))) == [("alert_firing", "NonFinite", "critical")]
    assert machine.show(gpu(), seconds=3) == []
    assert said(machine.show(gpu(xid_code_errors={"79": 1}))) == [("alert_firing", "GpuXidError", "critical")]


def test_the_graver_of_two_alerts_of_one_name_takes_the_place_of_the_other() -> None:
    machine = Machine(Thresholds(hold={"GpuHot": "0"}))
    assert said(machine.show(gpu(temperature_celsius=85.0))) == [("alert_firing", "GpuHot", "warning")]
    graver = machine.show(gpu(temperature_celsius=95.0))
    assert sorted(said(graver)) == [("alert_firing", "GpuHot", "critical"), ("alert_silenced", "GpuHot", "info")]
    assert [event.severity for event in machine.live.alerts.values()] == ["critical"]
    back = machine.show(gpu(temperature_celsius=85.0), seconds=70)
    assert sorted(said(back)) == [("alert_firing", "GpuHot", "warning"), ("alert_resolved", "GpuHot", "info")]


def test_a_lost_gpu_keeps_quiet_what_else_is_said_of_it_and_of_no_other() -> None:
    labels = {"host": "a", "uuid": "GPU-0"}
    firing = {
        "lost": {**labels, "alertname": "GpuLost", "severity": "critical"},
        "fan": {**labels, "alertname": "GpuFanStopped", "severity": "critical"},
        "xid": {**labels, "alertname": "GpuXidError", "severity": "critical"},
        "other": {**labels, "uuid": "GPU-1", "alertname": "GpuFanStopped", "severity": "critical"},
    }
    assert inhibited(firing) == {"fan": "lost"}


def test_every_name_in_an_inhibition_is_that_of_a_rule() -> None:
    names = {rule.name for rule in RULES}
    matchers = [m for one in INHIBITIONS for m in (*one.source, *one.target) if m.label == "alertname"]
    assert {name for matcher in matchers for name in matcher.value.split("|")} - names == set()


def test_a_label_that_is_not_there_counts_as_empty() -> None:
    assert Matcher.parse('run=""').matches({"host": "a"})
    assert not Matcher.parse('run!=""').matches({"host": "a"})
    with pytest.raises(ValueError, match="no matcher"):
        Matcher.parse("run")


def test_a_silence_hides_its_rule_at_once_and_only_until_it_ends() -> None:
    machine = Machine(Thresholds(hold={"GpuHot": "0"}))
    hot = gpu(temperature_celsius=85.0)
    assert len(machine.show(hot)) == 1
    machine.silences = (Silence(rule="GpuHot", run="another"), Silence(rule="GpuLost"))
    assert machine.show(hot) == []
    machine.silences = (Silence(rule="GpuHot", run="r1", until=START + 60.0),)
    (silenced,) = machine.show(hot)
    assert said([silenced]) == [("alert_silenced", "GpuHot", "info")]
    assert silenced.message == "Silenced by the user: GPU 0 on gpu01 is at 85 °C"
    assert machine.live.alerts == {}
    assert machine.show(hot, seconds=50) == []
    assert said(machine.show(hot, seconds=20)) == [("alert_firing", "GpuHot", "warning")]


def test_firing_alerts_are_series_with_the_labels_that_prometheus_gives_them() -> None:
    machine = Machine(Thresholds(hold={"GpuHot": "0"}))
    machine.show(gpu(temperature_celsius=85.0), gpu(1), training(**NAN))
    (family,) = [family for family in families(machine.live, SCOPE) if family.name == "pulsetrain_alert"]
    assert [point.value for point in family.points] == [1, 1]
    assert sorted((dict(point.labels) for point in family.points), key=len) == [
        {**SCOPE, "alertname": "NonFinite", "severity": "critical"},
        {**SCOPE, "alertname": "GpuHot", "severity": "warning", "gpu": "0", "uuid": "GPU-0"},
    ]


def test_a_rule_that_is_off_or_unknown_to_the_machine_says_nothing() -> None:
    machine = Machine(Thresholds(off=frozenset({"GpuHot"}), hold={"GpuHot": "0"}))
    assert machine.show(gpu(temperature_celsius=99.0), seconds=10) == []


def test_memory_is_the_same_after_a_week_as_after_two_days() -> None:
    machine = Machine(Thresholds(hold={"GpuHot": "0"}))

    def most_kept_on_a_day() -> int:
        most = 0
        for hour in range(24):
            hot, odd = (85.0, {}) if hour % 2 else (60.0, NAN)
            samples = [
                gpu(temperature_celsius=hot, clock_sm_hertz=1e9),
                training(**{"step": hour, "loss": 0.5 + hour / 100, **odd}),
            ]
            machine.show(*samples, seconds=3600, step=120.0)
            most = max(most, machine.engine.size)
        return most

    sizes = [most_kept_on_a_day() for _ in range(7)]
    assert max(sizes[2:]) <= sizes[1] + 10
    assert len(machine.live.alerts) < 20

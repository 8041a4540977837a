"""What the present state becomes for Prometheus: which series there are, with which labels and values."""

import math
from collections.abc import Sequence

import pytest

from pulsetrain.catalog import METRICS
from pulsetrain.live import Live
from pulsetrain.outputs.families import RunInfo, families, joined
from pulsetrain.outputs.points import Family
from pulsetrain.runs.reports import merge, subject
from pulsetrain.snapshot import Event, Label, Sample, Snapshot, Subject, Value

SCOPE = {"host": "gpu01", "run": "r1"}
GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "NVIDIA L4"})
HOST = Subject("host", "")


def at(elapsed: float, *samples: Sample, events: Sequence[Event] = ()) -> Snapshot:
    return Snapshot(1.8e9 + elapsed, elapsed, samples, tuple(events))


def state(*snapshots: Snapshot) -> Live:
    live = Live()
    for snapshot in snapshots:
        live(snapshot)
    return live


def series(found: Sequence[Family]) -> dict[str, float]:
    """Every point by its name and those labels that are not in the scope: `gpu_up{gpu="0"}`."""
    return {
        f"{family.name}{point.suffix}" + "".join(f" {k}={v}" for k, v in point.labels if k not in SCOPE): point.value
        for family in found
        for point in family.points
    }


def reports(*lines: dict[str, object], rank: int = 0) -> Sample:
    values: dict[str, Value] = {}
    for line in lines:
        merge(values, line)
    return Sample(subject(rank), values)


def test_a_value_that_is_not_there_makes_no_series() -> None:
    found = series(families(state(at(0, Sample(GPU, {"up": 1, "fan_speed_percent": None}))), SCOPE))
    assert found["gpu_up gpu=0 uuid=GPU-1"] == 1
    assert not any(name.startswith("gpu_fan") for name in found)


def test_every_series_has_the_labels_of_the_scope_sorted_by_name() -> None:
    (family,) = [f for f in families(state(at(0, Sample(GPU, {"up": 1}))), SCOPE) if f.name == "gpu_up"]
    assert family.points[0].labels == (("gpu", "0"), ("host", "gpu01"), ("run", "r1"), ("uuid", "GPU-1"))


def test_of_a_lost_gpu_only_its_being_down_is_left() -> None:
    full: dict[str, Value] = {"up": 1, "utilization_percent": 90.0, "throttle_reasons": ["sw_thermal"]}
    live = state(at(0, Sample(GPU, full)), at(1, Sample(GPU, {"up": 0, "utilization_percent": None})))
    found = series(families(live, SCOPE, ("native", "dcgm", "nvidia_smi")))
    assert {name: value for name, value in found.items() if "GPU-1" in name} == {"gpu_up gpu=0 uuid=GPU-1": 0}
    assert not any(name.startswith(("DCGM", "nvidia_smi_gpu", "nvidia_smi_util")) for name in found)


def test_throttle_reasons_are_a_series_for_each_reason_in_force() -> None:
    live = state(at(0, Sample(GPU, {"up": 1, "throttle_reasons": ["sw_thermal", "sw_power_cap"]})))
    found = series(families(live, SCOPE))
    assert found["gpu_throttle_reasons gpu=0 reason=sw_thermal uuid=GPU-1"] == 1
    assert found["gpu_throttle_reasons gpu=0 reason=sw_power_cap uuid=GPU-1"] == 1


def test_a_field_with_a_value_for_each_device_is_a_series_for_each() -> None:
    live = state(at(0, Sample(HOST, {"disk_device_read_bytes": {"sda": 5, "sdb": 7}})))
    found = series(families(live, SCOPE))
    assert found["host_disk_device_read_bytes_total device=sda"] == 5
    assert found["host_disk_device_read_bytes_total device=sdb"] == 7


def test_what_reports_add_is_added_up_over_all_readings() -> None:
    live = state(
        at(0, reports({"samples": 32, "data_wait_seconds": 0.5}, {"samples": 32, "data_wait_seconds": 0.25})),
        at(1, reports({"samples": 16, "data_wait_seconds": 0.125})),
        at(500, Sample(HOST, {"load_1m": 1.0})),  # a step may take minutes
    )
    found = series(families(live, SCOPE))
    assert found["training_samples_total rank=0"] == 80
    assert found["training_data_wait_seconds_total rank=0"] == 0.875


def test_step_durations_are_a_histogram_of_every_single_step() -> None:
    steps = [0.0005, 0.001, 0.002, 0.2, 0.2, 30.0, 400.0]
    lines: list[dict[str, object]] = [{"step": n, "step_seconds": seconds} for n, seconds in enumerate(steps)]
    live = state(at(0, reports(*lines[:3])), at(1, reports(*lines[3:])))
    found = series(families(live, SCOPE))
    for bound in (0.001, 0.0025, 0.1, 0.25, 25.0, 50.0, 100.0):
        counted = found[f"training_step_duration_seconds_bucket le={bound} rank=0"]
        assert counted == sum(seconds <= bound for seconds in steps), bound
    assert found["training_step_duration_seconds_bucket le=+Inf rank=0"] == len(steps)
    assert found["training_step_duration_seconds_count rank=0"] == len(steps)
    assert found["training_step_duration_seconds_sum rank=0"] == pytest.approx(sum(steps))


def test_a_loss_that_is_not_a_number_is_reported_as_such_and_not_as_the_one_before() -> None:
    live = state(at(0, reports({"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "nonfinite": {"loss": "nan"}})))
    assert math.isnan(series(families(live, SCOPE))["training_loss rank=0"])
    live(at(1, reports({"step": 3, "loss": 0.25})))
    assert series(families(live, SCOPE))["training_loss rank=0"] == 0.25


def test_how_often_the_loss_was_not_a_number_remains_known() -> None:
    live = state(at(0, reports({"step": 1, "loss": 0.5})))
    assert series(families(live, SCOPE))["training_nonfinite_total rank=0 value=loss"] == 0
    live(at(1, reports({"step": 2, "nonfinite": {"loss": "nan"}}, {"step": 3, "loss": 0.25})))
    live(at(2, reports({"step": 4, "nonfinite": {"loss": "inf", "mine": "nan"}})))
    live(at(3, reports({"step": 5, "loss": 0.25})))
    found = series(families(live, SCOPE))
    assert found["training_nonfinite_total rank=0 value=loss"] == 2
    assert found["training_nonfinite_total rank=0 value=other"] == 1


def test_of_a_lost_gpu_its_xid_errors_are_left() -> None:
    live = state(at(0, Sample(GPU, {"up": 1, "temperature_celsius": 60.0, "xid_errors": 0})))
    live(at(1, Sample(GPU, {"up": 0, "temperature_celsius": None, "xid_errors": 1, "xid_code_errors": {"79": 1}})))
    found = {name.split()[0] for name in series(families(live, SCOPE)) if name.startswith("gpu_")}
    assert found == {"gpu_up", "gpu_xid_errors_total", "gpu_xid_code_errors_total"}


def test_what_a_program_logs_under_names_of_its_own_is_one_family() -> None:
    live = state(at(0, reports({"step": 1, "accuracy": 0.75, "note": "warm", **{f"layer{n}": n for n in range(99)}})))
    found = {name: value for name, value in series(families(live, SCOPE)).items() if name.startswith("training_value")}
    assert found["training_value name=accuracy rank=0"] == 0.75
    assert len(found) == 64  # names can be made up without end


def test_events_are_counted_by_kind_and_severity() -> None:
    xid = Event("xid", "GPU 0: XID 79", "critical", {"uuid": "GPU-1", "xid": 79})
    live = state(at(0, events=[xid]), at(1, events=[xid, Event("gap", "missed")]))
    found = series(families(live, SCOPE))
    assert found["pulsetrain_events_total kind=xid severity=critical"] == 2
    assert found["pulsetrain_events_total kind=gap severity=info"] == 1


def test_a_process_is_reported_with_its_user_container_and_pod() -> None:
    labels: dict[str, Label] = {"pid": 7, "user": "eva", "command": "python train.py", "gpu_index": 0, "uuid": "GPU-1"}
    pod = Subject("process", "7@GPU-1", {**labels, "container": "pod:0a1b-22/3f9c0a1b2c3d"})
    docker = Subject("process", "8@GPU-1", {**labels, "pid": 8, "container": "docker:3f9c0a1b2c3d"})
    live = state(at(0, Sample(pod, {"gpu_memory_mb": 100.0}), Sample(docker, {"gpu_memory_mb": 50.0})))
    found = series(families(live, {"host": "gpu01"}))
    who = "command=python train.py container={} gpu=0 pid={}{} user=eva uuid=GPU-1"
    assert found["process_gpu_memory_mb " + who.format("3f9c0a1b2c3d", 7, " pod=0a1b-22")] == 100
    assert found["process_gpu_memory_mb " + who.format("docker:3f9c0a1b2c3d", 8, "")] == 50


def test_a_process_of_somebody_else_on_the_same_gpu_does_not_count_as_of_the_run() -> None:
    def on_gpu(pid: int, **more: str) -> Sample:
        labels: dict[str, Label] = {"pid": pid, "gpu_index": 0, "uuid": "GPU-1", **more}
        return Sample(Subject("process", f"{pid}@GPU-1", labels), {"gpu_memory_mb": float(pid)})

    job = Sample(Subject("process", "7", {"pid": 7}), {"threads": 1})
    live = state(at(0, job, on_gpu(7), on_gpu(8), on_gpu(9, run="r2")))
    (family,) = [f for f in families(live, SCOPE) if f.name == "process_gpu_memory_mb"]
    assert {point.value: dict(point.labels).get("run") for point in family.points} == {7: "r1", 8: None, 9: "r2"}


def test_the_age_of_the_data_grows_while_nothing_new_comes() -> None:
    live = state(at(0, reports({"step": 1})), at(30, Sample(HOST, {"load_1m": 1.0})))
    found = series(families(live, SCOPE, now=1.8e9 + 35))
    assert found["pulsetrain_data_age_seconds data=training"] == 35
    assert found["pulsetrain_data_age_seconds data=machine"] == 5


def test_a_run_is_reported_with_its_name_and_tags() -> None:
    run_info = RunInfo(1.75e9, {"name": "resnet", "status": "running", "tag_team": "vision"})
    found = series(families(state(at(0)), SCOPE, run_info=run_info))
    assert found["run_info name=resnet status=running tag_team=vision"] == 1
    assert found["run_start_time_seconds"] == 1.75e9


def test_families_of_several_states_are_joined_by_name() -> None:
    one, other = (
        families(state(at(0, reports({"loss": loss}))), {"run": run}) for loss, run in ((1.0, "a"), (2.0, "b"))
    )
    (loss,) = [family for family in joined([one, other]) if family.name == "training_loss"]
    assert [point.value for point in loss.points] == [1.0, 2.0]


def test_no_two_metrics_of_the_catalog_share_a_name() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))

"""The energy account of recorded runs: every device, every part of the time, nothing twice and nothing left out."""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.insight.energy.charging import Charge
from pulsetrain.insight.energy.curve import EPOCH, EnergyCurve
from pulsetrain.insight.energy.figures import DeviceEnergy, Portion, RunEnergy
from pulsetrain.insight.energy.meter import Meter, Readings, curve_of
from pulsetrain.insight.energy.portions import StepIntervals, by_epoch, by_phase
from pulsetrain.insight.energy.reading import RunMeters
from pulsetrain.insight.steps import PhaseInterval, read_steps
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, RunFolder

MakeRun = Callable[..., RunFolder]
Line = dict[str, Any]

START = datetime(2026, 11, 16, 12, tzinfo=UTC)


def account(
    folder: RunFolder, *, charge: Charge | None = None, pue: float = 1.0, others: Iterable[RunFolder] = ()
) -> RunEnergy:
    with closing(Database([folder])) as database:
        return RunMeters(database, folder.load(), read_steps(database), charge=charge).energy(pue=pue, others=others)


def gpu_lines(seconds: int, watts: float = 100.0, *, gpu: int = 0, counter: bool = True, **values: Any) -> list[Line]:
    """A line each second of a GPU with a steady power."""
    labels = {"gpu_index": gpu, "uuid": f"GPU-{gpu}", "name": "Test"}
    lines = []
    for second in range(seconds + 1):
        line = labels | {
            "elapsed_seconds": float(second),
            "up": 1,
            "power_draw_watts": watts,
            "utilization_percent": 50,
        }
        if counter:
            line["energy_joules"] = 1000 + watts * second
        lines.append(line | {"power_limit_watts": 400.0} | values)
    return lines


def host_lines(seconds: int, **values: Any) -> list[Line]:
    return [{"elapsed_seconds": float(second), **values} for second in range(seconds + 1)]


def step_lines(first_begin: float, count: int, step_seconds: float = 1.0, rank: int = 0, **values: Any) -> list[Line]:
    return [
        {
            "elapsed_seconds": first_begin + (number + 1) * step_seconds,
            "rank": rank,
            "step": number + 1,
            "step_seconds": step_seconds,
            **values,
        }
        for number in range(count)
    ]


def only(devices: list[DeviceEnergy], kind: str) -> DeviceEnergy:
    (found,) = [device for device in devices if device.device == kind]
    return found


def joules(parts: list[Portion]) -> dict[str, float]:
    return {part.name: round(part.joules, 6) for part in parts}


# Devices


def test_a_gpu_is_measured_by_its_counter_with_power_beside_it(make_run: MakeRun) -> None:
    energy = account(make_run(gpu=gpu_lines(10, 200, power_draw_watts=210.0)))
    gpu = only(energy.devices, "gpu")
    assert gpu.total is not None and gpu.total.joules == 2000
    assert (gpu.total.origin, gpu.total.method) == ("measured", "counter")
    assert gpu.total.error_joules == pytest.approx(2 * 0.1 * 400)  # the counter may be 100 ms behind at either end
    assert gpu.power_joules == 2100 and gpu.disagreement_ratio == pytest.approx(0.05)
    assert gpu.notes == []


def test_a_counter_that_is_known_to_the_moment_is_taken_back_to_its_line(make_run: MakeRun) -> None:
    """Both were looked at 20 ms after their tick, on a monotonic clock that showed 500 s when elapsed time began."""
    lines = gpu_lines(10, 200)
    for line in (lines[0], lines[-1]):
        line["energy_joules"] -= 15
        line["energy_interpolated_joules"] = 1000 + 200 * (line["elapsed_seconds"] + 0.02)
        line["energy_interpolation_error_joules"] = 1.0
        line["energy_interpolated_monotonic_seconds"] = 500 + line["elapsed_seconds"] + 0.02
    lines[0]["energy_interpolated_monotonic_seconds"] -= 0.01
    lines[0]["energy_interpolated_joules"] -= 2
    gpu = only(account(make_run(gpu=lines, hosts={"vm": Host(started=500.0)})).devices, "gpu")
    assert gpu.total is not None and gpu.total.joules == pytest.approx(2000)
    assert gpu.total.error_joules == pytest.approx(2 * 1.0 + (0.02 + 0.01) * 400)


@pytest.mark.parametrize("percent", [0, 1])
def test_idle_and_active_energy_make_up_the_total(make_run: MakeRun, percent: float) -> None:
    lines = gpu_lines(10)
    for line in lines[:5]:
        line["utilization_percent"] = percent
    gpu = only(account(make_run(gpu=lines)).devices, "gpu")
    assert (gpu.idle_joules, gpu.active_joules) == (400, 600)


def test_a_gpu_without_a_counter_is_estimated_from_polled_power(make_run: MakeRun) -> None:
    lines = gpu_lines(10, counter=False)
    for second, line in enumerate(lines):
        line |= {"polled_energy_joules": 90.0 * second, "polled_energy_variance_joules2": 1.0 * second}
        line |= {"polled_energy_unseen_joules": 2.0 * second, "polled_energy_gap_seconds": 0}
        line |= {"polled_energy_edge_joules": 30.0}
    gpu = only(account(make_run(gpu=lines)).devices, "gpu")
    assert gpu.total is not None and gpu.total.joules == 900
    assert (gpu.total.origin, gpu.total.method) == ("estimated", "polled power")
    assert gpu.total.error_joules == pytest.approx(4 * 10**0.5 + 20 + 30)
    assert gpu.power_joules is None
    assert gpu.notes == ["Power sensors may be off by another 5 % or so, differently on each card."]


def test_a_folder_of_an_older_version_with_power_alone_is_estimated(make_run: MakeRun) -> None:
    lines = gpu_lines(10, counter=False)
    for line in lines:
        del line["power_limit_watts"]
    gpu = only(account(make_run(gpu=lines)).devices, "gpu")
    assert gpu.total is not None
    assert (gpu.total.joules, gpu.total.error_joules, gpu.total.origin) == (1000, None, "estimated")


def test_what_happened_to_a_counter_is_reported(make_run: MakeRun) -> None:
    lines = gpu_lines(20)
    for line in lines[15:]:
        line["energy_joules"] -= 2400
    for line in lines[5:10]:
        line["energy_joules"] = 1500
    for line in lines[10:]:
        line["energy_joules"] -= 400
    gpu = only(account(make_run(gpu=lines)).devices, "gpu")
    assert gpu.total is not None and gpu.total.joules == pytest.approx(2000)
    assert gpu.total.method == "counter + power"
    assert gpu.notes[0] == "The counter was reset once; power fills in for that moment."
    assert gpu.notes[1] == "The counter stood still for 4 s while power was drawn; power fills in."


def test_a_gpu_that_reports_nothing_has_no_figure(make_run: MakeRun) -> None:
    line = {"gpu_index": 0, "uuid": "GPU-0", "name": "Test", "up": 1}
    energy = account(make_run(gpu=[line, line]))
    assert only(energy.devices, "gpu").total is None
    assert energy.total is None


def test_a_lost_gpu_is_not_zero_but_a_note_and_a_wider_bound(make_run: MakeRun) -> None:
    lines = gpu_lines(10)
    for line in lines[6:]:
        line |= {"up": 0, "power_draw_watts": None, "energy_joules": None}
    gpu = only(account(make_run(gpu=lines)).devices, "gpu")
    assert gpu.total is not None and gpu.total.joules == 500
    assert gpu.total.error_joules is not None and gpu.total.error_joules > 5 * 400
    assert gpu.notes == ["For 5 s nothing could be read: energy used then is not counted."]


def test_a_gpu_lost_at_the_start_is_one_device_and_the_unseen_time_is_in_its_bound(make_run: MakeRun) -> None:
    """Its first lines have no UUID: it did not answer when it was asked for one."""
    lines = gpu_lines(10)
    for line in lines[:6]:
        line |= {"up": 0, "power_draw_watts": None, "energy_joules": None}
        line |= {"uuid": None, "name": "unknown", "power_limit_watts": None}
    gpu = only(account(make_run(gpu=lines)).devices, "gpu")
    assert (gpu.uuid, gpu.name) == ("GPU-0", "Test")
    assert gpu.total is not None and gpu.total.joules == 400
    assert gpu.total.error_joules is not None and gpu.total.error_joules > 6 * 400
    assert gpu.notes == ["For 6 s nothing could be read: energy used then is not counted."]


def test_the_time_before_a_driver_answered_is_in_the_bound(make_run: MakeRun) -> None:
    gpu = only(account(make_run(gpu=gpu_lines(10)[4:])).devices, "gpu")
    assert gpu.total is not None and gpu.total.joules == pytest.approx(600)
    assert gpu.total.error_joules is not None and gpu.total.error_joules > 4 * 400
    assert gpu.notes == ["For 4 s nothing could be read: energy used then is not counted."]


def test_cpu_and_memory_are_measured_where_rapl_can_be_read(make_run: MakeRun) -> None:
    lines = host_lines(10, cpu_ratio=0.5, cpu_cores=8, memory_total_bytes=2**34)
    for second, line in enumerate(lines):
        line |= {"cpu_energy_joules": 60.0 * second, "dram_energy_joules": 5.0 * second}
    event = {"kind": "counter_gap", "severity": "warning", "message": "not counted"}
    energy = account(make_run(host=lines, events=[event]))
    cpu, dram = only(energy.devices, "cpu"), only(energy.devices, "dram")
    assert cpu.total is not None and (cpu.total.joules, cpu.total.origin, cpu.total.method) == (600, "measured", "rapl")
    assert dram.total is not None and (dram.total.joules, dram.total.origin) == (50, "measured")
    assert cpu.notes == ["not counted"]


def test_cpu_and_memory_are_estimated_and_assumed_elsewhere_and_say_so(make_run: MakeRun) -> None:
    lines = host_lines(10, cpu_ratio=0.5, cpu_cores=8, memory_total_bytes=10 * 2**30)
    hosts = {"vm": Host(unavailable={"rapl": "no permission to read RAPL counters"})}
    energy = account(make_run(host=lines, hosts=hosts))
    cpu, dram = only(energy.devices, "cpu"), only(energy.devices, "dram")
    assert cpu.total is not None and (cpu.total.joules, cpu.total.origin, cpu.total.method) == (
        200,
        "estimated",
        "load",
    )
    assert cpu.total.error_joules == 200
    assert cpu.notes == ["no permission to read RAPL counters: estimated from load."]
    assert dram.total is not None and dram.total.joules == pytest.approx(30)
    assert dram.total.origin == "assumed"
    assert energy.total is not None and energy.total.origin == "assumed"
    assert energy.total.method == "load + size"


def test_pue_multiplies_the_total_and_no_device_nor_part(make_run: MakeRun) -> None:
    folder = make_run(gpu=gpu_lines(10), training=step_lines(2, 6))
    energy = account(folder, pue=1.5)
    assert energy.total is not None and energy.total.joules == 1500
    assert only(energy.devices, "gpu").total == only(account(folder).devices, "gpu").total
    assert sum(part.joules for part in energy.phases) == pytest.approx(1000)
    assert energy.joules_per_step == pytest.approx(150)


# Parts


def test_phases_take_each_moment_once_and_the_inner_one_counts(make_run: MakeRun) -> None:
    training = step_lines(2, 3)
    training.append({"elapsed_seconds": 8.0, "rank": 0, "phase": "validation", "phase_seconds": 3.0})
    training.append({"elapsed_seconds": 7.0, "rank": 0, "phase": "checkpoint", "phase_seconds": 1.0})
    energy = account(make_run(gpu=gpu_lines(10), training=training))
    assert joules(energy.phases) == {
        "start-up": 200,
        "training": 300,
        "validation": 200,
        "checkpoint": 100,
        "other": 200,
    }
    assert [part.steps for part in energy.phases] == [0, 3, 0, 0, 0]


def test_epochs_take_each_moment_once(make_run: MakeRun) -> None:
    training = step_lines(2, 6)
    for line, epoch in zip(training, (0.5, 1.0, 1.5, 2.0, 2.5, 3.0), strict=True):
        line["epoch"] = epoch
    energy = account(make_run(gpu=gpu_lines(10), training=training))
    assert joules(energy.epochs) == {"start-up": 200, "epoch 1": 200, "epoch 2": 200, "epoch 3": 200, "other": 200}
    assert [part.steps for part in energy.epochs] == [0, 2, 2, 2, 0]


def test_energy_of_a_step_a_sample_and_a_token_counts_what_all_ranks_worked_on(make_run: MakeRun) -> None:
    training = [line for rank in (0, 1) for line in step_lines(2, 5, rank=rank, samples=8, tokens=80)]
    energy = account(make_run(gpu=gpu_lines(10) + gpu_lines(10, gpu=1), training=training))
    assert energy.joules_per_step == pytest.approx(200)
    assert energy.joules_per_sample == pytest.approx(200 / 16)
    assert energy.joules_per_token == pytest.approx(200 / 160)
    assert [part.samples for part in energy.phases] == [None, 80, None]


def test_energy_per_step_is_that_of_steady_steps(make_run: MakeRun) -> None:
    """300 W while it compiles, 200 W in a validation, 100 W else."""
    training = step_lines(13, 6, samples=4)
    training[3] |= {"step_seconds": 4.0}
    for line in training[3:]:
        line["elapsed_seconds"] += 3
    training.insert(0, training[0] | {"elapsed_seconds": 13.0, "step_seconds": 10.0})
    training.append({"elapsed_seconds": 19.5, "rank": 0, "phase": "validation", "phase_seconds": 3.0})
    watts = [300 if 3 <= second < 13 else 200 if 16 <= second < 20 else 100 for second in range(25)]
    lines = gpu_lines(25)
    for line, used in zip(lines, np.concatenate(([0], np.cumsum(watts))), strict=True):
        line["energy_joules"] = float(used)
    energy = account(make_run(gpu=lines, training=training))
    assert energy.joules_per_step == pytest.approx(100)
    assert energy.joules_per_sample == pytest.approx(25)
    assert joules(energy.phases) == {
        "start-up": 300,
        "warm-up": 3000,
        "training": pytest.approx(5 * 100 + 200),
        "validation": pytest.approx(600),
        "other": 300,
    }
    assert [(part.name, part.steps) for part in energy.phases if part.steps] == [("warm-up", 1), ("training", 6)]


def test_a_step_that_a_validation_fills_is_a_step_of_training(make_run: MakeRun) -> None:
    training = step_lines(2, 5)
    training[2] |= {"step_seconds": 3.0}
    for line in training[2:]:
        line["elapsed_seconds"] += 2
    training.append({"elapsed_seconds": 6.9, "rank": 0, "phase": "validation", "phase_seconds": 2.8})
    energy = account(make_run(gpu=gpu_lines(10), training=training))
    assert {part.name: part.steps for part in energy.phases} == {
        "start-up": 0,
        "training": 5,
        "validation": 0,
        "other": 0,
    }


def test_the_shares_of_a_total_say_how_much_was_measured(make_run: MakeRun) -> None:
    host = host_lines(10, cpu_ratio=0.5, cpu_cores=8, memory_total_bytes=10 * 2**30)
    energy = account(make_run(gpu=gpu_lines(10), host=host))
    assert energy.origin_shares == {
        "measured": pytest.approx(1000 / 1230),
        "estimated": pytest.approx(200 / 1230),
        "assumed": pytest.approx(30 / 1230),
    }


def test_a_run_without_a_training_loop_has_no_parts(make_run: MakeRun) -> None:
    energy = account(make_run(gpu=gpu_lines(10)))
    assert (energy.phases, energy.epochs, energy.joules_per_step) == ([], [], None)


STEPS = st.lists(st.tuples(st.floats(0, 0.5), st.floats(0.001, 2)), max_size=30)
PHASES = st.lists(st.tuples(st.floats(-5, 40), st.floats(0.001, 20), st.sampled_from("abc")), max_size=6)


def steps_of(pauses_and_lengths: list[tuple[float, float]]) -> StepIntervals:
    times = np.cumsum(np.array(pauses_and_lengths).reshape(-1, 2).ravel()) + 1
    begin, end = times[0::2], times[1::2]
    count = np.ones(len(end))
    return StepIntervals(begin, end, np.cumsum(count) / 4, end, count, count)


def steady(watts: float, seconds: float) -> EnergyCurve:
    meter = Meter(limit_watts=watts)
    times = np.arange(0.0, seconds, 0.9)
    return curve_of([meter.add(Readings(times, power=np.full(len(times), watts))), meter.finish()], EPOCH, watts)


@given(STEPS, PHASES, st.floats(3, 40))
def test_the_parts_of_a_run_add_up_to_the_whole(
    steps: list[tuple[float, float]], phases: list[tuple[float, float, str]], seconds: float
) -> None:
    curves = [steady(100, seconds), steady(250, seconds / 2)]
    whole = sum(curve.joules[-1] for curve in curves)
    end = float(max(curve.times[-1] for curve in curves))
    own = steps_of(steps)
    named = [PhaseInterval(name, begin, begin + length) for begin, length, name in phases]
    timelines = [by_phase(0.0, end, own, named), by_epoch(0.0, end, own)]
    for timeline in filter(None, timelines):
        parts = timeline.portions(curves, own)
        assert sum(part.joules for part in parts) == pytest.approx(whole, abs=1e-6)
        assert sum(part.seconds for part in parts) == pytest.approx(end, abs=1e-6)
        assert all(part.joules >= 0 and part.error_joules is not None for part in parts)
        assert len({part.name for part in parts}) == len(parts)


@given(STEPS, PHASES, st.lists(st.floats(0, 400), min_size=31, max_size=31))
def test_the_truth_of_each_part_lies_within_its_bound(
    steps: list[tuple[float, float]], phases: list[tuple[float, float, str]], watts: list[float]
) -> None:
    """Power changes every 0.7 s and is known exactly at the ticks, each second."""
    changes = np.arange(32) * 0.7
    truth = np.concatenate(([0.0], np.cumsum(np.array(watts) * 0.7)))
    ticks = np.arange(21.0)
    meter = Meter(update_seconds=0.0, limit_watts=400)
    lines = Readings(ticks, counter=np.interp(ticks, changes, truth))
    curve = curve_of([meter.add(lines), meter.finish()], EPOCH, 400)
    own = steps_of(steps)
    timeline = by_phase(0.0, 20.0, own, [PhaseInterval(name, begin, begin + length) for begin, length, name in phases])
    used = np.diff(np.interp(timeline.edges, changes, truth))
    for part in timeline.portions([curve], own):
        in_part = timeline.labels == timeline.names.index(part.name)
        assert part.error_joules is not None
        assert abs(part.joules - np.sum(used[in_part])) <= part.error_joules + 1e-6


# Hosts and clocks


def test_hosts_are_put_on_one_timeline_by_their_clocks(make_run: MakeRun) -> None:
    """The second host joined two seconds later, and its elapsed time began then."""
    folder = make_run(gpu=gpu_lines(10), training=step_lines(4, 4))
    make_run(host_name="other", hosts={"vm": Host(), "other": Host()}, start=START)
    lines = gpu_lines(8, gpu=1)
    path = folder.host_folder("other") / "gpu_metrics_20261116_120002.jsonl"
    path.write_text("".join(f"{_json(line, later_seconds=2)}\n" for line in lines))
    energy = account(folder)
    assert joules(energy.phases) == {"start-up": 400 + 200, "training": 800, "other": 200 + 200}


def _json(line: Line, later_seconds: float) -> str:
    time = START + timedelta(seconds=line["elapsed_seconds"] + later_seconds)
    return json.dumps({"timestamp": time.isoformat(timespec="milliseconds")[:-6] + "Z"} | line)


def test_a_wall_clock_that_jumps_changes_no_figure(make_run: MakeRun) -> None:
    lines = gpu_lines(10)
    for line in lines[5:]:
        line["timestamp"] = "2026-11-16T15:00:00.000Z"
    account_of = RunMeters(Database([folder := make_run(gpu=lines)]), folder.load(), None)
    assert account_of.curve.joules[-1] == 1000
    half = account_of.curve.used_between(START, START + timedelta(hours=1))
    rest = account_of.curve.used_between(START + timedelta(hours=1), START + timedelta(hours=9))
    assert half + rest == pytest.approx(1000)
    assert half == pytest.approx(500)


# Whose energy


def process_line(pid: int, **values: Any) -> Line:
    return {"elapsed_seconds": 5.0, "pid": pid, "command": "python train.py", **values}


def test_a_run_can_be_charged_only_for_the_gpus_that_its_processes_used(make_run: MakeRun) -> None:
    processes = [
        process_line(10, cpu_seconds=3.0),
        process_line(10, uuid="GPU-1", gpu_index=1),
        process_line(99, uuid="GPU-0", gpu_index=0),  # somebody else's
    ]
    folder = make_run(gpu=gpu_lines(10) + gpu_lines(10, 300, gpu=1), process=processes, training=step_lines(2, 6))
    everything, used = account(folder, charge="all"), account(folder, charge="used")
    assert everything.total is not None and everything.total.joules == 4000
    assert used.total is not None and used.total.joules == 3000
    assert [gpu.charged for gpu in used.devices] == [False, True]
    assert sum(part.joules for part in used.phases) == pytest.approx(3000)


def test_all_gpus_are_charged_where_it_is_unknown_who_used_them(make_run: MakeRun) -> None:
    folder = make_run(gpu=gpu_lines(10), process=[process_line(10, cpu_seconds=3.0)])
    gpu = only(account(folder, charge="used").devices, "gpu")
    assert gpu.charged
    assert gpu.notes == ["Whether the run used it is unknown, so it is charged."]


OWN, ON_GPU_0 = {"cpu_seconds": 3.0}, {"uuid": "GPU-0", "gpu_index": 0}


@pytest.mark.parametrize("charge", ["used", None])
def test_a_run_that_was_on_no_gpu_is_not_charged_for_what_others_did_there(
    make_run: MakeRun, charge: Charge | None
) -> None:
    processes = [process_line(10, **OWN), process_line(99, user="alice", **ON_GPU_0)]
    gpu = only(account(make_run(gpu=gpu_lines(10), process=processes), charge=charge).devices, "gpu")
    assert (gpu.charged, gpu.used, gpu.others) == (False, False, ["alice (python train.py)"])


def test_a_run_that_was_on_no_gpu_is_not_charged_where_the_driver_lists_nobody(make_run: MakeRun) -> None:
    up = {"nvidia": 1, "nvidia_processes": 1}
    folder = make_run(gpu=gpu_lines(10), host=[{"job_processes": 1, "source_up": up}, {"source_up": up}])
    gpu = only(account(folder, charge="used").devices, "gpu")
    assert (gpu.charged, gpu.used, gpu.others) == (False, False, [])


def test_a_run_without_others_on_its_gpus_is_charged_for_all_of_them(make_run: MakeRun) -> None:
    processes = [process_line(10, **OWN), process_line(10, **ON_GPU_0)]
    folder = make_run(gpu=gpu_lines(10) + gpu_lines(10, 300, gpu=1), process=processes)
    assert [(gpu.charged, gpu.used) for gpu in account(folder).devices] == [(True, True), (True, False)]


def test_a_gpu_that_a_run_shares_is_charged_and_says_with_whom(make_run: MakeRun) -> None:
    child = process_line(11, parent_pid=10, **ON_GPU_0)  # too short-lived to be seen as one of the command's
    processes = [process_line(10, **OWN), child, process_line(99, user="alice", **ON_GPU_0)]
    gpu = only(account(make_run(gpu=gpu_lines(10), process=processes)).devices, "gpu")
    assert (gpu.charged, gpu.used, gpu.others) == (True, True, ["alice (python train.py)"])


@pytest.mark.parametrize("charge", ["used", None])
def test_a_process_outside_of_our_container_may_be_the_runs_own(make_run: MakeRun, charge: Charge | None) -> None:
    processes = [process_line(10, **OWN), process_line(4711, **ON_GPU_0) | {"command": "outside this namespace"}]
    gpu = only(account(make_run(gpu=gpu_lines(10), process=processes), charge=charge).devices, "gpu")
    assert (gpu.charged, gpu.used, gpu.others) == (True, None, [])


def test_a_machine_that_is_watched_without_a_command_is_charged_for_all_its_gpus(make_run: MakeRun) -> None:
    folder = make_run(gpu=gpu_lines(10), process=[process_line(99, user="alice", **ON_GPU_0)])
    assert [gpu.charged for gpu in account(folder).devices] == [True]


def beside(make_run: MakeRun, uuid: str, start: datetime, end: datetime | None, written: datetime = START) -> list[str]:
    """What a run of an hour on GPU-0 says about another one, which wrote its last line then."""
    hosts = {"vm": Host(gpus=[{"gpu_index": 3, "uuid": uuid}])}
    other = make_run(id="20261116-120500-other-1111", start=start, end=end, hosts=hosts)
    for file in other.path.rglob("*"):
        os.utime(file, (written.timestamp(), written.timestamp()))
    mine = make_run(gpu=gpu_lines(10), start=START, end=START + timedelta(hours=1))
    return account(mine, others=[other]).also_counted_in


def test_another_run_that_watched_the_same_gpu_at_the_same_time_is_reported(make_run: MakeRun) -> None:
    assert beside(make_run, "GPU-0", START + timedelta(minutes=59), START + timedelta(hours=3)) == [
        "Run 20261116-120500-other-1111 also watched GPU 0, for 60 s of this run: do not add their energy up."
    ]


def test_a_run_at_another_time_or_on_another_gpu_is_not_reported(make_run: MakeRun) -> None:
    assert beside(make_run, "GPU-0", START + timedelta(hours=1), START + timedelta(hours=3)) == []
    assert beside(make_run, "GPU-7", START, START + timedelta(hours=3)) == []


def test_a_run_that_died_counts_as_long_as_it_wrote(make_run: MakeRun) -> None:
    earlier = START - timedelta(hours=1)
    assert beside(make_run, "GPU-0", earlier, None, written=START - timedelta(seconds=1)) == []
    assert len(beside(make_run, "GPU-0", earlier, None, written=START + timedelta(seconds=1))) == 1


@pytest.mark.parametrize(("late", "counted"), [(0.3, 0.3), (5.0, 0.0)])
def test_the_moment_before_the_first_reading_counts_at_its_power_but_not_the_time_a_gpu_was_not_there(
    make_run: MakeRun, late: float, counted: float
) -> None:
    lines = [line | {"elapsed_seconds": line["elapsed_seconds"] + late} for line in gpu_lines(10)]
    total = only(account(make_run(gpu=lines)).devices, "gpu").total
    assert total is not None and total.error_joules is not None
    assert total.joules == pytest.approx(100 * (10 + counted))
    assert total.error_joules >= 300 * counted  # it may have been anything up to the limit

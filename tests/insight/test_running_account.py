"""The account of a run that goes on: the same sums as a report, told on the way."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pulsetrain import intensity
from pulsetrain.catalog import HOST
from pulsetrain.insight.energy.charging import Charge
from pulsetrain.insight.prices import load_prices, parse_price
from pulsetrain.insight.report import make_report
from pulsetrain.insight.running_account import PERIOD_SECONDS, RunningAccount
from pulsetrain.runs.folder import CountingOptions, Host, RunFolder
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1"})
TRAINING = Subject("training", "rank 0", {"rank": 0})
START = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def account(
    running: RunningAccount, seconds: int, watts: float = 100.0, busy_percent: float = 0.0, **training: Value
) -> list[dict[str, Any]]:
    """What is added to the snapshots of a GPU whose counter rises steadily, while a training reports each second."""
    entries = []
    for second in range(seconds + 1):
        gpu: dict[str, Value] = {"up": 1, "energy_joules": 5000 + watts * second, "utilization_percent": busy_percent}
        samples = [Sample(GPU, gpu)]
        if training:
            samples.append(Sample(TRAINING, {"step": 10.0 * second, **training}))
        snapshot = Snapshot(START + second, float(second), tuple(samples), last=second == seconds)
        entries += [s.values for s in running(snapshot).samples if s.subject.table == "account"]
    return entries


def running_account(
    price: str | None = None, region: str | None = None, pue: float = 1.0, charge: Charge | None = None
) -> RunningAccount:
    record = intensity.RunIntensity(provider=intensity.find(region).about) if region else None
    return RunningAccount(
        price=parse_price(price, load_prices()) if price else None,
        pue=pue,
        charge=charge,
        record=lambda: record,
    )


def test_whole_entries_come_now_and_then_and_with_the_last_snapshot() -> None:
    entries = account(running_account(), int(PERIOD_SECONDS) + 3)
    assert [entry.get("gpu_seconds") for entry in entries] == [PERIOD_SECONDS, None, None, PERIOD_SECONDS + 3]


def test_energy_moves_with_each_reading_also_between_whole_entries() -> None:
    joules = [entry["energy_joules"]["gpu"] for entry in account(running_account(pue=1.5), 40, watts=80)]
    assert joules == pytest.approx([1.5 * 80 * second for second in range(15, 41)])


def test_energy_between_whole_entries_is_by_power_where_there_is_no_counter_and_never_falls() -> None:
    kept = running_account()
    joules: list[float] = []
    for second in range(60):
        line = Sample(GPU, {"up": 1, "power_draw_watts": 50.0 + 40 * (second % 2)})
        samples = kept(Snapshot(START + second, float(second), (line,))).samples[1:]
        joules += [energy["gpu"] for one in samples if isinstance(energy := one.values["energy_joules"], dict)]
    assert joules == sorted(joules)
    assert joules[-1] - joules[0] == pytest.approx(44 * 70, rel=0.05)


def test_energy_carbon_and_cost_add_up_over_the_entries() -> None:
    last = account(running_account("0.36 EUR/kWh", "500", pue=1.5), 100)[-1]
    joules = 1.5 * 100 * 100
    assert last["energy_joules"] == {"gpu": pytest.approx(joules)}
    assert last["carbon_grams"] == pytest.approx(500 * joules / 3.6e6)
    assert last["cost"] == {"EUR": pytest.approx(0.36 * joules / 3.6e6)}
    assert last["gpu_idle_seconds"] == pytest.approx(100)


def test_a_gpu_that_did_not_answer_at_the_start_is_counted_once() -> None:
    nameless = Subject("gpu", "index 0", {"gpu_index": 0, "uuid": None})
    kept = running_account("3600 USD/GPUh")
    for second in range(4):
        kept(Snapshot(START + second, float(second), (Sample(nameless, {"up": 0}),)))
    back = Sample(GPU, {"up": 1, "energy_joules": 5000})
    entry = kept(Snapshot(START + 10, 10.0, (back,), last=True)).samples[-1]
    assert entry.values["gpu_seconds"] == 10
    assert entry.values["cost"] == pytest.approx({"USD": 10})


OWN = Sample(Subject("process", "10", {"pid": 10}), {"cpu_seconds": 1.0})
OWN_ON_GPU = Sample(Subject("process", "10 GPU-1", {"pid": 10, "uuid": "GPU-1", "gpu_index": 0}), {})
OTHER_ON_GPU = Sample(Subject("process", "99 GPU-1", {"pid": 99, "uuid": "GPU-1", "gpu_index": 0, "user": "al"}), {})


@pytest.mark.parametrize(
    ("charge", "processes", "gpu_seconds"),
    [
        (None, [OWN, OWN_ON_GPU], 20),
        (None, [OWN, OTHER_ON_GPU], None),
        (None, [OWN, OTHER_ON_GPU, OWN_ON_GPU], 20),
        (None, [OTHER_ON_GPU], 20),  # a machine that is watched, without a command
        ("used", [OWN, OTHER_ON_GPU], None),
        ("used", [OWN], 20),  # the driver does not list processes
        ("all", [OWN, OTHER_ON_GPU], 20),
    ],
)
def test_gpus_are_charged_as_in_a_report(
    charge: Charge | None, processes: list[Sample], gpu_seconds: float | None
) -> None:
    kept = running_account("1 EUR/kWh", charge=charge)
    kept(Snapshot(START, 0.0, tuple(processes)))
    last = account(kept, 20)[-1]
    assert last.get("gpu_seconds") == gpu_seconds
    assert last.get("energy_joules") == (None if gpu_seconds is None else {"gpu": pytest.approx(2000)})
    assert ("cost" in last) == (gpu_seconds is not None)


def test_a_gpu_that_the_run_comes_to_use_is_charged_from_the_start() -> None:
    kept = running_account()
    kept(Snapshot(START, 0.0, (OWN, OTHER_ON_GPU)))
    assert "energy_joules" not in account(kept, 20)[-1]
    kept(Snapshot(START + 21, 21.0, (OWN_ON_GPU,)))
    last = kept(Snapshot(START + 30, 30.0, (Sample(GPU, {"up": 1, "energy_joules": 8000}),), last=True)).samples[-1]
    assert last.values["energy_joules"] == pytest.approx({"gpu": 3000})


def readings(draw: random.Random, seconds: int) -> Iterator[tuple[float, dict[str, Value], dict[str, Value]]]:
    """Lines of a GPU and of a machine as they happen to be: late, with gaps, with counters that rest or start anew."""
    energy, rapl = 5000.0, 100.0
    for second in range(seconds):
        elapsed = round(second + draw.uniform(0.05, 0.2), 3)
        watts = draw.choice([60.0, 300.0, 700.0])
        energy = 0.0 if draw.random() < 0.02 else energy + watts
        rapl += 30.0
        gpu: dict[str, Value] = {"up": 1, "power_draw_watts": watts, "utilization_percent": draw.choice([0.0, 90.0])}
        if draw.random() < 0.9:
            gpu["energy_joules"] = round(energy, 3)
        if draw.random() < 0.3:
            gpu["energy_interpolated_joules"] = round(energy + 10, 3)
            gpu["energy_interpolation_error_joules"] = 0.5
            gpu["energy_interpolated_monotonic_seconds"] = STARTED + elapsed + 0.02
        host: dict[str, Value] = {"memory_total_bytes": 2**35, "dram_energy_joules": round(rapl, 3)}
        if draw.random() < 0.7:
            host |= {"cpu_cores": 8, "cpu_ratio": draw.random()}
        yield elapsed, gpu, host


STARTED = 1000.0


@pytest.mark.parametrize("seed", range(5))
def test_the_last_entry_is_what_the_report_says(make_run: Callable[..., RunFolder], seed: int) -> None:
    kept = RunningAccount(pue=1.5, started=STARTED, interval_seconds=1.0, record=lambda: None)
    lines = list(readings(random.Random(seed), 40))
    for place, (elapsed, gpu, host) in enumerate(lines):
        last = place == len(lines) - 1
        samples = (Sample(GPU, dict(gpu)), Sample(HOST, dict(host)))
        entry = kept(Snapshot(START + elapsed, elapsed, samples, last=last)).samples[-1].values
    folder = make_run(
        gpu=[{"elapsed_seconds": elapsed, **GPU.labels, **gpu} for elapsed, gpu, _ in lines],
        host=[{"elapsed_seconds": elapsed, **host} for elapsed, _, host in lines],
        hosts={"vm": Host(started=STARTED)},
        interval_seconds=1.0,
        account=CountingOptions(pue=1.5),
    )
    energy = make_report(folder).energy
    expected = {kind: 1.5 * part.joules for kind in energy.kinds if (part := energy.of_kind(kind))}
    assert expected.keys() == {"gpu", "cpu", "dram"}
    assert entry["energy_joules"] == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(("busy_percent", "idle_seconds"), [(0.0, 20), (1.0, 20), (1.5, 0), (100.0, 0)])
def test_a_gpu_is_idle_up_to_the_threshold_of_the_rules(busy_percent: float, idle_seconds: float) -> None:
    last = account(running_account(), 20, busy_percent=busy_percent)[-1]
    assert last["gpu_idle_seconds"] == pytest.approx(idle_seconds)


def test_progress_time_left_and_cost_to_come_follow_from_the_planned_steps() -> None:
    last = account(running_account("3.60 USD/h"), 50, total_steps=1000.0)[-1]
    assert last["progress_ratio"] == 0.5
    assert last["remaining_seconds"] == pytest.approx(50)
    assert (last["cost"]["USD"], last["cost_projected"]["USD"]) == (pytest.approx(0.05), pytest.approx(0.1))


def entry_of(steps_at: dict[float, float], total_steps: float) -> dict[str, Any]:
    """The last account of a training that has done so many steps at these moments."""
    reports = list(steps_at.items())
    entries: list[dict[str, Any]] = []
    keep = running_account()
    for number, (elapsed, step) in enumerate(reports, 1):
        report = Sample(TRAINING, {"step": step, "total_steps": total_steps})
        snapshot = Snapshot(START + elapsed, elapsed, (report,), last=number == len(reports))
        entries += [s.values for s in keep(snapshot).samples if s.subject.table == "account"]
    return entries[-1]


def test_the_time_left_does_not_count_on_another_warm_up() -> None:
    slow = {10.0 * step: float(step) for step in range(1, 11)}
    steady = {100.0 + step - 10: float(step) for step in range(11, 111)}
    assert entry_of(slow | steady, 210.0)["remaining_seconds"] == pytest.approx(100.0, rel=0.02)


def test_the_time_left_follows_from_all_of_a_long_run() -> None:
    """More moments than are remembered, the second half of them at half the pace."""
    fast = {float(second): 2.0 * second for second in range(1000)}
    slow = {float(second): 1000.0 + second for second in range(1000, 2000)}
    assert entry_of(fast | slow, 6000.0)["remaining_seconds"] == pytest.approx(2000.0, rel=0.03)


def test_a_training_that_restarts_has_a_pace_of_its_own() -> None:
    first = {float(second): 10.0 * second for second in range(1, 41)}
    second = {40.0 + 2 * step: float(step) for step in range(1, 41)}
    assert entry_of(first | second, 50.0)["remaining_seconds"] == pytest.approx(20.0)


def test_energy_and_emissions_to_come_follow_from_the_planned_steps() -> None:
    last = account(running_account(region="500", pue=1.5), 50, total_steps=2000.0)[-1]
    joules = 1.5 * 100 * 50
    assert last["energy_joules"] == {"gpu": pytest.approx(joules)}
    assert last["energy_projected_joules"] == pytest.approx(4 * joules)
    assert last["carbon_projected_grams"] == pytest.approx(4 * 500 * joules / 3.6e6)


def test_a_host_without_rank_0_projects_by_the_first_rank_it_has() -> None:
    kept = running_account("3.60 USD/h")
    for second in range(11):
        samples = tuple(
            Sample(Subject("training", f"rank {rank}", {"rank": rank}), {"step": step * second, "total_steps": 100.0})
            for rank, step in ((9, 7.0), (8, 5.0))
        )
        entry = kept(Snapshot(START + second, float(second), samples, last=second == 10)).samples[-1]
    assert entry.values["progress_ratio"] == 0.5
    assert entry.values["remaining_seconds"] == pytest.approx(10.0)
    assert entry.values["cost_projected"] == pytest.approx({"USD": 0.02})


def test_emissions_to_come_are_not_projected_where_no_intensity_is_known() -> None:
    last = account(running_account(), 50, total_steps=2000.0)[-1]
    assert "energy_projected_joules" in last
    assert "carbon_projected_grams" not in last


def test_nothing_is_projected_once_the_planned_steps_are_done() -> None:
    last = account(running_account("3.60 USD/h", "500"), 50, total_steps=500.0)[-1]
    assert (last["progress_ratio"], last["remaining_seconds"]) == (1.0, 0.0)
    assert not [field for field in last if "projected" in field]


def test_without_a_plan_a_price_or_a_region_nothing_is_said_of_them() -> None:
    last = account(running_account(), 40, loss=0.5)[-1]
    assert last.keys() == {"seconds", "energy_joules", "gpu_seconds", "gpu_idle_seconds"}


def test_cpu_energy_is_that_of_its_counter_and_an_estimate_where_there_is_none() -> None:
    host = Subject("host", "")
    kept = running_account()
    for second in range(2):
        values: dict[str, Value] = {"cpu_energy_joules": 70.0 * second, "cpu_cores": 8, "cpu_ratio": 1.0}
        values |= {"memory_total_bytes": 10 * 2**30}
        entry = kept(Snapshot(START + second, float(second), (Sample(host, values),), last=second == 1)).samples[-1]
    assert entry.values == {"seconds": 1.0, "energy_joules": pytest.approx({"cpu": 70.0, "dram": 3.0})}

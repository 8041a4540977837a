"""The account of a run that goes on: the same sums as a report, told on the way."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pulsetrain import intensity
from pulsetrain.insight.ledger import PERIOD_SECONDS, Ledger
from pulsetrain.insight.prices import load_prices, parse_price
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1"})
TRAINING = Subject("training", "rank 0", {"rank": 0})
START = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def account(ledger: Ledger, seconds: int, watts: float = 100.0, **training: Value) -> list[dict[str, Any]]:
    """What is added to the snapshots of a GPU whose counter rises steadily, while a training reports each second."""
    entries = []
    for second in range(seconds + 1):
        gpu: dict[str, Value] = {"up": 1, "energy_joules": 5000 + watts * second, "utilization_percent": 0}
        samples = [Sample(GPU, gpu)]
        if training:
            samples.append(Sample(TRAINING, {"step": 10.0 * second, **training}))
        snapshot = Snapshot(START + second, float(second), tuple(samples), last=second == seconds)
        entries += [s.values for s in ledger(snapshot).samples if s.subject.table == "account"]
    return entries


def ledger(price: str | None = None, region: str | None = None, pue: float = 1.0) -> Ledger:
    record = intensity.Record(provider=intensity.find(region).about) if region else None
    return Ledger(
        price=parse_price(price, load_prices()) if price else None,
        pue=pue,
        record=lambda: record,
    )


def test_entries_come_now_and_then_and_with_the_last_snapshot() -> None:
    entries = account(ledger(), int(PERIOD_SECONDS) + 3)
    assert [entry["gpu_seconds"] for entry in entries] == [PERIOD_SECONDS, PERIOD_SECONDS + 3]


def test_energy_carbon_and_cost_add_up_over_the_entries() -> None:
    last = account(ledger("0.36 EUR/kWh", "500", pue=1.5), 100)[-1]
    joules = 1.5 * 100 * 100
    assert last["energy_joules"] == {"gpu": pytest.approx(joules)}
    assert last["carbon_grams"] == pytest.approx(500 * joules / 3.6e6)
    assert last["cost"] == {"EUR": pytest.approx(0.36 * joules / 3.6e6)}
    assert last["gpu_idle_seconds"] == pytest.approx(100)


def test_progress_time_left_and_cost_to_come_follow_from_the_planned_steps() -> None:
    last = account(ledger("3.60 USD/h"), 50, total_steps=1000.0)[-1]
    assert last["progress_ratio"] == 0.5
    assert last["remaining_seconds"] == pytest.approx(50)
    assert (last["cost"]["USD"], last["cost_projected"]["USD"]) == (pytest.approx(0.05), pytest.approx(0.1))


def test_without_a_plan_a_price_or_a_region_nothing_is_said_of_them() -> None:
    last = account(ledger(), 40, loss=0.5)[-1]
    assert last.keys() == {"energy_joules", "gpu_seconds", "gpu_idle_seconds"}


def test_cpu_energy_is_that_of_its_counter_and_an_estimate_where_there_is_none() -> None:
    host = Subject("host", "")
    kept = ledger()
    for second in range(2):
        values: dict[str, Value] = {"cpu_energy_joules": 70.0 * second, "cpu_cores": 8, "cpu_ratio": 1.0}
        values |= {"memory_total_bytes": 10 * 2**30}
        entry = kept(Snapshot(START + second, float(second), (Sample(host, values),), last=second == 1)).samples[-1]
    assert entry.values == {"energy_joules": pytest.approx({"cpu": 70.0, "dram": 3.0})}

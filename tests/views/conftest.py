"""What tests of views share: a report of which every part is known, and terminals of any width."""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pulsetrain.insight.carbon import Carbon, CarbonSlot, GreenerStart
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.figures import DeviceEnergy, Energy, Portion, RunEnergy
from pulsetrain.insight.report import Report
from pulsetrain.insight.summary import GpuSummary, Summary
from pulsetrain.insight.time_ledger import RankTime, TimeLedger, TimeShare
from pulsetrain.insight.training_summary import LeftOut, TrainingSummary
from pulsetrain.runs.folder import CountingOptions, Host, Run
from pulsetrain.views.text import Style

GIB = 2**30
START = datetime(2026, 11, 16, 1, 30, 54, tzinfo=UTC)
HOUR = 3600.0


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Style]:
    """The style of a terminal with so many columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def make(columns: int) -> Style:
        monkeypatch.setenv("COLUMNS", str(columns))
        return Style(Terminal())

    return make


@pytest.fixture
def golden() -> Callable[[str], str]:
    """The text of a file of what is expected."""
    return lambda name: (Path(__file__).parent / "golden" / name).read_text(encoding="utf-8")


def _ledger() -> TimeLedger:
    seconds = {"startup": 144.0, "data_wait": 2800.0, "forward": 4200.0, "backward": 5600.0, "optimizer": 1000.0}
    seconds |= {"checkpoint": 300.0, "tail": 12.0, "unknown": 330.0}
    whole = sum(seconds.values())

    def classes(ranks: int) -> dict[str, TimeShare]:
        return {
            name: TimeShare(
                seconds=part / ranks, share=part / whole, joules=56.25 * part / ranks, money=4.7e-6 * part / ranks
            )
            for name, part in seconds.items()
        }

    ranks = [
        RankTime(host="vm", rank=rank, attempt=1, began=1.0, ended=1 + whole / 2, classes=classes(2)) for rank in (0, 1)
    ]
    return TimeLedger(seconds=whole, classes=classes(1), ranks=ranks, goodput=10800 / whole)


@pytest.fixture
def full_report() -> Report:
    """A run on two GPUs of which everything is known."""
    return Report(
        run=Run(
            id="20261116-013054-resnet50-3f9c",
            name="resnet50",
            command=["python", "train.py", "--data", "my images"],
            tags={"team": "vision"},
            start=START,
            end=START + timedelta(hours=2),
            status="finished",
            exit_code=0,
            hosts={
                "node1": Host(gpus=[{"name": "NVIDIA L4"}] * 2, cpu_cores=8, memory_bytes=32 * GIB, system="Linux 6.1")
            },
            lost_samples=3,
        ),
        path="/data/runs/20261116-013054-resnet50-3f9c",
        account=CountingOptions(carbon_region="South England", price="0.30 EUR/kWh"),
        summary=_summary(),
        energy=_energy(),
        missing=["FLOPs of the last layer are not counted: it is compiled."],
        carbon=_carbon(),
        cost=Cost(
            amount=0.0675,
            currency="EUR",
            basis="0.30 EUR/kWh",
            dated=date(2026, 8, 21),
            error=0.0016,
            projected=0.135,
            per_step=0.0675 / 7000,
            per_sample=0.0675 / 448_000,
            notes=["The price is yours."],
        ),
        ledger=_ledger(),
        events=[
            _event(60, "info", "now training resnet50"),
            _event(600, "warning", "host: 3 ticks missed"),
            _event(4000, "critical", "GPU 1 (NVIDIA L4): XID 79, GPU has fallen off the bus"),
        ],
        damaged_lines=2,
    )


@pytest.fixture
def bare_report() -> Report:
    """A run of which nothing is known but that it was."""
    return Report(
        run=Run(
            id="20261116-013054-true-3f9c",
            name="true",
            start=START,
            end=START + timedelta(seconds=1),
            status="finished",
        ),
        path="/data/runs/20261116-013054-true-3f9c",
        account=CountingOptions(),
        summary=Summary(
            seconds=1.0,
            training=None,
            gpus=[],
            cpu_ratio_mean=None,
            cpu_ratio_peak=None,
            cpu_cores=None,
            memory_used_bytes_peak=None,
            memory_total_bytes=None,
            job_cpu_seconds=None,
            job_memory_bytes_peak=None,
            job_processes_peak=None,
            pulsetrain_cpu_seconds=None,
        ),
        energy=RunEnergy(total=None, devices=[]),
    )


def _summary() -> Summary:
    return Summary(
        seconds=2 * HOUR,
        training=TrainingSummary(
            steps=7000,
            last_step=7000,
            total_steps=14000,
            epoch=3.5,
            ranks=2,
            loss_first=6.91,
            loss_last=1.234,
            loss_last_by_rank={"0": 1.234, "1": 1.366},
            nonfinite_losses=1,
            learning_rate=3e-5,
            gradient_norm=0.8125,
            skipped_updates=2,
            steady_steps=6896,
            step_seconds_mean=1.0,
            step_seconds_p50=0.98,
            step_seconds_p95=1.25,
            data_wait_share=0.1,
            forward_share=0.3,
            backward_share=0.5,
            optimizer_share=0.08,
            other_share=0.02,
            samples_per_second=64.0,
            all_ranks_samples_per_second=128.0,
            mfu_ratio=0.41,
            left_out=LeftOut(
                start_up_seconds=200.0,
                warm_up_steps=100,
                warm_up_seconds=148.0,
                interrupted_steps=4,
                interrupted_by=["validation"],
                phase_seconds={"validation": 140.0},
                pause_seconds=0.0,
            ),
            samples=448_000,
            all_ranks_samples=896_000,
        ),
        gpus=[_gpu(0, lost=0, throttled=0.0), _gpu(1, lost=40, throttled=0.25)],
        cpu_ratio_mean=0.42,
        cpu_ratio_peak=0.97,
        cpu_cores=8,
        memory_used_bytes_peak=20.5 * GIB,
        memory_total_bytes=32 * GIB,
        job_cpu_seconds=5 * HOUR,
        job_memory_bytes_peak=12 * GIB,
        job_processes_peak=9,
        pulsetrain_cpu_seconds=28.8,
    )


def _gpu(index: int, lost: int, throttled: float) -> GpuSummary:
    return GpuSummary(
        host="node1",
        gpu_index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA L4",
        simulated=False,
        samples=7200,
        utilization_percent_mean=91.0 - index,
        utilization_percent_peak=100.0,
        idle_share=0.1,
        memory_mb_peak=20_480.0,
        memory_total_mb=23_034.0,
        power_watts_mean=50.0 + index,
        power_watts_peak=72.0,
        temperature_celsius_peak=71.0,
        throttled_share=throttled,
        lost_samples=lost,
    )


def _energy() -> RunEnergy:
    devices = [_gpu_energy(0, 360e3, 0.004), _gpu_energy(1, 367.2e3, 0.031)]
    cpu = Energy(joules=82.8e3, error_joules=16.56e3, origin="estimated", method="load")
    devices.append(DeviceEnergy(device="cpu", host="node1", total=cpu, notes=["RAPL is closed: estimated from load."]))
    return RunEnergy(
        total=Energy(joules=810e3, error_joules=18.96e3, origin="estimated", method="counter + load"),
        origin_shares={"measured": 727.2 / 810, "estimated": 82.8 / 810},
        devices=devices,
        phases=[
            Portion(name="start-up", start_seconds=0, seconds=200, joules=10e3, error_joules=100),
            Portion(name="warm-up", start_seconds=200, seconds=148, joules=16e3, error_joules=400, steps=100),
            Portion(name="training", start_seconds=348, seconds=6712, joules=770e3, error_joules=18e3, steps=6900),
            Portion(name="validation", start_seconds=3000, seconds=140, joules=14e3, error_joules=860),
        ],
        epochs=[
            Portion(
                name=f"epoch {n}",
                start_seconds=n,
                seconds=1715,
                joules=196.5e3,
                error_joules=4500,
                steps=1750,
                samples=112e3,
            )
            for n in range(1, 5)
        ],
        joules_per_step=112.3,
        joules_per_sample=1.754,
        also_counted_in=["Run 20261116-010000-other-1a2b also watched GPU 0, for 60 s of this run."],
    )


def _gpu_energy(index: int, joules: float, disagreement: float) -> DeviceEnergy:
    return DeviceEnergy(
        device="gpu",
        host="node1",
        gpu_index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA L4",
        total=Energy(joules=joules, error_joules=1200, origin="measured", method="counter"),
        idle_joules=0.1 * joules,
        active_joules=0.9 * joules,
        disagreement_ratio=disagreement,
    )


def _carbon() -> Carbon:
    slots = [
        CarbonSlot(
            start=START + timedelta(minutes=30 * n),
            end=START + timedelta(minutes=30 * (n + 1)),
            grams_per_kwh=200.0 + 10 * n,
            quality="forecast",
            joules=202.5e3,
            grams=202.5e3 / 3.6e6 * (200 + 10 * n),
        )
        for n in range(4)
    ]
    return Carbon(
        grams=sum(slot.grams for slot in slots),
        error_grams=1.13,
        grams_per_kwh=215.0,
        region="South England",
        provider="Carbon Intensity API (CC BY 4.0)",
        accounting="operational",
        quality="forecast",
        slots=slots,
        notes=["The last slot is 40 minutes old."],
        greener=GreenerStart(start=START + timedelta(hours=10), grams=30.0, grams_now=50.0),
    )


def _event(seconds: float, severity: str, message: str) -> dict[str, object]:
    time = (START + timedelta(seconds=seconds)).replace(tzinfo=None)
    return {"timestamp": time, "elapsed_seconds": seconds, "kind": "any", "severity": severity, "message": message}

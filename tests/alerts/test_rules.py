"""Each alert, with Prometheus' own rule tester: it fires on the series it is for, and on no healthy one."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.servers import program

from pulsetrain import catalog
from pulsetrain.alerts.prometheus import render_rules
from pulsetrain.rules.declared import RULES
from pulsetrain.rules.recording import RECORDING_RULES
from pulsetrain.rules.thresholds import Thresholds, duration_seconds

LIMITS = Thresholds(cost_limit=100.0, energy_limit_kwh=5.0, carbon_limit_kg=2.0, time_limit_hours=1.0)
STEPS = "training_step_duration_seconds"
NONFINITE = "training_nonfinite_total"
AGE = "pulsetrain_data_age_seconds"
XIDS = "gpu_xid_code_errors_total"
LOSS = ',value="loss"'


class Case(NamedTuple):
    """Series, scraped every 30 s; of them exactly those in `fires` alert `at` that time, and none when `quiet`."""

    alert: str
    series: dict[str, str]
    fires: list[str]
    """Labels of the firing alerts, without those that a rule adds to all."""
    at: str = "20m"
    quiet: str = "0s"
    severity: str = ""

    @property
    def all_series(self) -> dict[str, str]:
        """With what says that their GPUs and runs are there."""
        return shown(self.series) | self.series


def gpu(name: str, number: int, more: str = "") -> str:
    return f'{name}{{gpu="{number}",host="a",uuid="GPU-{number}"{more}}}'


def of_run(name: str, number: int) -> str:
    return gpu(name, number, ',run="r"')


def rank(name: str, number: int, run: str = "r", more: str = "") -> str:
    return f'{name}{{host="a",rank="{number}",run="{run}"{more}}}'


def shown(series: Iterable[str], values: str = "1x1000") -> dict[str, str]:
    """What says that the GPUs and the runs of these series are there."""
    found = {}
    for name in series:
        labels = dict(re.findall(r'(\w+)="(.*?)"', name))
        if "uuid" in labels:
            found[_series("gpu_up", {key: labels[key] for key in ("gpu", "host", "run", "uuid") if key in labels})] = (
                values
            )
        elif "run" in labels:
            found[_series(AGE, {"data": "training", "host": "a", "run": labels["run"]})] = values
    return found


def _series(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def alerts_of(*numbers: int) -> list[str]:
    return [f'gpu="{number}",host="a",uuid="GPU-{number}"' for number in numbers]


def in_run(*numbers: int) -> list[str]:
    return [f'gpu="{number}",host="a",run="r",uuid="GPU-{number}"' for number in numbers]


RUN = ['run="r"']

CASES = [
    Case("GpuLost", {gpu("gpu_up", 0): "1+0x5 0+0x80", gpu("gpu_up", 1): "1+0x80"}, alerts_of(0), quiet="3m"),
    Case(
        "GpuHot",
        {gpu("gpu_temperature_celsius", n): f"{celsius}+0x80" for n, celsius in enumerate((81, 80, 95))},
        alerts_of(0, 2),
        quiet="4m",
        severity="warning",
    ),
    Case(
        "GpuHot",
        {gpu("gpu_temperature_celsius", n): f"{celsius}+0x80" for n, celsius in enumerate((81, 80, 95))},
        alerts_of(2),
        quiet="30s",
        severity="critical",
    ),
    Case(
        "MemoryPressure",
        {gpu("gpu_memory_percent", 0): "91+0x80", gpu("gpu_memory_percent", 1): "90+0x80"},
        alerts_of(0),
        quiet="4m",
    ),
    Case(
        "GpuXidError",
        {
            gpu(XIDS, 0, ',xid="79"'): "_ " * 10 + "1+0x80",  # it begins when it comes, with the loss of the GPU
            gpu("gpu_up", 0): "1x10 0x80",
            gpu(XIDS, 1, ',xid="48"'): "3+0x80",
            gpu(XIDS, 2, ',xid="31"'): "_ " * 10 + "1+0x80",
            gpu(XIDS, 3, ',xid="63"'): "_ " * 10 + "1+0x80",  # the driver has put it right
        },
        ['gpu="0",host="a",uuid="GPU-0",xid="79"'],
        at="12m",
        quiet="20m",
        severity="critical",
    ),
    Case(
        "GpuXidError",
        {
            gpu(XIDS, 0, ',xid="31"'): "1+0x20 2+0x80",
            gpu(XIDS, 1, ',xid="other"'): "_ " * 10 + "1+0x80",
            gpu(XIDS, 2, ',xid="79"'): "_ " * 10 + "1+0x80",
        },
        ['gpu="0",host="a",uuid="GPU-0",xid="31"', 'gpu="1",host="a",uuid="GPU-1",xid="other"'],
        at="12m",
        quiet="30m",
        severity="warning",
    ),
    Case(
        "GpuEccUncorrected",
        {
            gpu("gpu_ecc_uncorrected_errors_total", 0): "7+0x10 8+0x80",
            gpu("gpu_ecc_uncorrected_errors_total", 1): "7+0x80",
        },
        alerts_of(0),
        quiet="5m",
    ),
    Case(
        "GpuRowsRemapPending",
        {gpu("gpu_remapped_rows_pending", 0): "0x4 1x80", gpu("gpu_remapped_rows_pending", 1): "0x80"},
        alerts_of(0),
    ),
    Case(
        "GpuRowsRemapFailed",
        {gpu("gpu_remapped_rows_failed", 0): "0x4 1x80", gpu("gpu_remapped_rows_failed", 1): "0x80"},
        alerts_of(0),
    ),
    Case(
        "ThermalThrottle",
        {gpu("gpu_up", n): "1x80" for n in range(4)}
        | {
            gpu("gpu_throttle_reasons", 0, ',reason="sw_thermal"'): "1 1 _ " * 25,
            gpu("gpu_throttle_reasons", 1, ',reason="hw_thermal"'): "1 _ _ _ " * 20,
            gpu("gpu_throttle_reasons", 2, ',reason="sw_power_cap"'): "1x80",
            gpu("gpu_throttle_reasons", 3, ',reason="idle"'): "1x80",
        },
        alerts_of(0),
        quiet="4m",
    ),
    Case(
        "PowerCap",
        {gpu("gpu_up", n): "1x80" for n in range(2)}
        | {
            gpu("gpu_throttle_reasons", 0, ',reason="sw_power_cap"'): "1x80",
            gpu("gpu_throttle_reasons", 1, ',reason="sw_thermal"'): "1x80",
        },
        alerts_of(0),
        at="35m",
        quiet="25m",
    ),
    Case(
        "GpuFanStopped",
        {
            gpu("gpu_fan_speed_percent", 0): "0x80",
            gpu("gpu_temperature_celsius", 0): "75x80",
            gpu("gpu_fan_speed_percent", 1): "0x80",  # at rest, as cool boards are
            gpu("gpu_temperature_celsius", 1): "40x80",
            gpu("gpu_fan_speed_percent", 2): "60x80",
            gpu("gpu_temperature_celsius", 2): "75x80",
            gpu("gpu_temperature_celsius", 3): "75x80",  # has no fan
        },
        alerts_of(0),
        quiet="1m",
    ),
    Case(
        "GpuPcieLinkSlow",
        {gpu("gpu_pcie_max_width", n): "16x80" for n in range(4)}
        | {gpu("gpu_pcie_max_generation", n): "5x80" for n in range(4)}
        | {gpu("gpu_pcie_width", n): f"{width}x80" for n, width in enumerate((8, 16, 16, 16))}
        | {gpu("gpu_pcie_generation", n): f"{generation}x80" for n, generation in enumerate((5, 1, 1, 5))}
        | {gpu("gpu_utilization_percent", n): f"{percent}x80" for n, percent in enumerate((0, 95, 0, 95))},
        alerts_of(0, 1),
        quiet="5m",
    ),
    Case(
        "GpuSlowerThanPeers",
        {of_run("gpu_clock_sm_hertz", n): f"{clock}e9x80" for n, clock in enumerate((1.9, 1.9, 1.1, 1.9, 0.4))}
        | {of_run("gpu_clock_sm_max_hertz", n): "2e9x80" for n in range(5)}
        | {of_run("gpu_up", n): "1x80" for n in range(5)}
        | {of_run("gpu_utilization_percent", n): f"{percent}x80" for n, percent in enumerate((95, 95, 95, 95, 0))},
        in_run(2),
        quiet="5m",
    ),
    Case(
        "MachineEndAnnounced",
        {'host_end_announced{host="a"}': "0x5 1x80", 'host_end_announced{host="b"}': "0x85"},
        ['host="a"'],
        quiet="2m",
    ),
    Case(
        "HostMemoryLow",
        {f'host_memory_total_bytes{{host="{host}"}}': "100e9x80" for host in "ab"}
        | {
            'host_memory_available_bytes{host="a"}': "4e9x80",
            'host_memory_available_bytes{host="b"}': "6e9x80",
        },
        ['host="a"'],
        quiet="4m",
    ),
    Case(
        "OutOfMemoryAhead",
        {gpu("gpu_memory_total_mb", n): "80000x80" for n in range(3)}
        | {
            gpu("gpu_memory_used_mb", 0): "40000+300x80",  # leaks
            gpu("gpu_memory_used_mb", 1): "0x10 70000x80",  # loads a model
            gpu("gpu_memory_used_mb", 2): "40000+10x80",  # slowly enough
        },
        alerts_of(0),
        quiet="14m",
    ),
    Case(
        "HostOutOfMemoryAhead",
        {f'host_memory_total_bytes{{host="{host}"}}': "100e9x80" for host in "ab"}
        | {'host_memory_used_bytes{host="a"}': "20e9+1e9x80", 'host_memory_used_bytes{host="b"}': "90e9x80"},
        ['host="a"'],
        quiet="14m",
    ),
    Case(
        "DiskNearlyFull",
        {f'host_filesystem_size_bytes{{host="a",path="{path}"}}': "1e12x80" for path in ("/", "/data", "/big")}
        | {
            'host_filesystem_available_bytes{host="a",path="/"}': "1e10x80",
            'host_filesystem_available_bytes{host="a",path="/data"}': "6e10x80",
            'host_filesystem_available_bytes{host="a",path="/big"}': "3e10x80",
        },
        ['host="a",path="/"'],
        quiet="30s",
    ),
    Case(
        "IdleGpu",
        {
            of_run("gpu_utilization_percent", 0): "0x80",
            of_run("gpu_up", 0): "1x80",
            of_run("gpu_utilization_percent", 1): "0x20 40 0x80",  # some work after 10 minutes
            of_run("gpu_up", 1): "1x80",
            gpu("gpu_utilization_percent", 2): "0x80",  # of no run
            gpu("gpu_up", 2): "1x80",
            gpu("gpu_utilization_percent", 3): "0x80",  # seen by an agent
            gpu("gpu_up", 3): "1x80",
            of_run("process_gpu_memory_mb", 3): "900x80",
        },
        in_run(0, 3),
        quiet="14m",
    ),
    Case(
        "GpuHeldIdle",
        {
            gpu("gpu_utilization_percent", 0): "0x200",
            gpu("gpu_memory_percent", 0): "20x200",
            gpu("gpu_utilization_percent", 1): "0x200",
            gpu("gpu_memory_percent", 1): "1x200",
            of_run("gpu_utilization_percent", 2): "0x200",
            of_run("gpu_memory_percent", 2): "20x200",
            of_run("gpu_up", 2): "1x200",
            gpu("gpu_utilization_percent", 3): "0x200",
            gpu("gpu_memory_percent", 3): "20x200",
            of_run("process_gpu_memory_mb", 3): "900x200",
        },
        alerts_of(0),
        at="65m",
        quiet="55m",
    ),
    Case(
        "LowGpuUtilization",
        {of_run("gpu_up", n): "1x80" for n in range(2)}
        | {
            of_run("gpu_utilization_percent", 0): "10 40 20 " * 30,
            of_run("gpu_utilization_percent", 1): "90 0 " * 45,
            gpu("gpu_utilization_percent", 2): "10x80",
        },
        in_run(0),
        quiet="14m",
    ),
    Case(
        "Stalled",
        {
            f'pulsetrain_data_age_seconds{{data="{data}",host="a",run="{run}"}}': values
            for data, run, values in (
                ("training", "r", "0x10 0+30x80"),  # a step a second
                ("training", "slow", "0x10 0+30x80"),  # a step a minute
                ("training", "busy", "0 30 " * 40),
                ("machine", "busy", "0x10 0+30x80"),
            )
        }
        | {rank(f"{STEPS}_sum", 0, run): "6000x90" for run in ("r", "slow", "busy")}
        | {rank(f"{STEPS}_count", 0, run): f"{n}x90" for run, n in (("r", 6000), ("slow", 100), ("busy", 6000))},
        RUN,
        quiet="10m",
    ),
    Case(
        "NonFinite",
        {
            rank(NONFINITE, 0, more=LOSS): "0 0+3x80",
            rank(NONFINITE, 1, more=LOSS): "0x80",
            rank(NONFINITE, 0, "once", LOSS): "0x10 1x80",
            rank(NONFINITE, 0, "fine", LOSS): "0x80",
            rank(NONFINITE, 0, "scaled", ',value="gradient_norm"'): "0+1x80",
        },
        RUN,
    ),
    Case(
        "NonFinite",
        {rank(NONFINITE, 0, more=LOSS): "1x80"},  # from the first report on
        RUN,
        at="2m",
        quiet="30m",
    ),
    Case(
        "LossNotDecreasing",
        {
            rank("training_loss", 0): "5-0.04x100 1x400",
            rank("training_loss", 0, "learns"): "5-0.008x500",
            rank("training_loss", 0, "below zero"): "-1-0.01x500",
        },
        RUN,
        at="245m",
        quiet="150m",
    ),
    Case(
        "GradientExplosion",
        {rank("gradient_norm", 0): "1 40x80", rank("gradient_norm", 1): "9x80", rank("gradient_norm", 0, "b"): "9x80"},
        RUN,
        quiet="2m",
    ),
    Case(
        "VanishingGradient",
        {rank("gradient_norm", 0): "1 0x80", rank("gradient_norm", 0, "b"): "0.001x80"},
        RUN,
        quiet="5m",
    ),
    Case(
        "InputBound",
        {rank(f"{STEPS}_sum", 0, run): "0+30x80" for run in "rb"}
        | {
            rank("training_data_wait_seconds_total", 0): "0+12x80",
            rank("training_data_wait_seconds_total", 0, "b"): "0+6x80",
        },
        RUN,
        quiet="9m",
    ),
    Case(
        "Straggler",
        {rank(f"{STEPS}_sum", n): "0+30x80" for n in range(4)}
        | {rank("training_data_wait_seconds_total", n): "0+1x80" for n in range(4)}
        | {rank("training_forward_seconds_total", n): f"0+{s}x80" for n, s in enumerate((9, 9, 15, 10))},
        ['host="a",rank="2",run="r"'],
        quiet="9m",
    ),
    Case(
        "SlowedDown",
        {
            rank("training_steps_total", 0): "0+30x120 3600+15x120",
            rank("training_steps_total", 0, "steady"): "0+30x240",
            rank("training_steps_total", 0, "stands"): "0+30x120 3600x120",
        },
        RUN,
        at="85m",
        quiet="70m",
    ),
    Case(
        "CostAboveLimit",
        {
            'run_cost_total{currency="EUR",host="a",run="r"}': "0+2x80",
            'run_cost_total{currency="EUR",host="b",run="r"}': "0+2x80",
            'run_cost_total{currency="EUR",host="a",run="cheap"}': "0+2x80",
        },
        ['currency="EUR",run="r"'],
        quiet="10m",
    ),
    Case(
        "CostProjectedAboveLimit",
        {
            'run_cost_projected{currency="EUR",host="a",run="r"}': "101x80",
            'run_cost_projected{currency="EUR",host="a",run="cheap"}': "99x80",
        },
        ['currency="EUR",run="r"'],
        quiet="9m",
    ),
    Case(
        "EnergyAboveLimit",
        {
            'run_energy_joules_total{device="gpu",host="a",run="r"}': "0+1e6x80",
            'run_energy_joules_total{device="cpu",host="a",run="r"}': "0+1e5x80",
            'run_energy_joules_total{device="gpu",host="a",run="small"}': "0+1e5x80",
        },
        RUN,
        quiet="5m",
    ),
    Case(
        "CarbonAboveLimit",
        {
            'run_carbon_grams_total{host="a",run="r"}': "0+100x80",
            'run_carbon_grams_total{host="a",run="small"}': "0+10x80",
        },
        RUN,
        quiet="5m",
    ),
    *(
        Case(
            f"{budget}ProjectedAboveLimit",
            {f'{series}{{host="a",run="r"}}': f"{most}x80", f'{series}{{host="a",run="small"}}': f"{most / 2}x80"},
            RUN,
            quiet="9m",
        )
        for budget, series, most in (
            ("Energy", "run_energy_projected_joules", 20e6),
            ("Carbon", "run_carbon_projected_grams", 3000.0),
            ("Time", "run_projected_seconds", 5000.0),
        )
    ),
    Case(
        "TimeAboveLimit",
        {'run_seconds_total{host="a",run="r"}': "3000+30x80", 'run_seconds_total{host="a",run="new"}': "0+30x80"},
        RUN,
        quiet="5m",
    ),
    Case(
        "PulsetrainDown",
        {
            'up{instance="a:9400",job="pulsetrain"}': "1 0x80",
            'up{instance="b:9400",job="pulsetrain"}': "1x80",
            'up{instance="a:80",job="web"}': "0x80",
        },
        ['instance="a:9400",job="pulsetrain"'],
        quiet="5m",
    ),
    Case(
        "PulsetrainSourceDown",
        {
            'pulsetrain_source_up{host="a",source="nvidia"}': "1 0x80",
            'pulsetrain_source_up{host="a",source="host"}': "1x80",
        },
        ['host="a",source="nvidia"'],
        quiet="5m",
    ),
    Case(
        "PulsetrainPartDown",
        {
            'pulsetrain_part_up{host="a",part="writer"}': "1 0x80",
            'pulsetrain_part_up{host="a",part="push-grafana"}': "1x80",
        },
        ['host="a",part="writer"'],
        quiet="5m",
    ),
    Case(
        "PulsetrainDataOld",
        {
            'pulsetrain_data_age_seconds{data="machine",host="a"}': "0+30x80",
            'pulsetrain_data_age_seconds{data="machine",host="b"}': "1x80",
            'pulsetrain_data_age_seconds{data="training",host="b"}': "0+30x80",
        },
        ['data="machine",host="a"'],
        quiet="3m",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert} {case.severity}".strip())
def test_an_alert_fires_on_its_series_and_on_no_healthy_one(case: Case, tmp_path: Path) -> None:
    (rule,) = [a for a in RULES if a.name == case.alert and case.severity in ("", a.severity)]
    added = f'alertname="{case.alert}",alertstate="firing",severity="{rule.severity}",topic="{rule.topic}"'
    firing = f"ALERTS{{{added}}}"
    expected = [{"labels": f"ALERTS{{{added},{labels}}}", "value": 1} for labels in case.fires]
    check(
        tmp_path,
        {
            "input_series": [{"series": name, "values": values.strip()} for name, values in case.all_series.items()],
            "promql_expr_test": [
                {"expr": firing, "eval_time": case.quiet, "exp_samples": []},
                {"expr": firing, "eval_time": case.at, "exp_samples": expected},
            ],
        },
    )


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        ("ThermalThrottle", [of_run("gpu_throttle_reasons", 0).replace("{", '{reason="hw_thermal",')]),
        ("PowerCap", [of_run("gpu_throttle_reasons", 0).replace("{", '{reason="sw_power_cap",')]),
        ("InputBound", [rank("training_data_wait_seconds_total", 0), rank(f"{STEPS}_sum", 0)]),
    ],
)
def test_no_alert_begins_after_its_run_has_ended(alert: str, series: list[str], tmp_path: Path) -> None:
    (rule,) = [one for one in RULES if one.name == alert]
    held = duration_seconds(rule.hold) // 30
    lasting = {name: f"1+{0 if 'reasons' in name else 30}x{held - 4:.0f} stale" for name in series}
    lasting |= shown(series, f"1x{held - 4:.0f} stale")
    ended = [f"{held / 2 + minutes:.0f}m" for minutes in (0, 1, 2, 3, 4)]
    check(
        tmp_path,
        {
            "input_series": [{"series": name, "values": values} for name, values in lasting.items()],
            "promql_expr_test": [
                {"expr": f'ALERTS{{alertname="{alert}",alertstate="firing"}}', "eval_time": at, "exp_samples": []}
                for at in ended
            ],
        },
    )


def test_every_alert_has_a_case() -> None:
    severities = {alert.name: alert.severity for alert in RULES}
    tried = {(case.alert, case.severity or severities[case.alert]) for case in CASES}
    assert tried == {(alert.name, alert.severity) for alert in RULES}


def test_a_message_says_what_where_how_much_what_to_do_and_where_to_look(tmp_path: Path) -> None:
    labels = {"gpu": "3", "host": "gpu01", "run": "20261116-120000-resnet50-3f9c", "uuid": "GPU-3"}
    series = ",".join(f'{name}="{value}"' for name, value in labels.items())
    check(
        tmp_path,
        {
            "input_series": [{"series": f"gpu_temperature_celsius{{{series}}}", "values": "93x20"}],
            "alert_rule_test": [
                {
                    "alertname": "GpuHot",
                    "eval_time": "2m",
                    "exp_alerts": [
                        {
                            "exp_labels": {**labels, "severity": "critical", "topic": "machine"},
                            "exp_annotations": {
                                "summary": "GPU 3 on gpu01 is at 93 °C",
                                "description": "Above 90 °C: boards slow down hard, and switch off soon after.",
                                "help": "Pause the run or lower the power limit now (nvidia-smi -pl), then look at the "
                                "cooling.",
                                "dashboard": "http://grafana:3000/d/pulsetrain-run?var-run="
                                "20261116-120000-resnet50-3f9c",
                            },
                        }
                    ],
                }
            ],
        },
    )


def test_what_a_run_and_an_agent_both_export_counts_once(tmp_path: Path) -> None:
    by_run = ',instance="a:9401",run="r"'
    by_agent = ',instance="a:9400"'
    series = {gpu("gpu_up", 0, by_run): "1x20", gpu("gpu_up", 0, by_agent): "1x20"}
    series |= {gpu("gpu_power_draw_watts", 0, labels): "300x20" for labels in (by_run, by_agent)}
    series |= {gpu("process_gpu_memory_mb", 0, f'{by_agent},run="r"'): "900x20"}
    for port in (9400, 9401):
        account = f'host="a",instance="a:{port}",run="r"'
        series[f'run_cost_total{{currency="EUR",{account}}}'] = "0+3x20"
        series[f'run_energy_joules_total{{device="gpu",{account}}}'] = "0+9000x20"
        series[f"run_gpu_idle_seconds_total{{{account}}}"] = "0+15x20"
        series[f"run_gpu_seconds_total{{{account}}}"] = "0+30x20"
        series[f'training_samples_total{{rank="0",{account}}}'] = "0+3000x20"
    expected = {
        'run:gpus:count{run="r"}': 1.0,
        'run:gpu_power_draw_watts:sum{run="r"}': 300.0,
        'run:energy_joules:rate5m{run="r"}': 300.0,
        'run:gpu_idle:ratio_rate5m{run="r"}': 0.5,
        'run:cost:rate5m{currency="EUR",run="r"}': 0.1,
        'run:wasted_cost:rate5m{currency="EUR",run="r"}': 0.05,
        'run:training_samples:rate5m{run="r"}': 100.0,
        'host:gpu_power_draw_watts:sum{host="a"}': 300.0,
        "fleet:gpus:count": 1.0,
        "fleet:wasted_gpus:rate5m": 0.5,
    }
    check(
        tmp_path,
        {
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {"expr": name, "eval_time": "8m", "exp_samples": [{"labels": name, "value": value}]}
                for name, value in expected.items()
            ],
        },
    )


def check(folder: Path, test: dict[str, Any]) -> None:
    """Have promtool evaluate the rules over the series of a test."""
    (folder / "rules.yml").write_text(render_rules(LIMITS, grafana="http://grafana:3000/"))
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": [{"interval": "30s", **test}]}
    (folder / "test.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [program("promtool"), "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_name_only_metrics_that_exist() -> None:
    known = (
        {metric.name for metric in (*catalog.METRICS, *catalog.EXPORTED)} | {r.name for r in RECORDING_RULES} | {"up"}
    )
    known |= {f"{STEPS}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
    groups = yaml.safe_load(render_rules(LIMITS))["groups"]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    named = {name for expression in expressions for name in metrics_in(expression)}
    assert len(named) > 40
    assert named - known == set()


def metrics_in(expression: str) -> set[str]:
    """The metrics of a PromQL expression: its words, without strings, labels, functions and operators."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(by|without|on|ignoring|group_left) \([^)]*\)', "", expression)
    words = re.findall(r"[a-zA-Z_][\w:]*(?!\w*\s?\()", bare)
    return {word for word in words if "_" in word or ":" in word or word == "up"} - FUNCTIONS


FUNCTIONS = {"avg_over_time", "count_over_time", "sum_over_time", "histogram_quantile"}

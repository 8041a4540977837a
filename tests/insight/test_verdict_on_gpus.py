"""The judges that need a GPU, on recorded runs: each finds its fault, and abstains without it or its signal."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.insight.test_verdict import Line, MakeRun, steps, verdict_of

from pulsetrain.rules.finding import Verdict

HEALTHY_GPU: Line = {
    "up": 1,
    "name": "NVIDIA H100 80GB HBM3",
    "utilization_percent": 96.0,
    "memory_percent": 80.0,
    "memory_used_mb": 65536.0,
    "memory_total_mb": 81920.0,
    "temperature_celsius": 60.0,
    "throttle_reasons": [],
    "clock_sm_hertz": 1.9e9,
    "clock_sm_max_hertz": 1.98e9,
    "tensor_active_ratio": 0.4,
    "power_limit_watts": 700.0,
    "power_limit_max_watts": 700.0,
}
HEALTHY_HOST: Line = {"cpu_ratio": 0.4, "cpu_iowait_ratio": 0.01, "cpu_cores": 8, "job_cpu_cores": 2.0}
GPU_RULES = {
    *("LowGpuUtilization", "IdleGpu", "NoTensorCores", "MemoryPressure", "HostToDeviceBound", "LaunchBound"),
    *("CommunicationBound", "CpuBottleneck", "IoBottleneck", "LoadImbalance", "GpuLost", "ThermalThrottle", "PowerCap"),
    *("BatchTooSmall", "MemoryGrowth", "Straggler"),
}


def gpus(*boards: Line, count: int = 30) -> list[Line]:
    return [
        {"elapsed_seconds": float(n), "gpu_index": index, "uuid": f"GPU-{index}", **HEALTHY_GPU, **board}
        for n in range(count)
        for index, board in enumerate(boards)
    ]


def hosts(**differing: Any) -> list[Line]:
    return [{"elapsed_seconds": float(n), **HEALTHY_HOST, **differing} for n in range(30)]


def lost_after(seconds: float) -> list[Line]:
    lines = gpus({})
    for line in lines:
        if line["elapsed_seconds"] > seconds:
            line |= {"up": 0, "utilization_percent": None, "tensor_active_ratio": None, "memory_percent": None}
    return lines


def one_core(cores: float) -> list[Line]:
    return [
        {"elapsed_seconds": float(n), "pid": 7, "command": "python train.py", "cpu_cores": cores} for n in range(30)
    ]


def moved(part: str, seconds: float) -> list[Line]:
    """Steps in which a part takes so long, out of their backward pass."""
    parts: dict[str, Any] = {part: seconds, "backward_seconds": 0.5 * 0.1 - seconds}
    return steps(**parts)


FAULTS: dict[str, Callable[[], dict[str, list[Line]]]] = {
    "LowGpuUtilization": lambda: {"gpu": gpus({"utilization_percent": 20.0})},
    "IdleGpu": lambda: {"gpu": gpus({}, {"utilization_percent": 0.0})},
    "NoTensorCores": lambda: {"gpu": gpus({"tensor_active_ratio": 0.0})},
    "MemoryPressure": lambda: {"gpu": gpus({"memory_percent": 98.5})},
    "HostToDeviceBound": lambda: {"gpu": gpus({}), "training": moved("copy_seconds", 0.03)},
    "CommunicationBound": lambda: {"gpu": gpus({}), "training": moved("communication_seconds", 0.03)},
    "LaunchBound": lambda: {
        "gpu": gpus({"utilization_percent": 35.0}),
        "host": hosts(job_cpu_cores=1.05),
        "process": one_core(1.0),
        "training": steps(2000, seconds=0.01),
    },
    "CpuBottleneck": lambda: {"gpu": gpus({"utilization_percent": 5.0}), "host": hosts(cpu_ratio=0.98)},
    "IoBottleneck": lambda: {"gpu": gpus({"utilization_percent": 50.0}), "host": hosts(cpu_iowait_ratio=0.7)},
    "LoadImbalance": lambda: {"gpu": gpus({}, {"utilization_percent": 50.0})},
    "GpuLost": lambda: {"gpu": lost_after(20)},
    "ThermalThrottle": lambda: {"gpu": gpus({"throttle_reasons": ["sw_thermal"], "clock_sm_hertz": 1.2e9})},
    "PowerCap": lambda: {"gpu": gpus({"throttle_reasons": ["sw_power_cap"], "power_limit_watts": 350.0})},
}


def judged(make_run: MakeRun, tables: dict[str, list[Line]]) -> Verdict:
    return verdict_of(make_run(seconds=30.0, **({"training": steps(), "host": hosts()} | tables)))


@pytest.mark.parametrize("rule", FAULTS)
def test_the_fault_of_a_gpu_comes_first(rule: str, make_run: MakeRun) -> None:
    main = judged(make_run, FAULTS[rule]()).main
    assert main is not None and main.rule == rule, main
    assert main.evidence and main.severity in ("warning", "critical")


def test_a_healthy_run_on_gpus_is_reported_as_healthy(make_run: MakeRun) -> None:
    verdict = judged(make_run, {"gpu": gpus({}, {}), "process": one_core(1.0)})
    assert verdict.headline == "Nothing holds it back: computing takes 90 % of a steady step."
    assert [finding.rule for finding in verdict.findings] == ["ComputeBound"]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"elapsed_seconds": float(n), "gpu_index": 0, "uuid": "GPU-0", "up": 1} for n in range(30)],
        [{**line, "utilization_percent": 0.0, "simulated": True, "tensor_active_ratio": 0.0} for line in gpus({})],
        [line | {"utilization_percent": 0.0} for line in gpus({}, count=8)],
    ],
    ids=["no GPU", "a GPU that tells nothing", "a simulated GPU", "three readings while it trained"],
)
def test_without_a_signal_no_rule_about_gpus_says_anything(lines: list[Line], make_run: MakeRun) -> None:
    verdict = judged(make_run, {"gpu": lines})
    assert {finding.rule for finding in verdict.findings} & GPU_RULES == set()
    assert verdict.main is None


def test_a_power_limit_at_full_load_is_usual(make_run: MakeRun) -> None:
    verdict = judged(make_run, {"gpu": gpus({"throttle_reasons": ["sw_power_cap"], "memory_percent": 92.0})})
    assert verdict.main is None
    assert {finding.rule: finding.severity for finding in verdict.findings} == {
        "PowerCap": "info",
        "MemoryPressure": "info",
        "ComputeBound": "info",
    }


def test_a_gpu_with_room_everywhere_gets_the_hint_of_a_larger_batch(make_run: MakeRun) -> None:
    verdict = judged(make_run, {"gpu": gpus({"utilization_percent": 40.0, "memory_percent": 20.0})})
    (found,) = [finding for finding in verdict.findings if finding.rule == "BatchTooSmall"]
    assert found.severity == "info" and "all below 70 %" in found.summary

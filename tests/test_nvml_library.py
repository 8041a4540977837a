"""The simulated NVML, seen through the real nvidia-ml-py: each test asks a fresh process, as a library stays loaded."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.nvml.build import build
from tests.nvml.scenario import TRAINING, Scenario, constant, pulse, ramp, square, steps, training

ROOT = Path(__file__).parents[1]
PROBE = ROOT / "tests/nvml/probe.py"
MISSING = "NotSupported"

Ask = Callable[..., list[Any]]


def probe(environment: dict[str, str], **request: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROBE],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        input=json.dumps({"at": None, "start": True, "expressions": []} | request),
        capture_output=True,
        text=True,
    )


@pytest.fixture
def ask(nvml_library: Path, tmp_path: Path) -> Ask:
    """The answers of one process to expressions; an NVML error is answered by its name.

    Time is held at second `at` of the scenario, and passes where an expression sleeps; with None it passes by itself.
    `start=False` leaves the initialization to the expressions.
    """

    def ask(scenario: Scenario | None, *expressions: str, at: float | None = 0, start: bool = True) -> list[Any]:
        environment = {"LD_LIBRARY_PATH": str(nvml_library)}
        if scenario is not None:
            environment = scenario.environment(nvml_library, tmp_path / "scenario")
        result = probe(environment, expressions=expressions, at=at, start=start)
        assert result.returncode == 0, result.stderr
        answers: list[Any] = json.loads(result.stdout)
        return answers

    return ask


# Life cycle


def test_without_a_scenario_there_are_two_healthy_h100(ask: Ask) -> None:
    count, name, load, power = ask(
        None,
        "nvmlDeviceGetCount()",
        "nvmlDeviceGetName(gpu(1))",
        "nvmlDeviceGetUtilizationRates(gpu(1))",
        "nvmlDeviceGetPowerUsage(gpu(1))",
    )
    assert (count, name, load) == (2, "NVIDIA H100 80GB HBM3", {"gpu": 95, "memory": 45})
    assert 200_000 < power < 700_000


def test_calls_fail_before_initialization_and_after_the_last_shutdown(ask: Ask) -> None:
    answers = ask(
        None,
        "pynvml._LoadNvmlLibrary()",
        "nvmlDeviceGetCount()",
        "[nvmlInit(), nvmlInit(), nvmlShutdown()]",
        "nvmlDeviceGetCount()",
        "nvmlShutdown()",
        "nvmlDeviceGetCount()",
        start=False,
    )
    assert answers[1::2] == ["Uninitialized", 2, "Uninitialized"]


def test_a_forked_child_must_initialize_again(ask: Ask) -> None:
    in_child = ask(None, "in_child('nvmlDeviceGetCount()')", "in_child('[nvmlInit(), nvmlDeviceGetCount()]')")
    assert in_child == ["Uninitialized", [None, 2]]


def test_the_scenario_is_read_again_at_the_next_initialization(ask: Ask) -> None:
    rewrite = "open(os.environ['PULSETRAIN_TEST_NVML'], 'w').write('gpus 5 L4\\n')"
    counts = ask(
        Scenario().gpus(3, "L4"),
        f"[{rewrite}, nvmlInit(), nvmlShutdown(), nvmlDeviceGetCount()][-1]",
        "[nvmlShutdown(), nvmlInit(), nvmlDeviceGetCount()][-1]",
    )
    assert counts == [3, 5]


def test_initialization_fails_with_the_given_error_until_it_recovers(ask: Ask) -> None:
    scenario = Scenario().init_error(18, 0, 0.2)
    assert ask(scenario, "nvmlInit()", "time.sleep(0.25)", "nvmlInit()", start=False) == [
        "LibRmVersionMismatch",
        None,
        None,
    ]


@pytest.mark.parametrize(
    "line",
    [
        "gpsu 1 L4",
        "gpus 1 L5",
        "power 2 constant 300",
        "power 0 constant",
        "power 0 constant 300 400",
        "power 0 pulse 100 400 5 5",
        "temperature 0 training",
        "unsupported 0 nvmlDeviceGetNothing",
        "fail 0 nvmlDeviceGetCount_v2 999",
        "mig 0 4+4",
        "process 0.3 42 100 compute 5",
    ],
)
def test_a_line_that_says_nothing_ends_the_process(line: str, nvml_library: Path, tmp_path: Path) -> None:
    environment = Scenario().line("# two boards").line(line).environment(nvml_library, tmp_path / "scenario")
    result = probe(environment)
    assert result.returncode < 0
    assert "scenario:2: " in result.stderr
    assert line in result.stderr


def test_the_helper_writes_only_lines_that_the_library_understands(ask: Ask) -> None:
    scenario = Scenario().gpus(2, "A100").gpus(1, "L4").host(3).mig(0, (2, 1), (2,), (1,))
    scenario.curve("power", "*", TRAINING).curve("util", 1, square(0, 100, 2)).curve("fan", 2, ramp(0, 100, 9, 1))
    scenario.curve("power", 1, pulse(100, 400, 10, 2, 1)).curve("power", 2, training(0.1))
    scenario.curve("memory", 1, steps((0, 100), (5, 200))).process("0.1", "self", 10, sm_percent=3, start=1, end=2)
    scenario.process(1, 42, None, kind="graphics").process_util(1, "stale").sensor_instant(0).sensor_window(1, 25, 100)
    scenario.sensor_mean(2, 1000).sensor_error("*", -5).counter(0, "frozen").counter_reset(1, 5).counter_update(2, 0)
    scenario.latency(0).pcie_latency(0).slow(0, "nvmlDeviceGetName", 0, 1, 2).unsupported("*", "fan").unsupported(
        0, 186
    )
    scenario.fail(0, 83, 999, 1).lost(2, 100, 101).lost_error(999).lost_needs_reinit().race(1).gpm(0, supported=False)
    scenario.lost_while(2, Path("/no/such/file"))
    scenario.xid(2, 79, 4).reasons(0, 4, 1, 2).ecc(0, "corrected", 5).remapped(0, correctable=1).init_error(9, 99)
    assert ask(scenario, "nvmlDeviceGetCount()") == [3]


def test_the_library_is_compiled_only_when_its_source_is_newer(nvml_library: Path) -> None:
    compiled = (nvml_library / "libnvidia-ml.so.1").stat().st_mtime_ns
    assert build(nvml_library).stat().st_mtime_ns == compiled


# Identity


def test_every_board_has_what_its_kind_has(ask: Ask) -> None:
    boards = ("H100", "A100", "L4", "RTX4090", "T4", "V100", "P100", "GB10")
    scenario = Scenario()
    for board in boards:
        scenario.gpus(1, board)  # type: ignore[arg-type]  # a tuple of literals, to mypy, has plain strings
    questions = {
        "memory": "nvmlDeviceGetMemoryInfo(gpu({0})).total",
        "fan": "nvmlDeviceGetFanSpeed(gpu({0}))",
        "ecc": "nvmlDeviceGetEccMode(gpu({0}))",
        "memory temperature": "field({0}, 82)",
        "energy": "nvmlDeviceGetTotalEnergyConsumption(gpu({0}))",
        "average": "field({0}, 185)",
        "instant": "field({0}, 186)",
        "nvlink": "nvmlDeviceGetNvLinkState(gpu({0}), 0)",
        "limit": "nvmlDeviceGetEnforcedPowerLimit(gpu({0}))",
        "mig": "nvmlDeviceGetMigMode(gpu({0}))",
        "power": "nvmlDeviceGetPowerUsage(gpu({0}))",
    }
    answers = iter(ask(scenario, *(text.format(i) for i in range(len(boards)) for text in questions.values())))
    lacks = {board: {question for question in questions if next(answers) == MISSING} for board in boards}
    assert lacks == {
        "H100": {"fan"},
        "A100": {"fan", "average"},
        "L4": {"fan", "memory temperature", "nvlink", "mig"},
        "RTX4090": {"ecc", "memory temperature", "nvlink", "mig"},
        "T4": {"fan", "memory temperature", "average", "instant", "nvlink", "mig"},
        "V100": {"fan", "average", "instant", "mig"},
        "P100": {"fan", "energy", "average", "instant", "nvlink", "mig"},
        "GB10": {"memory", "fan", "ecc", "memory temperature", "nvlink", "limit", "mig"},
    }


def test_a_gpu_is_found_by_uuid_and_bus_id_in_every_process(ask: Ask) -> None:
    scenario = Scenario().gpus(3, "A100")
    uuids, bus = ask(scenario, "[nvmlDeviceGetUUID(gpu(i)) for i in range(3)]", "nvmlDeviceGetPciInfo(gpu(2)).busId")
    assert len(set(uuids)) == 3
    found = ask(
        scenario,
        f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(b'{uuids[2]}'))",
        f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId(b'{bus}'))",
        "nvmlDeviceGetHandleByUUID(b'GPU-0')",
    )
    assert found == [2, 2, "NotFound"]
    assert ask(scenario.host(1), "nvmlDeviceGetUUID(gpu(2))")[0] not in uuids


def test_identity_reads_like_that_of_a_real_board(ask: Ask) -> None:
    answers = ask(
        Scenario().gpus(1, "A100"),
        "nvmlSystemGetDriverVersion()",
        "nvmlSystemGetCudaDriverVersion_v2()",
        "nvmlDeviceGetName(gpu(0))",
        "nvmlDeviceGetArchitecture(gpu(0)) == NVML_DEVICE_ARCH_AMPERE",
        "nvmlDeviceGetBrand(gpu(0)) == NVML_BRAND_NVIDIA",
        "nvmlDeviceGetCudaComputeCapability(gpu(0))",
        "nvmlDeviceGetPowerManagementLimitConstraints(gpu(0))",
        "nvmlDeviceGetMaxClockInfo(gpu(0), NVML_CLOCK_SM)",
        "nvmlDeviceGetCurrPcieLinkGeneration(gpu(0))",
        "nvmlDeviceGetTemperatureThreshold(gpu(0), NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)",
    )
    assert answers == ["580.95.05", 13000, "NVIDIA A100-SXM4-80GB", True, True, [8, 0], [100_000, 400_000], 1410, 4, 92]


# Values over time


def test_curves_give_the_value_of_the_moment(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "RTX4090").curve("temperature", 0, steps((0, 40), (100, 90)))
    scenario.curve("sm_clock", 0, ramp(1000, 2000, 1000)).curve("util", 0, square(0, 80, 400)).curve(
        "fan", 0, constant(33)
    )
    questions = (
        "nvmlDeviceGetTemperature(gpu(0), 0)",
        "nvmlDeviceGetTemperatureV(gpu(0), 0)",
        "nvmlDeviceGetClockInfo(gpu(0), NVML_CLOCK_SM) // 10",
        "nvmlDeviceGetUtilizationRates(gpu(0)).gpu",
        "nvmlDeviceGetFanSpeed_v2(gpu(0), 1)",
        "nvmlDeviceGetPerformanceState(gpu(0))",
        "nvmlDeviceGetCurrentClocksEventReasons(gpu(0)) == nvmlClocksEventReasonGpuIdle",
    )
    assert ask(scenario, *questions, at=50) == [40, 40, 105, 0, 33, 8, True]
    assert ask(scenario, *questions, at=250) == [90, 90, 125, 80, 33, 2, False]


def test_a_pulse_is_high_at_the_beginning_of_each_period(ask: Ask) -> None:
    scenario = Scenario().gpus(2, "L4").curve("temperature", 0, pulse(40, 90, 100, 20))
    scenario.curve("temperature", 1, pulse(40, 90, 100, 20, 50))
    readings = [f"nvmlDeviceGetTemperature(gpu({i}), 0)" for i in range(2)]
    assert [ask(scenario, *readings, at=at) for at in (110, 130, 160)] == [[90, 40], [40, 40], [40, 90]]


def test_used_memory_is_the_given_curve_or_that_of_the_processes(ask: Ask) -> None:
    scenario = Scenario().gpus(3, "L4").curve("memory", 0, constant(1000))
    scenario.process(1, 42, 300).process(1, 43, 500).process(2, 44, None)
    used = [f"nvmlDeviceGetMemoryInfo(gpu({i}), nvmlMemory_v2).used >> 20" for i in range(3)]
    assert ask(scenario, *used) == [1000, 800, 16123]


def test_only_the_newer_memory_call_separates_reserved_from_used(ask: Ask) -> None:
    old, new, wrong = ask(
        Scenario().gpus(1, "L4"),
        "nvmlDeviceGetMemoryInfo(gpu(0))",
        "nvmlDeviceGetMemoryInfo(gpu(0), nvmlMemory_v2)",
        "nvmlDeviceGetMemoryInfo(gpu(0), nvmlMemory_v2 - 8)",
    )
    assert old["used"] == new["used"] + new["reserved"]
    assert new["total"] == new["used"] + new["free"] + new["reserved"]
    assert wrong == "ArgumentVersionMismatch"


def test_clock_reasons_ecc_errors_and_remapped_rows_come_from_the_scenario(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "H100").reasons(0, 0x4, 5, 6).reasons(0, 0x20, 5).ecc(0, "uncorrected", 3, 5)
    scenario.remapped(0, correctable=1, uncorrectable=2, pending=True)
    questions = (
        "nvmlDeviceGetCurrentClocksThrottleReasons(gpu(0))",
        "nvmlDeviceGetTotalEccErrors(gpu(0), NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC)",
        "[field(0, NVML_FI_DEV_ECC_DBE_VOL_TOTAL), field(0, NVML_FI_DEV_ECC_SBE_VOL_TOTAL)]",
        "nvmlDeviceGetRemappedRows(gpu(0))",
        "field(0, NVML_FI_DEV_REMAPPED_UNC)",
    )
    assert ask(scenario, *questions, at=1) == [0, 0, [0, 0], [1, 2, 1, 0], 2]
    assert ask(scenario, *questions, at=5)[:3] == [0x24, 3, [3, 0]]
    assert ask(scenario, *questions, at=8)[:3] == [0x20, 3, [3, 0]]


def test_samples_are_those_after_the_last_one_seen(ask: Ask) -> None:
    (kind, first), (_, later), none = ask(
        Scenario().gpus(1, "L4"),
        "(first := nvmlDeviceGetSamples(gpu(0), NVML_GPU_UTILIZATION_SAMPLES, 0))",
        "nvmlDeviceGetSamples(gpu(0), NVML_GPU_UTILIZATION_SAMPLES, first[1][-5].timeStamp)",
        "nvmlDeviceGetSamples(gpu(0), NVML_GPU_UTILIZATION_SAMPLES, 10**17)",
        at=60,
    )
    assert kind == 1
    assert {sample["sampleValue"]["uiVal"] for sample in first} == {95}
    assert len(first) == 120
    assert 4 <= len(later) <= 6
    assert none == "NotFound"


# Power and energy


def test_the_energy_counter_is_the_exact_integral_of_power(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "H100").curve("power", 0, constant(300)).counter_update(0, 0)
    (energy, stamp), _, (later_energy, later_stamp) = ask(
        scenario, "energy_and_time()", "time.sleep(0.1)", "energy_and_time()"
    )
    assert later_energy - energy == pytest.approx(300 * (later_stamp - stamp), abs=0.002)


def test_the_energy_of_a_curve_counts_every_piece_of_it(ask: Ask) -> None:
    scenario = (
        Scenario().gpus(3, "H100").curve("power", 0, square(100, 400, 0.5, 0.1)).curve("power", 1, ramp(0, 200, 2))
    )
    scenario.curve("power", 2, steps((0, 100), (10, 400), (12, 100)))
    energy = [f"nvmlDeviceGetTotalEnergyConsumption(gpu({i})) / 1e3" for i in range(3)]
    before = ask(scenario, *energy, at=0)
    after = ask(scenario, *energy, at=100.02)
    # The counter moves every 100 ms: up to two steps of it lie between beginning and end.
    gained = [b - a for a, b in zip(before, after, strict=True)]
    assert gained == pytest.approx([25_000, 10_000, 10_600], abs=85)


def test_the_energy_counter_moves_every_100_ms(ask: Ask) -> None:
    (values,) = ask(
        Scenario().gpus(1, "H100").curve("power", 0, constant(500)),
        "[[time.sleep(0.01), nvmlDeviceGetTotalEnergyConsumption(gpu(0))][1] for _ in range(30)]",
    )
    jumps = {later - earlier for earlier, later in pairwise(values)} - {0}
    assert all(jump % 50_000 in {0, 1, 49_999} for jump in jumps)
    assert 2 <= len(set(values)) <= 5 + 3


def test_a_counter_may_be_frozen_missing_or_reset(ask: Ask) -> None:
    scenario = Scenario().gpus(3, "H100").curve("power", "*", constant(100))
    scenario.counter(0, "frozen").counter(1, "none").counter_reset(2, 50)
    energy = [f"nvmlDeviceGetTotalEnergyConsumption(gpu({i}))" for i in range(3)]
    start, _, before = ask(scenario, *energy, at=40)
    assert ask(scenario, *energy, at=60.05) == [start, MISSING, pytest.approx(1_000_000, abs=20_000)]
    assert before > 1_000_000_000
    assert ask(scenario, "field(1, 83)") == [MISSING]


def test_a_25_ms_window_sees_one_half_of_a_100_ms_square(ask: Ask) -> None:
    scenario = (
        Scenario()
        .gpus(2, "H100")
        .curve("power", 0, square(100, 400, 0.1))
        .curve("power", 1, square(100, 400, 0.1, 0.05))
    )
    readings = ("field(0, 186)", "field(1, 186)", "field(0, 185)", "nvmlDeviceGetPowerUsage(gpu(0))")
    assert ask(scenario, *readings, at=10) == [400_000, 100_000, 250_000, 250_000]


def test_a_sensor_may_tell_the_truth_or_any_mean_of_it(ask: Ask) -> None:
    scenario = Scenario().gpus(4, "L4").curve("power", "*", steps((0, 10), (100, 50)))
    scenario.sensor_instant(0).sensor_window(1, 500, 100).sensor_mean(2, 4000).sensor_error(3, -10).sensor_window(
        3, 100, 100
    )
    truth, window, mean, low = ask(
        scenario, "field(0, 186)", "field(1, 186)", "field(2, 185)", "field(3, 186)", at=101.05
    )
    assert (truth, window, low) == (50_000, 50_000, 45_000)
    assert mean in range(20_000, 22_001)  # one second of four at 50 W, and what the test itself takes


def test_power_usage_is_a_one_second_mean_where_the_board_has_one(ask: Ask) -> None:
    scenario = (
        Scenario().gpus(1, "H100").gpus(1, "A100").gpus(1, "V100").curve("power", "*", steps((0, 50), (100, 250)))
    )
    usage = ask(scenario, *(f"nvmlDeviceGetPowerUsage(gpu({i}))" for i in range(3)), at=100.45)
    assert 50_000 < usage[0] < 200_000
    assert usage[1:] == [250_000, 250_000]


def test_the_training_curve_has_the_mean_of_its_three_phases(ask: Ask) -> None:
    mean = 0.7 * 0.9 + 0.2 * 0.6 + 0.1 * 0.35
    assert ask(Scenario().gpus(1, "H100"), "field(0, 185)", at=10) == [pytest.approx(mean * 700_000, abs=1)]


def test_a_phase_sets_the_training_curve_forward(ask: Ask) -> None:
    scenario = Scenario().gpus(2, "H100").curve("power", 1, training(0.4)).sensor_instant("*")
    assert ask(scenario, "field(0, 186)", "field(1, 186)", at=1000) == [630_000, 420_000]


def test_the_true_energy_between_two_moments_is_known_to_every_process(nvml_library: Path, tmp_path: Path) -> None:
    scenario = Scenario().gpus(3, "H100").curve("power", 0, square(100, 400, 0.1)).curve("power", 1, ramp(0, 200, 2))
    scenario.curve("power", 2, pulse(100, 400, 10, 2, 3)).counter(2, "none").sensor_error("*", 50)
    environment = scenario.environment(nvml_library, tmp_path / "scenario")
    epoch = time.monotonic() - 500
    environment["PULSETRAIN_TEST_NVML_EPOCH"] = repr(epoch)
    asked = [
        f"truth(0, {epoch + 3}, {epoch + 3.05})",
        f"truth(1, {epoch + 1}, {epoch + 2})",
        f"truth(2, {epoch}, {epoch + 60})",
        f"truth(3, {epoch}, {epoch + 60})",
    ]
    square_wave, half_a_ramp, pulses, nobody = json.loads(probe(environment, expressions=asked).stdout)
    assert (square_wave, half_a_ramp, pulses) == pytest.approx((5, 150, 9600), abs=1e-4)
    assert math.isnan(nobody)


def test_processes_with_one_epoch_agree_on_the_energy(nvml_library: Path, tmp_path: Path) -> None:
    scenario = Scenario().gpus(1, "L4").curve("power", 0, constant(1000)).counter_update(0, 0)
    environment = scenario.environment(nvml_library, tmp_path / "scenario")
    environment["PULSETRAIN_TEST_NVML_EPOCH"] = str(time.monotonic() - 5)
    at_epoch = []
    for _ in range(2):
        energy, stamp = json.loads(probe(environment, expressions=["energy_and_time()"]).stdout)[0]
        at_epoch.append(stamp - energy / 1000)
    assert at_epoch[0] == pytest.approx(at_epoch[1], abs=0.005)


# Fields


def test_each_field_has_its_own_type_time_and_result(ask: Ask) -> None:
    fields, empty, now = ask(
        Scenario().gpus(1, "A100"),
        "nvmlDeviceGetFieldValues(gpu(0), [186, 185, 83, 82, 94, 188, 9999, (186, 1)])",
        "nvmlDeviceGetFieldValues(gpu(0), [])",
        "time.time() * 1e6",
    )
    assert [field["nvmlReturn"] for field in fields] == [0, 3, 0, 0, 0, 0, 3, 3]
    assert [field["valueType"] for field in fields if not field["nvmlReturn"]] == [1, 3, 1, 1, 1]
    assert [field["timestamp"] for field in fields] == pytest.approx([now] * 8, abs=1000)
    assert fields[5]["value"]["uiVal"] == 400_000
    assert empty == "InvalidArgument"


def test_nvlink_counters_are_per_link_or_for_all(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "A100").curve("nvlink_tx", 0, constant(1200))
    one, everything, beyond, links = ask(
        scenario,
        "field(0, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 3)",
        "field(0, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF)",
        "field(0, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 12)",
        "field(0, NVML_FI_DEV_NVLINK_LINK_COUNT)",
        at=100,
    )
    assert one == pytest.approx(100 * 100 * 1024, rel=0.01)
    assert everything == pytest.approx(12 * one, rel=0.01)
    assert (beyond, links) == ("InvalidArgument", 12)


# Trouble


def test_a_function_or_field_can_be_unsupported_on_one_gpu(ask: Ask) -> None:
    scenario = (
        Scenario()
        .gpus(2, "RTX4090")
        .unsupported("*", "fan")
        .unsupported(0, "nvmlDeviceGetTemperature")
        .unsupported(0, 186)
    )
    answers = ask(
        scenario,
        "nvmlDeviceGetFanSpeed(gpu(1))",
        "nvmlDeviceGetNumFans(gpu(1))",
        "nvmlDeviceGetTemperature(gpu(0), 0)",
        "nvmlDeviceGetTemperature(gpu(1), 0)",
        "field(0, 186)",
        "field(1, 186) > 0",
        "field(0, 185) > 0",
    )
    assert answers == [MISSING, MISSING, MISSING, 65, MISSING, True, True]


def test_a_function_can_fail_for_a_while(ask: Ask) -> None:
    scenario = Scenario().fail(0, "nvmlDeviceGetClockInfo", 999, 5, 6).fail(1, "nvmlDeviceGetHandleByIndex_v2", 4)
    clock = "nvmlDeviceGetClockInfo(gpu(0), NVML_CLOCK_MEM)"
    assert ask(scenario, clock, at=1) == [2619]
    assert ask(scenario, clock, "gpu(1)", at=5) == ["Unknown", "NoPermission"]
    assert ask(scenario, clock, at=7) == [2619]


def test_a_lost_gpu_leaves_the_others_and_its_old_handle_works_again(ask: Ask) -> None:
    scenario = Scenario().gpus(2, "H100").lost(1, 0.2, 0.5)
    answers = ask(
        scenario,
        "(old := gpu(1)) and (uuid := nvmlDeviceGetUUID(old).encode()) and None",
        "time.sleep(0.25)",
        "nvmlDeviceGetName(old)",
        "gpu(1)",
        "nvmlDeviceGetHandleByUUID(uuid)",
        "nvmlDeviceGetTemperature(gpu(0), 0)",
        "nvmlDeviceGetCount()",
        "time.sleep(0.3)",
        "nvmlDeviceGetTemperature(old, 0)",
    )
    assert answers[2:7] == ["GpuIsLost", "GpuIsLost", "GpuIsLost", 65, 2]
    assert answers[8] == 65


def test_a_gpu_may_be_lost_while_a_file_is_there(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "lost"
    temperature = "nvmlDeviceGetTemperature(gpu(1), 0)"
    answers = ask(
        Scenario().gpus(2, "H100").lost_while(1, file),
        temperature,
        f"open('{file}', 'w').close()",
        temperature,
        "nvmlDeviceGetTemperature(gpu(0), 0)",
        f"os.unlink('{file}')",
        temperature,
    )
    assert answers == [65, None, "GpuIsLost", 65, None, 65]


def test_a_gpu_that_needs_it_comes_back_only_with_a_new_initialization(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "H100").lost(0, 0.1, 0.2).lost_error(999).lost_needs_reinit()
    answers = ask(
        scenario,
        "(old := gpu(0)) and time.sleep(0.15)",
        "nvmlDeviceGetTemperature(old, 0)",
        "time.sleep(0.1)",
        "nvmlDeviceGetTemperature(old, 0)",
        "gpu(0)",
        "[nvmlShutdown(), nvmlInit(), nvmlDeviceGetTemperature(gpu(0), 0)][-1]",
    )
    assert answers[1::2] == ["Unknown", "Unknown", 65]
    assert answers[4] == "Unknown"


def test_every_call_about_a_gpu_takes_the_latency(ask: Ask) -> None:
    call = "seconds(nvmlDeviceGetName, gpu(0))"
    for microseconds in (0, 150, 3000):
        assert ask(Scenario().latency(microseconds), call) == [pytest.approx(microseconds / 1e6, abs=1e-8)]


@pytest.mark.parametrize("microseconds", [150, 3000], ids=["spun", "slept"])
def test_a_latency_takes_its_time(ask: Ask, microseconds: int) -> None:
    (took,) = ask(Scenario().latency(microseconds), "seconds(nvmlDeviceGetName, gpu(0))", at=None)
    assert took >= microseconds / 1e6


def test_pcie_throughput_blocks_and_nothing_else_does(ask: Ask) -> None:
    throughput, blocked, other = ask(
        Scenario().pcie_latency(40).curve("pcie_rx", 0, constant(500)),
        "nvmlDeviceGetPcieThroughput(gpu(0), NVML_PCIE_UTIL_RX_BYTES)",
        "seconds(nvmlDeviceGetPcieThroughput, gpu(0), NVML_PCIE_UTIL_TX_BYTES)",
        "seconds(nvmlDeviceGetTemperature, gpu(0), 0)",
    )
    assert throughput == 500_000
    assert (blocked, other) == (pytest.approx(0.04), 0)


def test_a_slow_call_does_not_hold_up_other_threads(ask: Ask) -> None:
    """If it did, the others would be answered after it, in an hour."""
    *_, still_slow = ask(
        Scenario().slow(0, "nvmlDeviceGetTemperature", 3_600_000),
        "(threads := background('nvmlDeviceGetTemperature(gpu(0), 0)')) and None",
        "[time.sleep(0.01) for _ in iter(lambda: calls('nvmlDeviceGetTemperature'), 1)] and None",
        "nvmlDeviceGetTemperature(gpu(1), 0)",
        "nvmlDeviceGetName(gpu(0))",
        "threads[0].is_alive()",
        at=None,
    )
    assert still_slow


def test_many_threads_may_call_while_another_restarts_the_library(ask: Ask) -> None:
    *_, temperature = ask(
        Scenario().gpus(2, "H100").process(0, 42, 100),
        "(handle := gpu(0)) and None",
        "(threads := background('nvmlDeviceGetFieldValues(handle, [186, 185, 83])', threads=4, times=300)) and None",
        "[(nvmlShutdown(), nvmlInit()) for _ in range(100)] and None",
        "[thread.join() for thread in threads]",
        "nvmlDeviceGetTemperature(handle, 0)",
    )
    assert temperature == 65


# Processes


def test_processes_are_listed_by_kind_with_their_memory(ask: Ask) -> None:
    scenario = (
        Scenario().gpus(1, "L4").process(0, "self", 300).process(0, 43, None, sm_percent=5).process(0, 44, 9, end=50)
    )
    scenario.process(0, 45, 70, kind="graphics").process(0, 46, 10, kind="mps")
    compute, graphics, mps, pid = ask(
        scenario,
        "nvmlDeviceGetComputeRunningProcesses(gpu(0))",
        "nvmlDeviceGetGraphicsRunningProcesses(gpu(0))",
        "nvmlDeviceGetMPSComputeRunningProcesses(gpu(0))",
        "os.getpid()",
        at=60,
    )
    assert [(p["pid"], p["usedGpuMemory"]) for p in compute] == [(pid, 300 << 20), (43, None)]
    assert [p["pid"] for p in (*graphics, *mps)] == [45, 46]
    assert graphics[0]["gpuInstanceId"] == 0xFFFFFFFF


def test_a_process_list_that_grows_is_refused_once_more(ask: Ask) -> None:
    processes = "len(nvmlDeviceGetComputeRunningProcesses(gpu(0)))"
    assert ask(Scenario().process(0, 42, 1).race(0), processes, processes) == ["InsufficientSize", 1]


def test_process_utilization_is_new_to_the_caller_or_not_found(ask: Ask) -> None:
    scenario = Scenario().gpus(2, "L4").process(0, 42, 1, sm_percent=35).process(1, 43, 1)
    samples, again, idle, now = ask(
        scenario,
        "(seen := nvmlDeviceGetProcessUtilization(gpu(0), 0))",
        "nvmlDeviceGetProcessUtilization(gpu(0), seen[0].timeStamp + 10**6)",
        "nvmlDeviceGetProcessUtilization(gpu(1), 0)",
        "time.time() * 1e6",
    )
    assert [(s["pid"], s["smUtil"]) for s in samples] == [(42, 35)]
    assert samples[0]["timeStamp"] == pytest.approx(now, abs=1000)
    assert (again, idle) == ("NotFound", "NotFound")


def test_process_utilization_may_be_old_or_absurd(ask: Ask) -> None:
    scenario = Scenario().process("*", 42, 1, sm_percent=35).process_util(0, "stale").process_util(1, "over100")
    stale, absurd, now = ask(
        scenario,
        "nvmlDeviceGetProcessUtilization(gpu(0), int(time.time() * 1e6) - 10**6)",
        "nvmlDeviceGetProcessUtilization(gpu(1), int(time.time() * 1e6) - 10**6)",
        "time.time() * 1e6",
    )
    assert stale[0]["timeStamp"] < now - 5e6
    assert absurd[0]["smUtil"] > 100


# MIG


def test_mig_devices_share_the_memory_of_their_gpu_instance(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "A100").mig(0, (2, 1), (2,)).process("0.0", 42, 100).process("0.1", 43, 50)
    names, instances, memory, used, processes, everything = ask(
        scenario,
        "[nvmlDeviceGetName(mig(0, k)) for k in range(3)]",
        "[[get(mig(0, k)) for get in (nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId)] for k in range(3)]",
        "[nvmlDeviceGetAttributes(mig(0, k)).memorySizeMB for k in range(3)]",
        "[nvmlDeviceGetMemoryInfo(mig(0, k), nvmlMemory_v2).used >> 20 for k in range(3)]",
        "[p.pid for p in nvmlDeviceGetComputeRunningProcesses(mig(0, 1))]",
        "[(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in nvmlDeviceGetComputeRunningProcesses(gpu(0))]",
    )
    assert [name.removeprefix("NVIDIA A100-SXM4-80GB MIG ") for name in names] == [
        "2c.3g.40gb",
        "1c.3g.40gb",
        "2g.20gb",
    ]
    assert instances == [[1, 0], [1, 1], [2, 0]]
    assert memory == [40960, 40960, 20480]
    assert used == [150, 150, 0]
    assert processes == [43]
    assert everything == [[42, 1, 0], [43, 1, 1]]


def test_mig_hides_the_load_of_the_gpu_and_of_its_parts(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "H100").mig(0, (3,), (4,)).process("0.0", 42, 100, sm_percent=50)
    for device in ("gpu(0)", "mig(0, 1)"):
        load = ask(
            scenario,
            f"nvmlDeviceGetUtilizationRates({device})",
            f"nvmlDeviceGetProcessUtilization({device}, 0)",
            f"nvmlDeviceGetSamples({device}, NVML_GPU_UTILIZATION_SAMPLES, 0)",
            f"nvmlDeviceGetEncoderUtilization({device})",
        )
        assert load == [MISSING] * 4


def test_mig_devices_are_found_from_their_gpu_and_back(ask: Ask) -> None:
    answers = ask(
        Scenario().gpus(2, "H100").mig(1, (3,)),
        "[nvmlDeviceGetMigMode(gpu(0))[0], nvmlDeviceGetMigMode(gpu(1))[0]]",
        "nvmlDeviceGetName(mig(1, 0))",
        "nvmlDeviceGetMaxMigDeviceCount(gpu(1))",
        "mig(1, 1)",
        "[nvmlDeviceIsMigDeviceHandle(gpu(1)), nvmlDeviceIsMigDeviceHandle(mig(1, 0))]",
        "nvmlDeviceGetIndex(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig(1, 0)))",
        "nvmlDeviceGetGpuInstanceId(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(mig(1, 0)).encode()))",
        "nvmlDeviceGetGpuInstanceId(gpu(1))",
    )
    assert answers == [[0, 1], "NVIDIA H100 80GB HBM3 MIG 3g.40gb", 7, "NotFound", [0, 1], 1, 1, "InvalidArgument"]


# GPM


def test_gpm_measures_between_two_samples(ask: Ask) -> None:
    scenario = Scenario().gpus(1, "H100").curve("tensor", 0, square(20, 60, 0.01)).curve("nvlink_rx", 0, constant(777))
    scenario.mig(0, (3,))
    metrics = "[NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, NVML_GPM_METRIC_NVDEC_0_UTIL]"
    whole, part, nowhere = ask(
        scenario,
        f"gpm(lambda s: nvmlGpmSampleGet(gpu(0), s), 0.2, {metrics})",
        "gpm(lambda s: nvmlGpmMigSampleGet(gpu(0), 1, s), 0.1, [NVML_GPM_METRIC_GRAPHICS_UTIL])",
        "nvmlGpmMigSampleGet(gpu(0), 5, nvmlGpmSampleAlloc())",
    )
    assert [result for result, _ in whole] == [0, 0, 3]
    assert [value for _, value in whole[:2]] == pytest.approx([40, 777], rel=0.05)
    assert part == [[0, pytest.approx(95)]]
    assert nowhere == "InvalidArgument"


def test_gpm_is_there_on_hopper_and_newer_unless_taken_away(ask: Ask) -> None:
    scenario = Scenario().gpus(2, "H100").gpus(1, "A100").gpm(1, supported=False)
    supported = [f"nvmlGpmQueryDeviceSupport(gpu({i})).isSupportedDevice" for i in range(3)]
    assert ask(scenario, *supported, "nvmlGpmSampleGet(gpu(2), nvmlGpmSampleAlloc())") == [1, 0, 0, MISSING]


# Events


def test_an_xid_is_delivered_once_at_its_time(ask: Ask) -> None:
    scenario = Scenario().xid(0, 48, 5).xid(1, 79, 10.2)
    _, waited, xid, told_after, nothing_more, _ = ask(
        scenario,
        "(events := watch(0, 1)) and (begin := time.monotonic()) and None",
        "seconds(answer, 'next_xid(events, 20)')",
        "next_xid(events, 5000)",
        "time.monotonic() - begin",
        "next_xid(events, 20)",
        "nvmlEventSetFree(events)",
        at=10,
    )
    assert (xid, waited, told_after) == (79, pytest.approx(0.02), pytest.approx(0.2))
    assert nothing_more == "Timeout"


def test_an_event_names_its_gpu_and_kind(ask: Ask) -> None:
    event, index = ask(
        Scenario().xid(1, 63, 0.1),
        "(event := nvmlEventSetWait(watch(0, 1), 5000)) and [event.eventType, event.eventData, event.gpuInstanceId]",
        "nvmlDeviceGetIndex(event.device)",
    )
    assert (event, index) == ([8, 63, 0xFFFFFFFF], 1)


def test_a_lost_gpu_ends_every_wait_for_events(ask: Ask) -> None:
    scenario = Scenario().lost(1, 0.2).xid(1, 79, 0.2)
    wait = "next_xid(events, 5000)"
    _, xid, lost, took = ask(scenario, "(events := watch(0, 1)) and None", wait, wait, f"seconds(answer, '{wait}')")
    assert (xid, lost, took) == (79, "GpuIsLost", 0)


# For benchmarks


def test_calls_are_counted_by_function(ask: Ask) -> None:
    answers = ask(
        None,
        "calls()",
        "[nvmlDeviceGetTemperature(gpu(0), 0) for _ in range(5)] and calls('nvmlDeviceGetTemperature')",
        "calls('nvmlDeviceGetHandleByIndex_v2')",
        "calls()",
    )
    assert answers == [1, 5, 5, 11]


def test_counting_a_function_that_does_not_exist_ends_the_process(nvml_library: Path) -> None:
    result = probe({"LD_LIBRARY_PATH": str(nvml_library)}, expressions=["calls('nvmlDeviceGetTemprature')"])
    assert result.returncode < 0
    assert "nvmlDeviceGetTemprature" in result.stderr


def test_the_loop_in_c_asks_for_what_is_unsupported_only_once(ask: Ask) -> None:
    (took, seconds), fans, fields, temperatures = ask(
        Scenario().gpus(1, "H100").gpus(1, "RTX4090"),
        "[begin := time.monotonic(), loop(1000), time.monotonic() - begin][1:]",
        "calls('nvmlDeviceGetFanSpeed')",
        "calls('nvmlDeviceGetFieldValues')",
        "calls('nvmlDeviceGetTemperature')",
        at=None,
    )
    assert 0 < took <= seconds
    assert (fans, fields, temperatures) == (1 + 1001, 2 * 1001, 2 * 1001)


@pytest.mark.skipif(importlib.util.find_spec("nvitop") is None, reason="nvitop is not installed")
def test_nvitop_reads_every_kind_of_device(nvml_library: Path, tmp_path: Path) -> None:
    scenario = (
        Scenario().gpus(1, "H100").gpus(1, "GB10").gpus(1, "A100").mig(2, (2, 1)).process(0, "self", 300, sm_percent=9)
    )
    script = (
        "from nvitop import Device\n"
        "devices = Device.all()\n"
        "for device in [*devices, *devices[2].mig_devices()]: print(device.as_snapshot().name, len(device.processes()))"
    )
    environment = os.environ | scenario.environment(nvml_library, tmp_path / "scenario")
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.stdout.splitlines() == [
        "NVIDIA H100 80GB HBM3 1",
        "NVIDIA GB10 0",
        "NVIDIA A100-SXM4-80GB 0",
        "NVIDIA A100-SXM4-80GB MIG 2c.3g.40gb 0",
        "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb 0",
    ]
    assert "FunctionNotFound" not in result.stderr

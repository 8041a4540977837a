"""NVIDIA GPUs as our sources see them, through the real nvidia-ml-py and a simulated NVML.

Each test runs a snippet in a process of its own, because a library stays loaded; nvidia_probe.py has its vocabulary.
"""

import json
import subprocess
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.nvml.scenario import Scenario, constant, square, steps

from pulsetrain.catalog import CORE_GPU_FIELDS

Nvidia = Callable[..., Any]
Pulsetrain = Callable[..., subprocess.CompletedProcess[str]]

MIB = 2**20
IN_OWN_PID_NAMESPACE = str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]"


# What each board has

EVERY_BOARD = {
    "up": 1,
    "utilization_percent": 87,
    "memory_controller_ratio": 0.31,
    "memory_used_mb": 10240.0,
    "temperature_celsius": 61,
    "power_draw_watts": 50.5,
    "power_instant_watts": 50.5,
    "clock_sm_hertz": 1200e6,
    "clock_memory_hertz": 900e6,
    "throttle_reasons": ["sw_power_cap"],
    "performance_state": 0,
    "compute_mode": 0,
    "encoder_ratio": 0.12,
    "decoder_ratio": 0.07,
    "xid_errors": 0,
    "pcie_width": 16,
    "pcie_max_width": 16,
    "pcie_replays": 0,
    "pcie_sent_bytes_per_second": 1.2e9,
    "pcie_received_bytes_per_second": 3.4e9,
}
POWER_AVERAGE = {"power_average_watts": 50.5}
ENERGY = {"energy_joules": 1_005_050.0}
"""The counter stood at 1 MJ when the scenario began, and 50.5 W flowed for 100 s until its last update."""
MEMORY_TEMPERATURE = {"memory_temperature_celsius": 74.0}
DATACENTER = {
    "ecc_corrected_errors": 7,
    "ecc_uncorrected_errors": 1,
    "ecc_volatile_corrected_errors": 5,
    "ecc_volatile_uncorrected_errors": 1,
    "recovery_action": 0,
}
REMAPPED_ROWS = {
    "remapped_rows_corrected": 1,
    "remapped_rows_uncorrected": 2,
    "remapped_rows_pending": 1,
    "remapped_rows_failed": 0,
}
NVLINK = {"nvlink_sent_bytes": 100_000 * MIB, "nvlink_received_bytes": 200_000 * MIB}
GPM = {"sm_active_ratio": 0.7395, "sm_occupancy_ratio": 0.435, "tensor_active_ratio": 0.33, "dram_active_ratio": 0.31}


def memory(total_mb: float, free_mb: float, percent: float) -> dict[str, float]:
    return {"memory_total_mb": total_mb, "memory_free_mb": free_mb, "memory_percent": percent}


def limits(
    watts: float, max_watts: float, sm_mhz: float, memory_mhz: float, pcie: int, *, video_mhz: float
) -> dict[str, float]:
    """With the video clock, which the simulated boards keep in proportion to that of the multiprocessors."""
    return {
        "clock_video_hertz": video_mhz * 1e6,
        "power_limit_watts": watts,
        "power_limit_max_watts": max_watts,
        "clock_sm_max_hertz": sm_mhz * 1e6,
        "clock_memory_max_hertz": memory_mhz * 1e6,
        "pcie_generation": pcie,
        "pcie_max_generation": pcie,
    }


BOARDS: dict[str, dict[str, object]] = {
    "NVIDIA H100 80GB HBM3": EVERY_BOARD
    | memory(81559, 70768, 12.56)
    | limits(700, 700, 1980, 2619, 5, video_mhz=936)
    | POWER_AVERAGE
    | ENERGY
    | MEMORY_TEMPERATURE
    | DATACENTER
    | REMAPPED_ROWS
    | NVLINK
    | GPM
    | {"fabric_state": 3},
    "NVIDIA A100-SXM4-80GB": EVERY_BOARD
    | memory(81920, 71064, 12.5)
    | limits(400, 400, 1410, 1593, 4, video_mhz=1097)
    | ENERGY
    | MEMORY_TEMPERATURE
    | DATACENTER
    | REMAPPED_ROWS
    | NVLINK,
    "NVIDIA L4": EVERY_BOARD
    | memory(23034, 12315, 44.46)
    | limits(72, 72, 2040, 6251, 4, video_mhz=1041)
    | POWER_AVERAGE
    | ENERGY
    | DATACENTER
    | REMAPPED_ROWS,
    "NVIDIA GeForce RTX 4090": EVERY_BOARD
    | memory(24564, 13978, 41.69)
    | limits(450, 600, 3105, 10501, 4, video_mhz=933)
    | POWER_AVERAGE
    | ENERGY
    | {"fan_speed_percent": 42, "performance_state": 2},
    "Tesla V100-SXM2-16GB": EVERY_BOARD
    | memory(16384, 5919, 62.5)
    | limits(300, 300, 1530, 877, 3, video_mhz=1076)
    | ENERGY
    | MEMORY_TEMPERATURE
    | DATACENTER
    | NVLINK,
    "Tesla P100-PCIE-16GB": EVERY_BOARD
    | memory(16384, 6040, 62.5)
    | limits(250, 250, 1328, 715, 3, video_mhz=1074)
    | MEMORY_TEMPERATURE
    | DATACENTER,
}
"""All that each board tells, on the machine below. What a board does not have is not in its line."""


def one_of_each() -> Scenario:
    scenario = Scenario().gpus(1, "H100").gpus(1, "A100").gpus(1, "L4")
    scenario.gpus(1, "RTX4090").gpus(1, "V100").gpus(1, "P100")
    scenario.curve("power", "*", constant(50.5)).counter_update("*", 100_000)
    scenario.curve("util", "*", constant(87)).curve("memory_util", "*", constant(31))
    scenario.curve("tensor", "*", constant(33)).curve("encoder", "*", constant(12)).curve("decoder", "*", constant(7))
    scenario.curve("temperature", "*", constant(61)).curve("memory_temperature", "*", constant(74))
    scenario.curve("memory", "*", constant(10240)).curve("fan", "*", constant(42))
    scenario.curve("sm_clock", "*", constant(1200)).curve("mem_clock", "*", constant(900))
    scenario.curve("pcie_tx", "*", constant(1200)).curve("pcie_rx", "*", constant(3400))
    scenario.curve("nvlink_tx", "*", steps((0, 1000), (100, 0))).curve("nvlink_rx", "*", steps((0, 2000), (100, 0)))
    scenario.ecc("*", "corrected", 5).ecc("*", "corrected", 2, -1).ecc("*", "uncorrected", 1)
    scenario.remapped("*", correctable=1, uncorrectable=2, pending=True)
    return scenario.reasons("*", 0x4)


def test_every_board_reports_all_it_has_in_our_units_and_nothing_else(nvidia: Nvidia) -> None:
    boards = nvidia(
        one_of_each(),
        """
        sources = opened()  # but for energy between the moves of a counter, and from power
        answer = merged({name: sources[name] for name in sources if name not in ("nvidia_edges", "nvidia_power")})
        """,
        at=150,
    )
    assert [board.pop("gpu_index") for board in boards] == [0, 1, 2, 3, 4, 5]
    assert len({board.pop("uuid") for board in boards}) == 6
    addresses = [board.pop("pci_bus_ids") for board in boards]
    assert addresses == [{f"00000000:{bus}:00.0": 1} for bus in ("04", "07", "0A", "0D", "10", "13")]
    assert {board.pop("name"): board for board in boards} == BOARDS


def test_a_snapshot_as_json_has_every_core_field_and_null_for_what_a_board_lacks(pulsetrain: Pulsetrain) -> None:
    result = pulsetrain(one_of_each().process(0, "self", 300), "sample", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    snapshot = json.loads(result.stdout)
    for gpu in snapshot["gpus"]:
        assert {"gpu_index", "uuid", "name", *CORE_GPU_FIELDS} <= set(gpu)
    assert [gpu["fan_speed_percent"] for gpu in snapshot["gpus"]] == [None, None, None, 42, None, None]
    assert all(gpu[field] is not None for gpu in snapshot["gpus"] for field in CORE_GPU_FIELDS[:-1])
    assert [process["gpu_memory_mb"] for process in snapshot["processes"]] == [300.0]
    assert snapshot["gpus"][0]["sm_active_ratio"] == 0.7395
    assert snapshot["host"]["source_up"]["nvidia"] == 1


def test_a_board_without_memory_of_its_own_shows_that_of_the_host_and_says_so(nvidia: Nvidia) -> None:
    told, later = nvidia(Scenario().gpus(1, "GB10"), "s = opened()['nvidia']; answer = [read(s), read(s)]")
    host_mb = psutil.virtual_memory().total / MIB
    assert told["lines"][0]["memory_total_mb"] == pytest.approx(host_mb)
    assert 0 < told["lines"][0]["memory_used_mb"] < host_mb
    assert [event["kind"] for event in told["events"]] == ["shared_memory"]
    assert "NVIDIA GB10) shares the host's memory" in told["events"][0]["message"]
    assert later["events"] == []


# Power and energy


def square_wave(scenario: Scenario) -> Scenario:
    """Half the last 1000 s at 100 W, half at 400, when read at second 1500."""
    return scenario.curve("power", "*", square(100, 400, 2000)).sensor_mean("*", 1_000_000)


READ_POWER = """
    source = opened()["nvidia"]
    lines(source)
    answer = [{name: value for name, value in line.items() if name.startswith("power_")} for line in lines(source)]
"""


def about(watts: float) -> Any:
    return pytest.approx(watts, abs=20)


def test_instant_and_average_power_are_distinguished_and_the_instant_one_is_the_power_draw(nvidia: Nvidia) -> None:
    h100, a100 = nvidia(square_wave(Scenario().gpus(1, "H100").gpus(1, "A100")), READ_POWER, at=1500)
    assert h100 == {"power_instant_watts": 400, "power_average_watts": about(250), "power_draw_watts": 400}
    assert a100 == {"power_instant_watts": 400, "power_draw_watts": 400}


@pytest.mark.parametrize("missing", [186, "nvmlDeviceGetFieldValues"])
def test_the_older_power_call_lands_in_the_field_that_it_means_on_that_board(
    nvidia: Nvidia, missing: int | str
) -> None:
    scenario = square_wave(Scenario().gpus(1, "V100").gpus(1, "A100").gpus(1, "RTX4090"))
    v100, a100, rtx = nvidia(scenario.unsupported("*", missing).unsupported("*", 185), READ_POWER, at=1500)
    assert v100 == a100 == {"power_instant_watts": 400, "power_draw_watts": 400}
    assert rtx == {"power_average_watts": about(250), "power_draw_watts": about(250)}


def test_average_power_is_the_power_draw_where_there_is_no_instant_one(nvidia: Nvidia) -> None:
    (l4,) = nvidia(square_wave(Scenario().gpus(1, "L4")).unsupported(0, 186), READ_POWER, at=1500)
    assert l4 == {"power_average_watts": about(250), "power_draw_watts": about(250)}


def test_a_board_that_reports_no_power_at_all_has_none(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(1, "V100").unsupported(0, "nvmlDeviceGetPowerUsage")
    assert nvidia(scenario, READ_POWER) == [{}]


def test_the_energy_counter_rises_by_the_integral_of_power(nvidia: Nvidia) -> None:
    power = steps((0, 100), (1000, 300), (1000.5, 0))
    scenario = Scenario().gpus(1, "H100").counter_update(0, 0).curve("power", 0, power)
    first, last = nvidia(
        scenario,
        """
        source = opened()["nvidia"]
        answer = [lines(source)[0]["energy_joules"]]
        until(1000.5)
        answer.append(lines(source)[0]["energy_joules"])
        """,
        at=999.8,
    )
    assert first == pytest.approx(1_099_980, abs=0.001)
    assert last == 1_100_150.0


# What is asked, and how often


def test_a_board_is_asked_once_for_what_it_lacks_while_others_are_asked_on(nvidia: Nvidia) -> None:
    counts = nvidia(
        Scenario().gpus(1, "RTX4090").gpus(1, "V100").unsupported(1, "nvmlDeviceGetPowerUsage").gpus(1, "A100"),
        """
        sources = opened()
        for _ in range(5):
            lines(sources["nvidia"])
            lines(sources["nvidia_health"])
        names = "nvmlDeviceGetFanSpeed", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetRemappedRows"
        answer = [calls(name) for name in (*names, "nvmlDeviceGetTemperature")]
        """,
    )
    assert counts == [5 + 2, 1, 5 + 2, 15]


def test_a_field_that_a_board_lacks_is_asked_once_while_others_are_asked_on(nvidia: Nvidia) -> None:
    """The field appears later on the first board: who does not see it there did not ask again."""
    first, later = nvidia(
        Scenario().gpus(2, "H100").fail(0, 186, 3, 0, 1.5),
        """
        source = opened()["nvidia"]
        answer = [lines(source)]
        until(1.5)
        answer.append(lines(source))
        """,
    )
    for board, other in (first, later):
        assert "power_instant_watts" not in board
        assert board["power_draw_watts"] == board["power_average_watts"]
        assert other["power_instant_watts"] > 0


def test_a_board_without_any_of_the_fields_is_not_asked_for_them_again(nvidia: Nvidia) -> None:
    count, power = nvidia(
        Scenario().gpus(1, "T4").counter(0, "none"),
        """
        source = opened()["nvidia"]
        powers = [lines(source)[0]["power_instant_watts"] for _ in range(3)]
        answer = [calls("nvmlDeviceGetFieldValues"), powers[-1]]
        """,
    )
    assert count == 1
    assert power > 0


def test_a_tick_never_asks_for_the_pcie_throughput_that_blocks(nvidia: Nvidia) -> None:
    counts = nvidia(
        Scenario().gpus(2, "H100").process(0, "self", 100),
        """
        sources = opened()
        answer = []
        for names in [n for n in sources if n != "nvidia_links"], ["nvidia_links"]:
            for name in names:
                lines(sources[name])
            answer.append(calls("nvmlDeviceGetPcieThroughput"))
        """,
    )
    assert counts == [0, 4]


# Trouble with a call or with the driver


def test_one_call_that_fails_costs_its_own_value_alone(nvidia: Nvidia) -> None:
    first, later = nvidia(
        Scenario().gpus(1, "H100").fail(0, "nvmlDeviceGetTemperature", 999, 0, 1.5).fail(0, 83, 999, 0, 1.5),
        """
        source = opened()["nvidia"]
        answer = [read(source)]
        until(1.5)
        answer.append(read(source))
        """,
    )
    assert first["events"] == later["events"] == []
    (before,), (after,) = first["lines"], later["lines"]
    assert set(after) - set(before) == {"temperature_celsius", "energy_joules"}
    assert before["up"] == after["up"] == 1


XID = Scenario().gpus(2, "H100").xid(1, 79, 1.5).xid(1, 31, 1.6).xid(0, 12345, 1.7)


def test_xid_errors_are_reported_once_with_their_meaning_and_counted(nvidia: Nvidia) -> None:
    before, after, later = nvidia(
        XID,
        """
        source = opened()["nvidia"]
        answer = [read(source)]
        until(1.8)
        answer += [read(source), read(source)]
        """,
    )
    assert before["events"] == later["events"] == []
    uuids = [line["uuid"] for line in before["lines"]]
    assert [(event["xid"], event["gpu_index"], event["uuid"]) for event in after["events"]] == [
        (79, 1, uuids[1]),
        (31, 1, uuids[1]),
        (12345, 0, uuids[0]),
    ]
    assert after["events"][0] == after["events"][0] | {
        "kind": "xid",
        "message": "GPU 1 (NVIDIA H100 80GB HBM3): XID 79, GPU has fallen off the bus: "
        "reboot the machine; check the board's power, seating and cooling",
    }
    assert [line["xid_code_errors"] for line in later["lines"]] == [{"other": 1}, {"79": 1, "31": 1}]
    counts = [[line["xid_errors"] for line in reading["lines"]] for reading in (before, after, later)]
    assert counts == [[0, 0], [1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (18, "NVML would not start: the driver and its library differ in version.", "Reboot, or reload"),
        (9, "NVML would not start: the NVIDIA driver is not loaded.", "modprobe nvidia"),
        (4, "NVML would not start: no permission to talk to the driver.", "/dev/nvidiactl"),
        (999, "NVML would not start: Unknown Error.", "dmesg"),
    ],
)
def test_an_nvml_that_does_not_start_says_why_and_what_to_do(
    nvidia: Nvidia, code: int, message: str, hint: str
) -> None:
    refusal = nvidia(Scenario().init_error(code), "answer = refusal()")
    assert (refusal["error"], refusal["message"]) == ("Unavailable", message)
    assert refusal["still"] == "Host and training metrics continue."
    assert hint in refusal["hint"]


def test_an_nvml_that_cannot_count_its_gpus_does_not_start_either(nvidia: Nvidia) -> None:
    refusal = nvidia(Scenario().fail("*", "nvmlDeviceGetCount_v2", 999), "answer = refusal()")
    assert (refusal["error"], refusal["message"]) == ("Unavailable", "NVML would not start: Unknown Error.")


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="the library of a real driver is here")
def test_a_machine_without_the_library_says_so(nvidia: Nvidia, tmp_path: Path) -> None:
    refusal = nvidia(Scenario(), "answer = refusal()", at=None, LD_LIBRARY_PATH=str(tmp_path))
    assert refusal["error"] == "Unavailable"
    assert refusal["message"] == "NVML would not start: libnvidia-ml.so.1 was not found."
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in refusal["hint"]


def test_a_machine_without_gpus_says_so(nvidia: Nvidia) -> None:
    refusal = nvidia(Scenario().gpus(0, "L4"), "answer = refusal()")
    assert (refusal["error"], refusal["message"]) == ("Unavailable", "NVML works but sees no GPU.")
    assert "NVIDIA_VISIBLE_DEVICES" in refusal["hint"]


def test_a_forked_child_reads_right_values_and_the_parent_continues(nvidia: Nvidia) -> None:
    parent, child, parent_again = nvidia(
        Scenario().gpus(2, "H100").curve("temperature", 1, constant(48)).process(1, 4_000_001, 700),
        """
        def look():
            return [[line["temperature_celsius"] for line in lines(sources["nvidia"])],
                    [line["gpu_memory_mb"] for line in lines(sources["nvidia_processes"])],
                    events(sources["nvidia"])]

        sources = opened()
        answer = [look()]
        receive, send = os.pipe()
        if os.fork() == 0:
            os.write(send, json.dumps(look()).encode())
            os._exit(0)
        os.wait()
        answer += [json.loads(os.read(receive, 10000)), look()]
        """,
    )
    assert parent == child == parent_again == [[65, 48], [700.0], []]


# Processes


def test_processes_are_listed_with_their_memory_and_share_and_none_twice(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(2, "H100").race(0, 2)
    scenario.process(0, "self", 3000, sm_percent=35).process(0, "self", 3000, kind="graphics", sm_percent=35)
    scenario.process(0, 4_000_001, None).process(0, 4_000_002, 512, kind="graphics")
    scenario.process(0, "parent", 256, kind="mps").process(1, "parent", 700)
    me, parent, found, again = nvidia(
        scenario,
        """
        source = opened()["nvidia_processes"]
        answer = [os.getpid(), os.getppid(), lines(source), lines(source)]
        """,
        at=10,
    )
    told = [(line["gpu_index"], line["pid"], line.get("gpu_memory_mb"), line["sm_ratio"]) for line in found]
    assert told == [
        (0, me, 3000.0, 0.35),
        (0, 4_000_001, None, 0.0),
        (0, 4_000_002, 512.0, 0.0),
        (0, parent, 256.0, 0.0),
        (1, parent, 700.0, 0.0),
    ]
    assert "gpu_memory_mb" not in found[1]
    assert again == found
    assert found[0]["uuid"] != found[-1]["uuid"]


def test_the_versions_of_the_driver_and_of_cuda_are_known(nvidia: Nvidia) -> None:
    (line,) = nvidia(Scenario().gpus(1, "H100"), "answer = lines(opened()['nvidia_driver'])")
    assert (line["gpu_driver_versions"], line["cuda_versions"]) == ({"580.95.05": 1}, {"13.0": 1})


def test_a_board_that_lists_no_processes_has_no_source_that_would(nvidia: Nvidia) -> None:
    unsupported = Scenario().gpus(1, "H100").unsupported(0, "RunningProcesses")
    assert nvidia(unsupported, "answer = 'nvidia_processes' in opened()") is False
    assert nvidia(Scenario().gpus(1, "H100"), "answer = 'nvidia_processes' in opened()") is True


def test_a_process_that_we_cannot_see_is_said_to_be_so(nvidia: Nvidia) -> None:
    (line,) = nvidia(
        Scenario().gpus(1, "H100").process(0, 4_000_001, 100), "answer = lines(opened()['nvidia_processes'])"
    )
    assert line["command"] == ("outside this namespace" if IN_OWN_PID_NAMESPACE else "ended or hidden")
    assert (line["user"], line["container"], line["parent_pid"]) == (None, None, None)


@pytest.mark.skipif(IN_OWN_PID_NAMESPACE, reason="here pids are believed only of processes that hold a GPU")
def test_a_process_has_its_user_its_command_and_its_parent(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(1, "H100").process(0, "self", 100)
    (line,) = nvidia(scenario, "answer = lines(opened()['nvidia_processes'])", at=7)
    assert line["user"] == psutil.Process().username()
    assert line["command"].endswith(" nvidia_probe.py 7")
    assert line["parent_pid"] == psutil.Process().pid
    assert {"memory_bytes", "start_time_seconds"} <= line.keys()


def test_old_utilization_samples_of_a_process_count_as_none_at_all(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(1, "H100").process(0, "self", 100, sm_percent=35).process_util(0, "stale")
    (line,) = nvidia(scenario, "answer = lines(opened()['nvidia_processes'])", at=60)
    assert line["sm_ratio"] == 0.0


def test_a_process_with_an_absurd_utilization_has_none(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(1, "H100").process(0, "self", 100, sm_percent=35).process_util(0, "over100")
    (line,) = nvidia(scenario, "answer = lines(opened()['nvidia_processes'])", at=60)
    assert line["gpu_memory_mb"] == 100.0
    assert "sm_ratio" not in line


def test_a_process_that_stopped_computing_is_idle_at_the_next_reading(nvidia: Nvidia) -> None:
    """Samples seen before are not counted again."""
    scenario = Scenario().gpus(1, "H100").process(0, 4_000_001, 100, sm_percent=35, end=1.5)
    scenario.process(0, 4_000_001, 100, start=1.5)
    shares = nvidia(
        scenario,
        """
        source = opened()["nvidia_processes"]
        answer = [lines(source)[0]["sm_ratio"]]
        until(1.7)
        answer.append(lines(source)[0]["sm_ratio"])
        """,
    )
    assert shares == [0.35, 0.0]


# GPM and MIG


def test_activity_is_the_mean_between_two_readings_so_the_first_one_has_none(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(2, "H100").gpm(1, False).gpus(1, "A100")
    scenario.curve("util", "*", constant(80)).curve("tensor", "*", steps((0, 0), (1000, 100)))
    first, second, third = nvidia(
        scenario,
        """
        source = opened()["nvidia_activity"]
        answer = [lines(source)]
        until(999)
        answer.append(lines(source))
        until(1000)
        lines(source)
        until(1001)
        answer.append(lines(source))
        """,
        at=998,
    )
    assert first == []
    assert [line["gpu_index"] for line in second] == [0]
    assert second[0] == second[0] | {
        "sm_active_ratio": 0.68,
        "sm_occupancy_ratio": 0.4,
        "tensor_active_ratio": 0,
        "dram_active_ratio": 0.45,
    }
    assert third[0]["tensor_active_ratio"] == 1


MIG = (
    Scenario()
    .gpus(1, "H100")
    .gpus(1, "A100")
    .mig(0, (2, 1), (2,), (1,))
    .mig(1, (3,))
    .process("0.0", 4_000_001, 1000, sm_percent=50)
    .process("0.1", 4_000_002, 200)
    .process("0.2", 4_000_003, 500)
)


def test_mig_instances_have_memory_and_size_of_their_own_and_sums_are_right(nvidia: Nvidia) -> None:
    instances, (h100, a100), processes = nvidia(
        MIG, "sources = opened(); answer = [merged(sources, table) for table in ('mig', 'gpu', 'process')]"
    )
    places = [(line["gpu_index"], line["gpu_instance"], line["compute_instance"]) for line in instances]
    assert places == [(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 3, 0), (1, 1, 0)]
    assert [line.get("memory_used_mb") for line in instances] == [1200.0, None, 500.0, 0.0, 0.0]
    assert [line.get("memory_total_mb") for line in instances] == [40779.0, None, 20389.0, 10194.0, 40960.0]
    assert [line["multiprocessors"] for line in instances] == [32, 16, 32, 16, 40]
    assert instances[1]["name"] == "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"
    assert len({line["mig_uuid"] for line in instances}) == 5
    assert {line["uuid"] for line in instances} == {h100["uuid"], a100["uuid"]}
    used_of_h100 = sum(line.get("memory_used_mb", 0) for line in instances if line["gpu_index"] == 0)
    assert used_of_h100 == h100["memory_used_mb"] == 1700.0
    # GPM is there for the instances of a Hopper board alone; a split board has no utilization of its own.
    assert ["sm_active_ratio" in line for line in instances] == [True, True, True, True, False]
    for board in (h100, a100):
        assert not {"utilization_percent", "encoder_ratio", "sm_active_ratio"} & set(board)
        assert board["power_draw_watts"] > 0
    assert [line["gpu_memory_mb"] for line in processes] == [1000.0, 200.0, 500.0]
    assert not any("sm_ratio" in line for line in processes)


def test_boards_without_mig_have_no_source_for_it(nvidia: Nvidia) -> None:
    assert nvidia(Scenario().gpus(1, "A100"), "answer = list(opened())") == [
        "nvidia_power",
        "nvidia_edges",
        "nvidia",
        "nvidia_driver",
        "nvidia_health",
        "nvidia_links",
        "nvidia_processes",
    ]


# Which GPUs are watched

SEEN = "answer = read(opened(%s)['nvidia'])"


def uuids(nvidia: Nvidia, scenario: Scenario) -> list[str]:
    boards = nvidia(scenario, "answer = lines(opened()['nvidia'])")
    return [board["uuid"] for board in boards]


def watched(reading: dict[str, list[dict[str, Any]]]) -> list[int]:
    return [line["gpu_index"] for line in reading["lines"]]


def test_cuda_visible_devices_says_which_gpus_are_watched_by_index_uuid_or_prefix(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(4, "H100")
    names = uuids(nvidia, scenario)
    for visible, expected in {
        "3,1": [1, 3],
        names[2]: [2],
        f"{names[2][:12]},{names[0][:12]}": [0, 2],
        "1,9,2": [1],
    }.items():
        reading = nvidia(scenario, SEEN % "", CUDA_VISIBLE_DEVICES=visible)
        assert watched(reading) == expected
        (event,) = reading["events"]
        assert event["kind"] == "gpus_selected"
        assert f"CUDA_VISIBLE_DEVICES={visible}" in event["message"]


def test_where_cuda_visible_devices_leaves_no_gpu_there_is_none_to_watch(nvidia: Nvidia) -> None:
    refusal = nvidia(Scenario(), "answer = refusal()", CUDA_VISIBLE_DEVICES="")
    assert refusal["error"] == "Unavailable"
    assert refusal["message"].startswith("no GPU visible with CUDA_VISIBLE_DEVICES=")


def test_a_mig_uuid_names_the_board_that_it_is_part_of(nvidia: Nvidia) -> None:
    instances = nvidia(MIG, "answer = lines(opened()['nvidia_mig'])")
    on_second = instances[-1]["mig_uuid"]
    assert watched(nvidia(MIG, SEEN % "", CUDA_VISIBLE_DEVICES=on_second)) == [1]
    assert watched(nvidia(MIG, SEEN % f"'{on_second}'")) == [1]


def test_mixed_models_are_all_watched_unless_the_order_of_cuda_is_that_of_pci(nvidia: Nvidia) -> None:
    mixed = Scenario().gpus(1, "L4").gpus(1, "H100")
    unordered = nvidia(mixed, SEEN % "", CUDA_VISIBLE_DEVICES="0")
    assert watched(unordered) == [0, 1]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in unordered["events"][0]["message"]
    ordered = nvidia(mixed, SEEN % "", CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert watched(ordered) == [0]


def test_gpus_named_by_the_user_outdo_cuda_visible_devices_and_must_exist(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(3, "H100")
    named = nvidia(scenario, SEEN % "'2,0'", CUDA_VISIBLE_DEVICES="1")
    assert watched(named) == [0, 2]
    assert named["events"] == []
    refusal = nvidia(scenario, "answer = refusal('0,7')")
    assert refusal["error"] == "UsageError"
    assert refusal["message"].startswith("--gpus 0,7: ")
    assert "--gpus all" in refusal["hint"]


# End to end


def test_sample_reports_why_there_are_no_gpus_once_and_still_shows_the_host(pulsetrain: Pulsetrain) -> None:
    result = pulsetrain(Scenario().init_error(18), "sample")
    assert result.returncode == 0
    assert (result.stdout + result.stderr).count("the driver and its library differ in version") == 1
    assert "CPU" in result.stdout


def test_a_run_without_gpus_reports_why_once_and_records_the_host(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    result = pulsetrain(Scenario().init_error(9), "run", "--dir", str(tmp_path / "runs"), "--", "true")
    assert result.returncode == 0
    assert result.stderr.count("warning: NVML would not start: the NVIDIA driver is not loaded") == 1
    assert result.stderr.count("modprobe nvidia") == 1
    assert "none watched: NVML would not start" in result.stderr
    assert len([*(tmp_path / "runs").glob("*/*/host_metrics_*.jsonl")]) == 1
    assert not [*(tmp_path / "runs").glob("*/*/gpu_metrics_*.jsonl")]

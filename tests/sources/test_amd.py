"""AMD GPUs from sysfs."""

import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources import Source
from pulsetrain.sources.amd import Amd, AmdPower

Tree = Callable[[str], Path]
Read = Callable[[Source], list[Sample]]
Events = Callable[[Source], list[Event]]

MI300X_BUSY = "devices/pci0000:00/0000:00:01.1/0000:05:00.0"
MI300X_ASLEEP = "devices/pci0000:20/0000:20:01.1/0000:26:00.0"
LOST = {
    "up": 0,
    "utilization_percent": None,
    "memory_used_mb": None,
    "memory_total_mb": None,
    "memory_percent": None,
    "temperature_celsius": None,
    "power_draw_watts": None,
    "fan_speed_percent": None,
}


def values(samples: list[Sample]) -> list[dict[str, Value]]:
    return [sample.values for sample in samples]


def test_a_server_of_two_instincts_in_pci_order(tree: Tree, read: Read) -> None:
    busy, asleep = read(Amd(tree("mi300x-2x"), environ={}))
    assert busy.subject.labels == {
        "gpu_index": 0,
        "uuid": "AMD-a1b9ff3e6d0c4827",
        "name": "AMD Instinct MI300X OAM",
    }
    assert asleep.subject.labels["gpu_index"] == 1
    assert (asleep.subject.table, asleep.subject.key) == ("gpu", "AMD-5c70e2d8b96f1a34")
    assert busy.values == {
        "up": 1,
        "utilization_percent": 98.0,
        "memory_controller_ratio": 0.61,
        "memory_used_mb": 151040.5,
        "memory_free_mb": pytest.approx(45551.5),
        "memory_total_mb": 196592.0,
        "memory_percent": 76.83,
        "temperature_celsius": 84.0,  # of the junction: this board has no edge sensor
        "memory_temperature_celsius": 71.0,
        "power_draw_watts": 702.0,
        "power_instant_watts": 702.0,
        "power_limit_watts": 750.0,
        "power_limit_max_watts": 750.0,
        "clock_sm_hertz": 1_874_000_000,
        "clock_memory_hertz": 1_300_000_000,
        "clock_sm_max_hertz": 2_100_000_000,
        "clock_memory_max_hertz": 1_300_000_000,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_max_generation": 5,
        "pcie_max_width": 16,
    }
    assert asleep.values["utilization_percent"] == 0.0
    assert asleep.values["clock_sm_max_hertz"] == 2_100_000_000


def test_a_gaming_board_beside_an_integrated_one(tree: Tree, read: Read) -> None:
    board, integrated = read(Amd(tree("radeon-desktop"), environ={}))
    assert board.subject.labels["name"] == "AMD Radeon RX 7900 XTX"
    assert board.values["temperature_celsius"] == 62.0
    assert board.values["memory_temperature_celsius"] == 88.0
    assert board.values["fan_speed_percent"] == 40.0
    assert (board.values["power_draw_watts"], board.values["power_average_watts"]) == (311.0, 311.0)
    assert "power_instant_watts" not in board.values
    assert (board.values["power_limit_watts"], board.values["power_limit_max_watts"]) == (339.0, 390.0)
    assert integrated.subject.labels == {"gpu_index": 1, "uuid": "AMD-0000:0f:00.0", "name": "AMD GPU 0x164e"}
    assert integrated.values == {
        "up": 1,
        "utilization_percent": 3.0,
        "memory_used_mb": pytest.approx(24.906, abs=0.001),
        "memory_free_mb": pytest.approx(487.094, abs=0.001),
        "memory_total_mb": 512.0,
        "memory_percent": 4.86,
        "temperature_celsius": 45.0,
        "power_draw_watts": 31.012,
        "power_instant_watts": 31.012,
        "clock_sm_hertz": 600_000_000,
        "clock_memory_hertz": 1_800_000_000,  # from pp_dpm_mclk, which goes downwards here
        "clock_sm_max_hertz": 2_200_000_000,
        "clock_memory_max_hertz": 3_000_000_000,
        "pcie_generation": 4,
        "pcie_width": 16,
        "pcie_max_generation": 4,
        "pcie_max_width": 16,
    }


def test_an_old_board_gives_what_it_has(tree: Tree, read: Read) -> None:
    (old,) = read(Amd(tree("radeon-old"), environ={}))
    assert old.subject.labels == {"gpu_index": 0, "uuid": "AMD-0000:01:00.0", "name": "AMD GPU 0x6798"}
    assert old.values == {
        "up": 1,
        "temperature_celsius": 39.0,
        "pcie_generation": 1,
        "pcie_width": 16,
        "pcie_max_generation": 3,
        "pcie_max_width": 16,
    }


def test_boards_with_both_powers_an_energy_counter_and_a_fan_without_pwm(tree: Tree, read: Read) -> None:
    sys = tree("radeon-desktop")
    hwmon = next(sys.glob("class/drm/card1/device/hwmon/hwmon4"))
    (hwmon / "power1_input").write_text("298000000\n")
    (hwmon / "energy1_input").write_text("123456789\n")
    (hwmon / "pwm1_max").unlink()
    board, _ = values(read(Amd(sys, environ={})))
    assert (board["power_draw_watts"], board["power_instant_watts"], board["power_average_watts"]) == (298, 298, 311)
    assert board["energy_joules"] == pytest.approx(123.456789)
    assert board["fan_speed_percent"] == pytest.approx(51.03, abs=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that answers EINVAL")
def test_a_field_that_the_board_does_not_support_is_asked_for_once(tree: Tree, read: Read) -> None:
    sys = tree("mi300x-2x")
    device = sys / MI300X_BUSY
    replaced = {
        "mem_busy_percent": "N/A\n",
        "current_link_width": "255\n",
        "current_link_speed": "Unknown\n",
        "gpu_busy_percent": None,
        "hwmon/hwmon9/power1_cap": None,
    }
    for name, text in replaced.items():
        (device / name).unlink()
        if text:
            (device / name).write_text(text)
    (device / "gpu_busy_percent").symlink_to("/proc/self/clear_refs")  # EINVAL, or EACCES for users
    source = Amd(sys, environ={})
    absent = {
        "utilization_percent",
        "memory_controller_ratio",
        "pcie_width",
        "pcie_generation",
        "power_limit_watts",
    }
    busy, asleep = values(read(source))
    assert absent.isdisjoint(busy)
    assert absent <= asleep.keys()
    for name in replaced:
        (device / name).unlink(missing_ok=True)
        (device / name).write_text("16\n")
    busy, _ = values(read(source))
    assert absent.isdisjoint(busy)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that fails with an I/O error")
def test_an_error_that_may_pass_is_a_gap(tree: Tree, read: Read, events: Events) -> None:
    sys = tree("mi300x-2x")
    source = Amd(sys, environ={})
    power = sys / MI300X_BUSY / "hwmon/hwmon9/power1_input"
    sclk = sys / MI300X_BUSY / "hwmon/hwmon9/freq1_input"
    power.unlink()
    power.symlink_to("/proc/self/mem")  # reading it at 0 is EIO
    read(source)
    sclk.write_text("busy\n")
    busy, _ = values(read(source))
    assert {"power_draw_watts", "power_instant_watts", "clock_sm_hertz"}.isdisjoint(busy)
    assert busy["up"] == 1
    assert events(source) == []
    power.unlink()
    power.write_text("690000000\n")
    sclk.write_text("1900000000\n")
    busy, _ = values(read(source))
    assert (busy["power_draw_watts"], busy["clock_sm_hertz"]) == (690.0, 1_900_000_000)


def test_a_gpu_that_vanishes_is_reported_once_looked_for_and_found_under_another_card_number(
    tree: Tree, read: Read, events: Events, tmp_path: Path
) -> None:
    sys = tree("mi300x-2x")
    source = Amd(sys, environ={})
    read(source)
    (sys / MI300X_BUSY).rename(tmp_path / "unplugged")
    (sys / "class/drm/card2").unlink()
    (lost,) = events(source)
    assert (lost.kind, lost.severity) == ("gpu_lost", "critical")
    assert lost.details == {"gpu_index": 0, "uuid": "AMD-a1b9ff3e6d0c4827"}
    gone, other = read(source)
    assert gone.subject.key == "AMD-a1b9ff3e6d0c4827"
    assert gone.values == LOST
    assert other.values["up"] == 1
    assert other.values["power_draw_watts"] == 141.0
    assert events(source) == []

    (tmp_path / "unplugged").rename(sys / MI300X_BUSY)
    device = sys / MI300X_BUSY
    (device / "drm/card2").rename(device / "drm/card5")
    (device / "hwmon/hwmon9").rename(device / "hwmon/hwmon12")
    (sys / "class/drm/card5").symlink_to(f"../../{MI300X_BUSY}/drm/card5")
    (back,) = events(source)
    assert (back.kind, back.severity, back.details) == ("gpu_back", "info", lost.details)
    returned, other = read(source)
    assert (returned.values["up"], returned.values["power_draw_watts"]) == (1, 702.0)
    assert other.values["up"] == 1


def test_a_driver_that_was_reloaded_between_two_readings_shows_as_lost_and_back(
    tree: Tree, read: Read, events: Events
) -> None:
    sys = tree("mi300x-2x")
    source = Amd(sys, environ={})
    read(source)
    (sys / MI300X_BUSY / "hwmon/hwmon9").rename(sys / MI300X_BUSY / "hwmon/hwmon20")
    assert [event.kind for event in events(source)] == ["gpu_lost"]
    assert [event.kind for event in events(source)] == ["gpu_back"]
    assert values(read(source))[0]["power_draw_watts"] == 702.0


def test_card_numbers_that_swap_do_not_swap_the_gpus(tree: Tree, read: Read) -> None:
    sys = tree("mi300x-2x")
    source = Amd(sys, environ={})
    read(source)
    one, two = sys / "class/drm/card1", sys / "class/drm/card2"
    one_target, two_target = one.readlink(), two.readlink()
    one.unlink()
    two.unlink()
    one.symlink_to(two_target)
    two.symlink_to(one_target)
    assert [sample["power_draw_watts"] for sample in values(read(source))] == [702.0, 141.0]


def test_an_unbound_driver_is_a_lost_gpu_even_where_no_sensor_tells(tree: Tree, read: Read, events: Events) -> None:
    sys = tree("radeon-old")
    device = sys / "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    shutil.rmtree(device / "hwmon")
    for link in device.glob("*_link_*"):
        link.unlink()
    source = Amd(sys, environ={})
    assert values(read(source)) == [{"up": 1}]
    shutil.rmtree(device / "drm")
    assert [event.kind for event in events(source)] == ["gpu_lost"]
    assert values(read(source)) == [LOST]


@pytest.mark.skipif(sys.platform != "linux", reason="opening a socket as a file is ENXIO on Linux")
def test_a_device_that_answers_no_such_device_is_lost(
    tree: Tree, events: Events, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys = tree("mi300x-2x")
    source = Amd(sys, environ={})
    read(source)
    monkeypatch.chdir(sys / MI300X_BUSY)
    Path("gpu_busy_percent").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("gpu_busy_percent")
    (lost,) = events(source)
    assert lost.kind == "gpu_lost"
    assert "No such device" in lost.message
    assert [sample["up"] for sample in values(read(source))] == [0, 1]


@pytest.mark.parametrize(
    ("environ", "uuids"),
    [
        ({}, ["AMD-a1b9ff3e6d0c4827", "AMD-5c70e2d8b96f1a34"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["AMD-a1b9ff3e6d0c4827", "AMD-5c70e2d8b96f1a34"]),
        ({"ROCR_VISIBLE_DEVICES": "0"}, ["AMD-5c70e2d8b96f1a34"]),  # ROCm counts the other way round on this machine
        ({"HIP_VISIBLE_DEVICES": "1"}, ["AMD-a1b9ff3e6d0c4827"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a1b9ff3e6d0c4827"}, ["AMD-a1b9ff3e6d0c4827"]),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "0"}, ["AMD-a1b9ff3e6d0c4827"]),
        ({"ROCR_VISIBLE_DEVICES": "0,7,1"}, ["AMD-5c70e2d8b96f1a34"]),
    ],
)
def test_what_rocm_shows_to_programs_is_watched(
    tree: Tree, read: Read, environ: dict[str, str], uuids: list[str]
) -> None:
    assert [sample.subject.key for sample in read(Amd(tree("mi300x-2x"), environ=environ))] == uuids


def test_a_choice_made_by_a_variable_is_reported_once(tree: Tree, events: Events) -> None:
    source = Amd(tree("mi300x-2x"), environ={"HIP_VISIBLE_DEVICES": "1"})
    (told,) = events(source)
    assert told.kind == "gpus_selected"
    assert "HIP_VISIBLE_DEVICES=1" in told.message
    assert events(source) == []


def test_without_a_compute_driver_rocm_variables_count_in_pci_order(tree: Tree, read: Read) -> None:
    source = Amd(tree("radeon-desktop"), environ={"HIP_VISIBLE_DEVICES": "0"})
    assert [sample.subject.key for sample in read(source)] == ["AMD-6e0b4a7d51f3c298"]


def test_gpus_named_by_the_user_win_over_variables(tree: Tree, read: Read) -> None:
    sys = tree("mi300x-2x")
    environ = {"ROCR_VISIBLE_DEVICES": ""}
    for wanted in ("1", "AMD-5c70"):
        source = Amd(sys, wanted, environ)
        assert [sample.subject.key for sample in read(source)] == ["AMD-5c70e2d8b96f1a34"]
    assert len(read(Amd(sys, "all", environ))) == 2
    with pytest.raises(UsageError, match="7"):
        Amd(sys, "7", environ)


def test_variables_that_hide_every_gpu_leave_nothing_to_watch(tree: Tree) -> None:
    with pytest.raises(Unavailable, match="no GPU visible with ROCR_VISIBLE_DEVICES="):
        Amd(tree("mi300x-2x"), environ={"ROCR_VISIBLE_DEVICES": ""})


def test_a_machine_without_amd_gpus_says_so(tree: Tree) -> None:
    with pytest.raises(Unavailable, match="no AMD GPU"):
        Amd(tree("xeon-2-socket"), environ={})


# Energy


def polled(source: AmdPower) -> list[dict[str, Any]]:
    return [sample.values for sample in source.read()]


def seconds_of(values: dict[str, Any], watts: float) -> float:
    """The time that is accounted for: with energy at this power, or as a gap, which a busy machine leaves too."""
    return float(values["polled_energy_joules"] / watts + values["polled_energy_gap_seconds"])


def test_energy_of_gpus_without_a_counter_is_added_up_from_their_power(tree: Tree) -> None:
    source = AmdPower(Amd(tree("mi300x-2x"), environ={}))
    polled(source)
    began = time.monotonic()

    def added_up() -> bool:
        busy, asleep = polled(source)
        seconds = time.monotonic() - began
        told = [seconds_of(busy, 702), seconds_of(asleep, 141)]
        return seconds > 0.5 and told == pytest.approx([seconds] * 2, rel=0.1)

    assert eventually(added_up)
    assert polled(source)[0]["polled_energy_unseen_joules"] > 0
    source.close()


def test_power_that_cannot_be_read_for_a_while_is_a_gap_in_the_energy(tree: Tree) -> None:
    sys = tree("mi300x-2x")
    source = AmdPower(Amd(sys, environ={}))
    power = sys / MI300X_BUSY / "hwmon/hwmon9/power1_input"
    polled(source)
    text = power.read_text()
    power.unlink()
    assert eventually(lambda: polled(source)[0]["polled_energy_gap_seconds"] > 0.2)
    counted = polled(source)[0]["polled_energy_joules"]
    power.write_text(text)
    assert eventually(lambda: polled(source)[0]["polled_energy_joules"] > counted)
    busy, asleep = polled(source)
    source.close()
    assert busy["polled_energy_gap_seconds"] > asleep["polled_energy_gap_seconds"] + 0.2
    assert seconds_of(busy, 702) == pytest.approx(seconds_of(asleep, 141), abs=0.05)


def test_gpus_with_a_counter_are_not_looked_at_in_between(tree: Tree) -> None:
    sys = tree("radeon-desktop")
    for hwmon in sys.glob("class/drm/card*/device/hwmon/hwmon*"):
        (hwmon / "energy1_input").write_text("123456789\n")
    assert not AmdPower.needed(Amd(sys, environ={}))

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pulsetrain.snapshot import Sample
from pulsetrain.sources import Options, Source
from pulsetrain.sources.host import CoreTimes, HostSource, open_sources, ratios

Read = Callable[[Source], list[Sample]]

DISKSTATS = """\
   7       0 loop0 50 0 400 1 0 0 0 0 0 1 1
   8       0 sda 100 0 2000 10 200 0 4000 20 0 30 30 0 0 0 0 0 0
   8       1 sda1 60 0 1200 6 200 0 4000 20 0 26 26 0 0 0 0 0 0
   8       2 sda2 40 0 800 4 0 0 0 0 0 4 4 0 0 0 0 0 0
 259       0 nvme0n1 10 0 200 1 20 0 400 2 0 3 3 0 0 0 0 0 0
 259       1 nvme0n1p1 10 0 200 1 20 0 400 2 0 3 3 0 0 0 0 0 0
 253       0 dm-0 100 0 2000 10 200 0 4000 20 0 30 30 0 0 0 0 0 0
   9     127 md127 100 0 2000 10 200 0 4000 20 0 30 30 0 0 0 0 0 0
 252       0 zram0 7 0 56 0 7 0 56 0 0 0 0 0 0 0 0 0 0
"""
NET = "Inter-|   Receive  |  Transmit\n face |bytes packets errs |bytes packets errs\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc that psutil is told to read, and a /sys; the test adds disks and interfaces."""
    if sys.platform != "linux":
        pytest.skip("/proc and /sys are Linux's")
    (tmp_path / "proc/net").mkdir(parents=True)
    for file in ("stat", "meminfo", "vmstat", "zoneinfo"):
        shutil.copy(f"/proc/{file}", tmp_path / "proc" / file)
    (tmp_path / "proc/diskstats").touch()
    (tmp_path / "proc/net/dev").write_text(NET)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    return tmp_path


def add_links(machine: Path, **bytes_received: int) -> None:
    lines = [f"{link}: {count} 1 0 0 0 0 0 0 {count * 2} 1 0 0 0 0 0 0\n" for link, count in bytes_received.items()]
    (machine / "proc/net/dev").write_text(NET + "".join(lines))


def test_a_machine_shows_cpu_memory_and_network(read: Read) -> None:
    source = HostSource()
    time.sleep(0.1)
    (sample,) = read(source)
    values = sample.values
    assert sample.subject.table == "host"
    assert values["cpu_cores"] == psutil.cpu_count()
    assert isinstance(values["cpu_ratio"], float) and 0 <= values["cpu_ratio"] <= 1
    assert isinstance(values["cpu_core_ratio"], dict) and len(values["cpu_core_ratio"]) == psutil.cpu_count()
    assert isinstance(values["memory_used_bytes"], int) and isinstance(values["memory_available_bytes"], int)
    assert values["memory_used_bytes"] + values["memory_available_bytes"] == values["memory_total_bytes"]
    assert {"swap_used_bytes", "swap_total_bytes", "network_received_bytes", "network_sent_bytes"} <= values.keys()
    assert ("cpu_iowait_ratio" in values) is (sys.platform == "linux")
    assert ("load_1m" in values) is (sys.platform != "win32")


def test_work_shows_in_the_cpu_ratio(read: Read) -> None:
    source = HostSource()
    started, cpu_started = time.monotonic(), time.process_time()
    while time.process_time() - cpu_started < 0.3:
        pass
    (sample,) = read(source)
    seconds = time.monotonic() - started
    ratio, cores = sample.values["cpu_ratio"], sample.values["cpu_cores"]
    assert isinstance(ratio, float) and isinstance(cores, int)
    assert ratio * cores * seconds > 0.2


def test_shares_of_a_very_short_time_are_left_out_and_counted_later(read: Read) -> None:
    now = 0.0
    source = HostSource(clock=lambda: now)
    time.sleep(0.1)
    now = 0.01
    (sample,) = read(source)
    assert "cpu_ratio" not in sample.values
    assert "cpu_core_ratio" not in sample.values
    assert "memory_used_bytes" in sample.values
    now = 0.1
    (sample,) = read(source)
    assert "cpu_ratio" in sample.values


def test_the_ratio_of_all_cores_is_the_mean_of_each() -> None:
    before = [CoreTimes(100, 80, 0), CoreTimes(100, 80, 0)]
    after = [CoreTimes(110, 90, 0), CoreTimes(110, 81, 4)]
    assert ratios(before, after) == {
        "cpu_ratio": 0.25,
        "cpu_core_ratio": {"0": 0.0, "1": 0.5},
        "cpu_iowait_ratio": 0.2,
    }


def test_iowait_that_falls_counts_as_none() -> None:
    values = ratios([CoreTimes(100, 80, 9)], [CoreTimes(110, 85, 8)])
    assert values == {"cpu_ratio": 0.5, "cpu_core_ratio": {"0": 0.5}, "cpu_iowait_ratio": 0.0}


def test_a_core_that_is_off_has_no_ratio() -> None:
    values = ratios([CoreTimes(100, 80, None)] * 2, [CoreTimes(110, 85, None), CoreTimes(100, 80, None)])
    assert values == {"cpu_ratio": 0.5, "cpu_core_ratio": {"0": 0.5}}


def test_time_of_virtual_machines_is_not_counted_twice(machine: Path, read: Read) -> None:
    now = 0.0
    # user nice system idle iowait irq softirq steal guest guest_nice, in ticks; user holds guest, nice holds guest_nice
    (machine / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    source = HostSource(machine / "sys", clock=lambda: now)
    now = 1.0
    (machine / "proc/stat").write_text("cpu 60 20 0 20 0 0 0 0 60 20\ncpu0 60 20 0 20 0 0 0 0 60 20\n")
    (sample,) = read(source)
    assert sample.values["cpu_ratio"] == 0.8


def test_cores_that_come_or_go_start_over(machine: Path, read: Read) -> None:
    now = 0.0
    one = "cpu0 {0} 0 0 {1} 0 0 0 0 0 0\n"
    (machine / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\n" + one.format(0, 0))
    source = HostSource(machine / "sys", clock=lambda: now)
    now = 1.0
    (machine / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\n" + one.format(10, 90) * 2)
    (sample,) = read(source)
    assert sample.values["cpu_cores"] == 2
    assert "cpu_ratio" not in sample.values
    now = 2.0
    (machine / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\n" + one.format(60, 140) * 2)
    (sample,) = read(source)
    assert sample.values["cpu_ratio"] == 0.5


def test_disks_are_counted_once_without_partitions_and_what_lies_above_them(machine: Path, read: Read) -> None:
    (machine / "proc/diskstats").write_text(DISKSTATS)
    for name in ("loop0", "sda", "sda1", "sda2", "nvme0n1", "nvme0n1p1", "dm-0", "md127", "zram0"):
        (machine / "sys/class/block" / name).mkdir(parents=True)
    for name in ("sda", "nvme0n1"):  # only hardware has this link
        (machine / "sys/class/block" / name / "device").mkdir()
    (sample,) = read(HostSource(machine / "sys"))
    disks = {field: value for field, value in sample.values.items() if field.startswith("disk_")}
    assert disks == {
        "disk_read_bytes": 2200 * 512,
        "disk_written_bytes": 4400 * 512,
        "disk_reads": 110,
        "disk_writes": 220,
        "disk_device_read_bytes": {"sda": 2000 * 512, "nvme0n1": 200 * 512},
        "disk_device_written_bytes": {"sda": 4000 * 512, "nvme0n1": 400 * 512},
        "disk_device_reads": {"sda": 100, "nvme0n1": 10},
        "disk_device_writes": {"sda": 200, "nvme0n1": 20},
    }


def test_a_machine_without_disks_shows_none(machine: Path, read: Read) -> None:
    (sample,) = read(HostSource(machine / "sys"))
    assert not [field for field in sample.values if field.startswith("disk_")]


def test_a_server_counts_its_network_cards_and_not_bridges_and_bonds_over_them(machine: Path, read: Read) -> None:
    add_links(machine, lo=5, eno1=100, ib0=40, bond0=100, docker0=7, veth12ab=7, ifb0=100)
    for link in ("eno1", "ib0"):
        (machine / "sys/class/net" / link / "device").mkdir(parents=True)
    (sample,) = read(HostSource(machine / "sys"))
    network = {field: value for field, value in sample.values.items() if field.startswith("network_")}
    assert network == {
        "network_received_bytes": 140,
        "network_sent_bytes": 280,
        "network_device_received_bytes": {"eno1": 100, "ib0": 40},
        "network_device_sent_bytes": {"eno1": 200, "ib0": 80},
    }


def test_a_container_counts_its_link_beside_a_card_of_its_own(machine: Path, read: Read) -> None:
    add_links(machine, lo=5, eth0=10, net1=1000)
    (machine / "sys/class/net/net1/device").mkdir(parents=True)
    (sample,) = read(HostSource(machine / "sys"))
    assert sample.values["network_device_received_bytes"] == {"eth0": 10, "net1": 1000}


def test_a_container_without_cards_counts_all_but_loopback(machine: Path, read: Read) -> None:
    add_links(machine, lo=5, tap0=10)
    (sample,) = read(HostSource(machine / "sys"))
    assert sample.values["network_device_received_bytes"] == {"tap0": 10}


def test_the_host_is_there_whether_or_not_we_are_in_a_container() -> None:
    names = [source.name for source in open_sources(Options())]
    assert names in (["host"], ["host", "cgroup"])


def test_in_a_pod_the_network_is_that_of_the_node(tmp_path: Path) -> None:
    for link, received, hardware in (("ens4", 700, True), ("veth1", 9, False), ("lo", 5, False)):
        statistics = tmp_path / "class/net" / link / "statistics"
        statistics.mkdir(parents=True)
        (statistics / "rx_bytes").write_text(f"{received}\n")
        (statistics / "tx_bytes").write_text(f"{received + 1}\n")
        if hardware:
            (statistics.parent / "device").mkdir()
    (sample,) = HostSource(tmp_path, of_node=True).read()
    assert sample.values["network_device_received_bytes"] == {"ens4": 700}
    assert sample.values["network_sent_bytes"] == 701

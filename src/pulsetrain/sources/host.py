"""The machine: CPU, memory, disks and network, through psutil."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from sys import platform
from typing import NamedTuple

import psutil

from pulsetrain.catalog import HOST
from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Sample, Value
from pulsetrain.sources import Options, Source
from pulsetrain.sources.cgroup import Cgroup

SHORTEST_SECONDS = 0.05
"""Shares of less time than this are noise: the kernel counts CPU time in ticks of 1 to 10 ms."""

_SWAP_SECONDS = 5.0  # swap moves slowly, and psutil reads all of /proc/vmstat for it
_LINUX = platform == "linux"


def open_sources(options: Options) -> list[Source]:
    node = os.environ.get("PULSETRAIN_SYS")  # where a pod has the /sys of its node
    sources: list[Source] = [HostSource(Path(node), of_node=True) if node else HostSource()]
    with contextlib.suppress(Unavailable):  # a machine that is no container lacks nothing
        sources.append(Cgroup())
    return sources


class CoreTimes(NamedTuple):
    """Seconds since boot."""

    total: float
    idle: float
    iowait: float | None
    """Where the platform counts it; not part of `idle`."""


class NetworkBytes(NamedTuple):
    """Of one network card, since it was set up."""

    received: int
    sent: int


class HostSource:
    """Works everywhere. What a platform does not have is left out: iowait outside Linux, load averages on Windows."""

    name = "host"
    period = 1.0  # faster, its figures are noise, and cost more than the GPUs

    def __init__(
        self, sys: Path = Path("/sys"), clock: Callable[[], float] = time.monotonic, *, of_node: bool = False
    ) -> None:
        """`of_node` when `sys` is that of the node around our pod."""
        self._sys = sys
        self._of_node = of_node
        self._clock = clock
        self._core_times, self._core_times_at = _core_times(), clock()
        self._swap: dict[str, Value] = {}
        self._swap_at = float("-inf")
        self._is_hardware = functools.lru_cache(maxsize=1024)(self._has_device)

    def read(self) -> Iterator[Sample]:
        yield Sample(HOST, {**self._cpu(), **self._memory(), **self._disks(), **self._network()})

    def close(self) -> None:
        pass

    def _cpu(self) -> dict[str, Value]:
        before, now = self._core_times, self._clock()
        after = _core_times()
        values: dict[str, Value] = {"cpu_cores": len(after)}
        if hasattr(os, "getloadavg"):
            values["load_1m"], values["load_5m"], values["load_15m"] = os.getloadavg()
        if now - self._core_times_at >= SHORTEST_SECONDS:
            self._core_times, self._core_times_at = after, now
            if len(before) == len(after):  # else cores went on or off since, and their numbers moved
                values |= ratios(before, after)
        return values

    def _memory(self) -> dict[str, Value]:
        memory, now = psutil.virtual_memory(), self._clock()
        if now - self._swap_at >= _SWAP_SECONDS:
            swap = psutil.swap_memory()
            self._swap, self._swap_at = {"swap_used_bytes": swap.used, "swap_total_bytes": swap.total}, now
        return {
            "memory_used_bytes": memory.total - memory.available,
            "memory_available_bytes": memory.available,
            "memory_total_bytes": memory.total,
            **self._swap,
        }

    def _disks(self) -> dict[str, Value]:
        try:
            found = psutil.disk_io_counters(perdisk=True, nowrap=False)
        except NotImplementedError:  # a sandbox without /proc/diskstats
            return {}
        # Linux also lists partitions and what lies above disks (dm, md, loop): they would count the same bytes again.
        disks = {disk: io for disk, io in found.items() if not _LINUX or self._is_hardware("block", disk)}
        if not disks:
            return {}
        return {
            "disk_read_bytes": sum(io.read_bytes for io in disks.values()),
            "disk_written_bytes": sum(io.write_bytes for io in disks.values()),
            "disk_reads": sum(io.read_count for io in disks.values()),
            "disk_writes": sum(io.write_count for io in disks.values()),
            "disk_device_read_bytes": {disk: io.read_bytes for disk, io in disks.items()},
            "disk_device_written_bytes": {disk: io.write_bytes for disk, io in disks.items()},
            "disk_device_reads": {disk: io.read_count for disk, io in disks.items()},
            "disk_device_writes": {disk: io.write_count for disk, io in disks.items()},
        }

    def _network(self) -> dict[str, Value]:
        links = {
            link: io
            for link, io in self._links().items()
            if link not in ("lo", "lo0") and "loopback" not in link.lower()
        }
        if _LINUX:
            # Bridges, bonds and tunnels count the same bytes again, and the host's ends of containers come and go.
            # In a container the link to the outside has no hardware: runtimes call it eth0, or it is the only one.
            own = {link: io for link, io in links.items() if link.startswith("eth") or self._is_hardware("net", link)}
            links = own or links
        if not links:
            return {}
        return {
            "network_received_bytes": sum(io.received for io in links.values()),
            "network_sent_bytes": sum(io.sent for io in links.values()),
            "network_device_received_bytes": {link: io.received for link, io in links.items()},
            "network_device_sent_bytes": {link: io.sent for link, io in links.items()},
        }

    def _links(self) -> Mapping[str, "NetworkBytes"]:
        """A pod has a network of its own: that of its node is in the node's /sys, where it is mounted."""
        if not self._of_node:
            counted = psutil.net_io_counters(pernic=True, nowrap=False)
            return {link: NetworkBytes(io.bytes_recv, io.bytes_sent) for link, io in counted.items()}
        found = {}
        for link in sorted((self._sys / "class/net").glob("*/statistics")):
            received, sent = (int((link / f"{way}_bytes").read_text()) for way in ("rx", "tx"))
            found[link.parent.name] = NetworkBytes(received, sent)
        return found

    def _has_device(self, kind: str, name: str) -> bool:
        return (self._sys / "class" / kind / name / "device").exists()


def ratios(before: Sequence[CoreTimes], after: Sequence[CoreTimes]) -> dict[str, Value]:
    """What the cores did between two readings."""
    all_seconds = all_busy = all_iowait = 0.0
    busy_by_core: dict[str, float] = {}
    for core, (old, new) in enumerate(zip(before, after, strict=True)):
        seconds = new.total - old.total
        if seconds <= 0:  # the core is asleep for good
            continue
        iowait = max(0.0, (new.iowait or 0.0) - (old.iowait or 0.0))  # Linux lets it fall at times
        busy = min(seconds, max(0.0, seconds - (new.idle - old.idle) - iowait))
        busy_by_core[str(core)] = round(busy / seconds, 4)
        all_seconds += seconds
        all_busy += busy
        all_iowait += iowait
    if not busy_by_core:
        return {}
    values: dict[str, Value] = {"cpu_ratio": round(all_busy / all_seconds, 4), "cpu_core_ratio": busy_by_core}
    if after[0].iowait is not None:
        values["cpu_iowait_ratio"] = round(min(1.0, all_iowait / all_seconds), 4)
    return values


def _core_times() -> list[CoreTimes]:
    cores = psutil.cpu_times(percpu=True)
    if not _LINUX:
        return [CoreTimes(sum(core), core.idle, None) for core in cores]
    # Linux counts a guest's time as the user's too.
    return [CoreTimes(sum(core) - core.guest - core.guest_nice, core.idle, core.iowait) for core in cores]

"""The container around us: its limits and what it uses, from its cgroup (version 1, 2, or both at once)."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from pulsetrain.catalog import HOST
from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Sample, Value
from pulsetrain.sources import processes

_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as the most bytes that are whole pages
_IO = ("io.stat", "blkio.throttle.io_service_bytes")
_MARKERS = (".dockerenv", "run/.containerenv")


class Cgroup:
    """Applies in a container, and wherever a cgroup limits us: in a batch job, in a systemd slice.

    A limit holds for all that is below it, so that usage is that of the cgroup with the tightest limit, else our own.
    """

    name = "cgroup"
    period = 1.0

    def __init__(self, root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> None:
        try:
            cgroups = (root / "proc/self/cgroup").read_text(errors="surrogateescape")
            mounts = (root / "proc/self/mountinfo").read_text(errors="surrogateescape")
        except FileNotFoundError:
            raise Unavailable("this system has no cgroups") from None
        own = {controller: _folders(root, controller, cgroups, mounts) for controller in ("memory", "cpu", "cpuacct")}
        self._memory = _tightest([memory for folder in own["memory"] if (memory := _memory(folder))])
        self._cpu = _tightest([cpu for folder in own["cpu"] if (cpu := _cpu(folder, own["cpuacct"]))])
        limited = any(part and part.limit() is not None for part in (self._memory, self._cpu))
        in_container = (
            any((root / marker).exists() for marker in _MARKERS)
            or "KUBERNETES_SERVICE_HOST" in environ
            or processes.container(cgroups) is not None
        )
        if not limited and not in_container:
            raise Unavailable("not in a container, and no cgroup limits apply")

    def read(self) -> Iterator[Sample]:
        values: dict[str, Value] = {}
        if self._memory:
            values["container_memory_used_bytes"] = self._memory.used()
            values["container_memory_limit_bytes"] = self._memory.limit()
        if self._cpu:
            values["container_cpu_seconds"], values["container_cpu_throttled_seconds"] = self._cpu.seconds()
            values["container_cpu_limit_cores"] = self._cpu.limit()
        yield Sample(HOST, {field: value for field, value in values.items() if value is not None})

    def close(self) -> None:
        pass


class _Memory:
    """Memory of one cgroup. The versions differ in the names alone."""

    def __init__(self, folder: Path, limit: str, usage: str, inactive: str) -> None:
        self._limit = folder / limit
        self._usage = folder / usage
        self._stat = folder / "memory.stat"
        self._inactive = inactive

    def limit(self) -> int | None:
        text = _text(self._limit)
        return int(text) if text != "max" and int(text) < _NO_LIMIT else None

    def used(self) -> int:
        """Without file cache that was not used of late: docker stats and kubectl top count like this."""
        return max(0, int(_text(self._usage)) - (_entry(_text(self._stat), self._inactive) or 0))


class _Cpu1:
    """CPU of one cgroup of version 1, which may count the time in a tree of its own."""

    def __init__(self, folder: Path, accounting: Path) -> None:
        self._quota = folder / "cpu.cfs_quota_us"
        self._period = folder / "cpu.cfs_period_us"
        self._stat = folder / "cpu.stat"
        self._usage = accounting / "cpuacct.usage"

    def limit(self) -> float | None:
        quota = int(_text(self._quota))
        return quota / int(_text(self._period)) if quota > 0 else None

    def seconds(self) -> tuple[float, float | None]:
        """Used, and throttled."""
        throttled = _entry(_text(self._stat), "throttled_time")
        return int(_text(self._usage)) / 1e9, None if throttled is None else throttled / 1e9


class _Cpu2:
    def __init__(self, folder: Path) -> None:
        self._max = folder / "cpu.max"
        self._stat = folder / "cpu.stat"

    def limit(self) -> float | None:
        if not self._max.exists():  # the controller is off here; time is counted all the same
            return None
        quota, period = _text(self._max).split()
        return int(quota) / int(period) if quota != "max" else None

    def seconds(self) -> tuple[float | None, float | None]:
        """Used, and throttled."""
        stat = _text(self._stat)
        used, throttled = _entry(stat, "usage_usec"), _entry(stat, "throttled_usec")
        return None if used is None else used / 1e6, None if throttled is None else throttled / 1e6


class _Part(Protocol):
    def limit(self) -> float | None: ...


PartT = TypeVar("PartT", bound=_Part)


def _tightest(innermost_first: Sequence[PartT]) -> PartT | None:
    limits = [(limit, i) for i, part in enumerate(innermost_first) if (limit := part.limit()) is not None]
    if limits:
        return innermost_first[min(limits)[1]]
    return innermost_first[0] if innermost_first else None


def _memory(folder: Path) -> _Memory | None:
    if (folder / "memory.current").exists():
        return _Memory(folder, "memory.max", "memory.current", "inactive_file")
    if (folder / "memory.usage_in_bytes").exists():
        return _Memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    return None  # the controller is off here, or this is the root of version 2


def _cpu(folder: Path, accounting: Sequence[Path]) -> _Cpu1 | _Cpu2 | None:
    if (folder / "cpu.cfs_quota_us").exists() and accounting:
        together = (folder / "cpuacct.usage").exists()
        return _Cpu1(folder, folder if together else accounting[0])
    return _Cpu2(folder) if (folder / "cpu.stat").exists() else None


def _folders(root: Path, controller: str, cgroups: str, mounts: str) -> list[Path]:
    """Our cgroup for a controller, and those above it as far as they are mounted here."""
    paths: dict[str, str] = {}
    for line in cgroups.splitlines():
        _, controllers, own = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), own)  # the line of version 2 names no controller
    places: dict[str, tuple[str, str]] = {}
    for line in mounts.splitlines():
        mount, _, filesystem = line.partition(" - ")
        _, _, _, mounted, mount_point, *_ = mount.split()
        kind, _, options = filesystem.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            for tree in options.split(",") if kind == "cgroup" else [""]:
                places.setdefault(tree, (mounted, mount_point))
    tree = controller if controller in paths and controller in places else ""
    if tree not in paths or tree not in places:
        return []
    mounted, mount_point = places[tree]
    path, top = PurePosixPath(paths[tree]), root / mount_point.lstrip("/")
    folder = top / path.relative_to(mounted) if path.is_relative_to(mounted) else top
    if not folder.is_dir():  # it lies outside of what is mounted here
        folder = top
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def _entry(table: str, key: str) -> int | None:
    """The number beside a key, one to a line."""
    found = re.search(rf"^{key} (\d+)$", table, re.MULTILINE)
    return int(found[1]) if found else None


def _text(file: Path) -> str:
    return file.read_bytes().decode().strip()


class CgroupUse:
    """What a container uses, from the cgroup of its first process. It is gone with the container: read it often.

    The last values are kept. What the kernel does not tell, or not to us, is left out.
    """

    def __init__(self, pid: int, container: str, root: Path = Path("/")) -> None:
        """OSError for a process that has ended. Nothing is read of one that is not in this container: the engine may be
        on another machine, where the pid is somebody else's.
        """
        cgroups = (root / f"proc/{pid}/cgroup").read_text(errors="surrogateescape")
        mounts = (root / "proc/self/mountinfo").read_text(errors="surrogateescape")
        own = {}
        for name in ("memory", "cpu", "cpuacct", "blkio"):
            folders = _folders(root, name, cgroups, mounts)
            if folders and container in str(folders[0]):
                own[name] = folders[0]
        self.found = bool(own)
        self.values: dict[str, Value] = {}
        self._memory = _memory(own["memory"]) if "memory" in own else None
        self._cpu = _cpu(own["cpu"], [own["cpuacct"]] if "cpuacct" in own else []) if "cpu" in own else None
        self._io = [own["blkio"] / name for name in _IO] if "blkio" in own else []
        self._network = root / f"proc/{pid}/net/dev"
        self._has_network = self.found and _has_own_network(root, pid)
        self._memory_peak = 0

    def read(self) -> None:
        """Take the present values. A container that ends meanwhile leaves those before."""
        with contextlib.suppress(OSError, ValueError):
            if self._memory:
                used = self._memory.used()
                self._memory_peak = max(self._memory_peak, used)
                self.values |= {"job_memory_bytes": used, "job_memory_peak_bytes": self._memory_peak}
        with contextlib.suppress(OSError, ValueError):
            if self._cpu and (seconds := self._cpu.seconds()[0]) is not None:
                self.values["job_cpu_seconds"] = round(seconds, 3)
        for file in self._io:
            with contextlib.suppress(OSError, ValueError):
                self.values |= _io_bytes(_text(file))
        if self._has_network:
            with contextlib.suppress(OSError, ValueError):
                self.values |= _network_bytes(_text(self._network))


def _has_own_network(root: Path, pid: int) -> bool:
    """Whether what passes through its network is its own: not when it shares that of the host."""
    try:
        return (root / f"proc/{pid}/ns/net").readlink() != (root / "proc/self/ns/net").readlink()
    except OSError:
        return False


def _io_bytes(text: str) -> dict[str, Value]:
    """Read and written, of all devices: `8:0 rbytes=1 wbytes=2` or `8:0 Read 1`."""
    return {"job_read_bytes": sum(_numbers("Read", text)), "job_written_bytes": sum(_numbers("Write", text))}


def _numbers(kind: str, text: str) -> list[int]:
    found = re.findall(rf"\b{kind[0].lower()}bytes=(\d+)|^\d+:\d+ {kind} (\d+)$", text, re.MULTILINE)
    return [int(new or old) for new, old in found]


def _network_bytes(text: str) -> dict[str, Value]:
    """Received and sent, by all interfaces but the loopback."""
    rows = [line.split(":", 1) for line in text.splitlines() if ":" in line]
    counts = [fields.split() for name, fields in rows if name.strip() != "lo"]
    if not counts:
        return {}
    return {
        "job_network_received_bytes": sum(int(count[0]) for count in counts),
        "job_network_sent_bytes": sum(int(count[8]) for count in counts),
    }

"""The processes on each GPU: who they are, how much memory they hold, how much of the multiprocessors they use."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

import pynvml

from pulsetrain import catalog
from pulsetrain.snapshot import Event, Sample, Subject, Value
from pulsetrain.sources.nvidia.library import Gpu, Library, NvmlSource
from pulsetrain.sources.process_reader import ProcessUse
from pulsetrain.sources.processes import HIDDEN, OUTSIDE, ProcessDirectory, ProcessIdentity
from pulsetrain.units import MIB

LISTS = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
)
LOOK_BACK_SECONDS = 2.0
"""Some boards sample a process once a second: who asks again sooner must not take a busy one for idle."""


class NvidiaProcesses(NvmlSource):
    """On a cadence of its own: a list takes several calls, and a look into the process table."""

    name = "nvidia_processes"
    period = 5.0

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._directory = ProcessDirectory()
        self._use = ProcessUse()
        self._last_seen_us: dict[Gpu, int] = {}

    @staticmethod
    def supported(library: Library) -> bool:
        """Whether a board lists its processes, or may when it answers again. Under WSL none does."""
        for gpu in library.gpus:
            if not gpu.lost:
                gpu.ask(LISTS[0])
        return any(not gpu.lacks(LISTS[0]) for gpu in library.gpus)

    def collect(self) -> Iterable[Sample | Event]:
        memories = {gpu: _memory_by_pid(gpu) for gpu in self._library.gpus if not gpu.lost}
        identities = {pid: self._directory.describe(pid) for memory in memories.values() for pid in memory}
        used = self._use.look([pid for pid, who in identities.items() if who not in (OUTSIDE, HIDDEN)])
        for gpu, memory in memories.items():
            shares = self._sm_shares(gpu) if memory else None
            for pid, used_bytes in memory.items():
                values: dict[str, Value] = dict(used.get(pid, {}))
                if used_bytes is not None:
                    values["gpu_memory_mb"] = used_bytes / MIB
                share = None if shares is None else shares.get(pid, 0.0)
                if share is not None:
                    values["sm_ratio"] = share
                yield Sample(_subject(gpu, pid, identities[pid]), values)

    def _sm_shares(self, gpu: Gpu) -> dict[int, float | None] | None:
        """Mean multiprocessor share of each process since the last reading, of those that had one.

        None where the board does not know, or reports nonsense for a process.
        """
        now = time.time()
        last_seen = self._last_seen_us.get(gpu, int((now - self.period) * 1e6))
        self._last_seen_us[gpu] = newest = min(last_seen, int((now - LOOK_BACK_SECONDS) * 1e6))
        samples = gpu.ask(self._samples, gpu)
        if samples is None:
            return None
        found: dict[int, list[float]] = defaultdict(list)
        for sample in samples:
            # The driver's ring buffer also holds old samples, and now and then one over 100 %.
            if sample.timeStamp > newest:
                self._last_seen_us[gpu] = max(self._last_seen_us[gpu], sample.timeStamp)
                shares = found[sample.pid]
                if sample.smUtil <= 100:
                    shares.append(sample.smUtil / 100)
        return {pid: round(fmean(shares), 4) if shares else None for pid, shares in found.items()}

    def _samples(self, handle: Any, gpu: Gpu) -> list[Any]:
        try:
            return list(pynvml.nvmlDeviceGetProcessUtilization(handle, self._last_seen_us[gpu]))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:  # nobody used the multiprocessors
                return []
            raise


def _subject(gpu: Gpu, pid: int, who: ProcessIdentity) -> Subject:
    labels = {
        "pid": pid,
        "parent_pid": who.parent_pid,
        "user": who.user,
        "command": who.command,
        "container": who.container,
        "gpu_index": gpu.index,
        "uuid": gpu.uuid,
    }
    return catalog.subject("process", labels)


def _memory_by_pid(gpu: Gpu) -> dict[int, int | None]:
    """Bytes of GPU memory by process, None where the driver does not tell."""
    found: dict[int, int | None] = {}
    for function in LISTS:
        for process in _list(gpu, function):
            # A process that computes and draws is in both lists, with the same memory.
            found.setdefault(process.pid, process.usedGpuMemory)
    return found


def _list(gpu: Gpu, function: Callable[[Any], list[Any]]) -> list[Any]:
    for _ in range(3):  # the list may grow between asking for its size and reading it
        processes = gpu.ask(function)
        if processes is not None or gpu.lacks(function):
            break
    return processes or []

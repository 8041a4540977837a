"""The NVML library: started once for all sources that use it, and started again when it must be."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from pulsetrain import catalog
from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Event, Sample, Subject
from pulsetrain.sources import gpus
from pulsetrain.sources.selection import SelectableGpu, select

ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""A device that answers so to a question always will: it is not asked again."""

LOST = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_UNINITIALIZED,
    }
)

_WHY_NOT = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "NVML would not start: libnvidia-ml.so.1 was not found.",
        "Install the NVIDIA driver; in a container, start it with the NVIDIA runtime and "
        "NVIDIA_DRIVER_CAPABILITIES=utility.",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "NVML would not start: the driver and its library differ in version.",
        "Reboot, or reload the nvidia kernel module.",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "NVML would not start: the NVIDIA driver is not loaded.",
        "Try `sudo modprobe nvidia`; after a kernel update, install the driver again.",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "NVML would not start: no permission to talk to the driver.",
        "Check that you may read /dev/nvidiactl.",
    ),
}


@dataclass(eq=False)
class Gpu:
    """One board, as all NVIDIA sources see it."""

    index: int
    uuid: str | None
    """None until a board that was lost at the start answers."""
    name: str
    handle: Any
    subject: Subject
    lost: bool = False
    unsupported: set[object] = field(default_factory=set)
    """What this board said it does not have."""

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of an NVML function, or None: it failed, or the board does not have it, which is learned."""
        if self.lacks(function, *arguments):
            return None
        try:
            return function(self.handle, *arguments)
        except pynvml.NVMLError as error:
            if error.value in ABSENT:
                self.unsupported.add((function, *arguments))
            return None

    def lacks(self, function: Callable[..., Any], *arguments: Any) -> bool:
        """Whether the board has said that it cannot answer this."""
        return (function, *arguments) in self.unsupported


class Library:
    """An initialized NVML and the GPUs to watch in it."""

    def __init__(self, wanted: str | None = None) -> None:
        self._locks: list[threading.Lock] = []
        self._pid = 0
        self.generation = 0
        """Rises with every start of the library: what was prepared before is void."""
        self._start()
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise _unavailable(error) from None
        everything = [self._open(index) for index in range(count)]
        if not everything:
            raise Unavailable(
                "NVML works but sees no GPU.", hint="In a container, check --gpus or NVIDIA_VISIBLE_DEVICES."
            )
        chosen = select([_device(gpu) for gpu in everything], wanted)
        if not chosen.indices:
            raise Unavailable(f"{chosen.note}.")
        self.gpus = [gpu for gpu in everything if gpu.index in chosen.indices]
        self.news = [Event("gpus_selected", chosen.note)] if chosen.note else []

    def join(self) -> threading.Lock:
        """For a source: the lock to hold while reading, so that the library is not restarted under it."""
        lock = threading.Lock()
        self._locks.append(lock)
        return lock

    def after_fork(self) -> None:
        """An NVML inherited through fork is broken; start it again in the child."""
        if os.getpid() != self._pid:
            self._stop()
            self._start()
            self._reopen()

    def restart(self, own: threading.Lock) -> bool:
        """Start NVML again, as a board that was reset needs. False when another source is in the middle of a call."""
        held = []
        try:
            for lock in self._locks:
                if lock is not own:
                    if not lock.acquire(timeout=0.5):
                        return False
                    held.append(lock)
            self._stop()
            self._start()
            self._reopen()
            return True
        finally:
            for lock in held:
                lock.release()

    def reopen(self, gpu: Gpu) -> bool:
        """Look for a lost board again: by UUID, or by index when it has never answered."""
        try:
            if gpu.uuid is None:
                found = self._open(gpu.index)
                if found.lost:
                    return False
                gpu.uuid, gpu.name, gpu.handle, gpu.subject = found.uuid, found.name, found.handle, found.subject
            else:
                gpu.handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            pynvml.nvmlDeviceGetName(gpu.handle)
        except pynvml.NVMLError:
            return False
        return True

    def close(self) -> None:
        self._stop()

    def _start(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _unavailable(error) from None
        self._pid = os.getpid()
        self.generation += 1

    def _stop(self) -> None:
        with contextlib.suppress(pynvml.NVMLError):  # when it was not running, that is what we want
            pynvml.nvmlShutdown()

    def _open(self, index: int) -> Gpu:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
        except pynvml.NVMLError:
            subject = catalog.subject("gpu", {"gpu_index": index, "uuid": None, "name": "unknown"})
            return Gpu(index, None, "unknown", None, subject, lost=True)
        return Gpu(index, uuid, name, handle, gpus.subject(index, uuid, name))

    def _reopen(self) -> None:
        for gpu in self.gpus:
            if not self.reopen(gpu):
                gpu.lost = True


class NvmlSource:
    """What the NVIDIA sources have in common. `prepare` runs before the first reading and after each restart."""

    name: str
    period: float | None = None

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = library.join()
        self._prepared = 0

    def read(self) -> Iterable[Sample | Event]:
        with self._lock:
            self._library.after_fork()
            if self._prepared != self._library.generation:
                self.prepare()
                self._prepared = self._library.generation
            return list(self.collect())

    def prepare(self) -> None:
        """Make ready what the handles of this start of the library are needed for."""

    def collect(self) -> Iterable[Sample | Event]:
        raise NotImplementedError

    def close(self) -> None:
        """The tick's own source closes the library; the others have nothing to close."""


def mig_instances(gpu: Gpu) -> list[Any]:
    """Handles of a board's MIG devices; none when MIG is off or unknown to it."""
    mode = gpu.ask(pynvml.nvmlDeviceGetMigMode)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    handles = []
    for number in range(gpu.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        try:
            handles.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number))
        except pynvml.NVMLError:
            continue  # numbers are not contiguous: this slot is empty
    return handles


def _unavailable(error: Any) -> Unavailable:
    message, hint = _WHY_NOT.get(error.value, (f"NVML would not start: {error}.", "See the driver's log: dmesg."))
    broken = error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    return Unavailable(message, still="Host and training metrics continue.", hint=hint, broken=broken)


def _device(gpu: Gpu) -> SelectableGpu:
    instances = tuple(pynvml.nvmlDeviceGetUUID(handle) for handle in mig_instances(gpu)) if not gpu.lost else ()
    return SelectableGpu(gpu.index, gpu.uuid or "", gpu.name, instances)

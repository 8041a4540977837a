"""What is read of every NVIDIA GPU on every tick: cheap questions only, through prepared calls."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from ctypes import byref, c_uint, c_void_p, cast
from struct import Struct, calcsize
from typing import Any

import psutil
import pynvml

from pulsetrain.catalog.xids import XIDS, xid_label
from pulsetrain.snapshot import Event, Sample, Value
from pulsetrain.sources import gpus
from pulsetrain.sources.nvidia.library import ABSENT, LOST, Gpu, Library, NvmlSource
from pulsetrain.sources.nvidia.prepared_calls import MEMORY_FIELDS, PreparedCalls
from pulsetrain.units import MIB

Call = Callable[[dict[str, Value]], int]
"""Puts what it reads into the values and returns NVML's code."""

RETRY_SECONDS = (1, 1, 2, 2, 5, 5, 10, 10, 30)
"""Waits between looks for a lost board."""
FIRST_RESTART_SECONDS, RESTART_SECONDS = 2.0, 60.0
"""Starting NVML again stalls the healthy boards too: not more often than this, for a newly lost board and later."""
POWER_USAGE = "nvmlDeviceGetPowerUsage"
UNIFIED_MEMORY = ("GB10", "Thor", "Orin")
"""Boards without memory of their own, which share the host's."""


class Nvidia(NvmlSource):
    """Utilization, memory, temperature, power, energy, clocks, throttling; lost boards and XID errors."""

    name = "nvidia"

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._calls: dict[Gpu, list[Call]] = {}
        self._xids: _Xids | None = None
        self._xid_counts: dict[Gpu, Counter[str]] = {}
        """By the label of their number. Boards that report none are not in it."""
        self._xids_outdated = False
        self._news: list[Event] = list(library.news)
        self._news += [
            Event(
                "shared_memory",
                f"GPU {gpu.index} ({gpu.name}) shares the host's memory: its memory figures may be the host's",
            )
            for gpu in library.gpus
            if shares_host_memory(gpu)
        ]
        self._tries: dict[Gpu, int] = {}
        self._retry_at: dict[Gpu, float] = {}
        self._restarted_at = time.monotonic()

    def prepare(self) -> None:
        self._calls = {gpu: prepare_calls(gpu) for gpu in self._library.gpus if not gpu.lost}
        self._watch_xids()

    def collect(self) -> Iterable[Sample | Event]:
        yield from self._news
        self._news = []
        if self._xids:
            yield from self._read_xids(self._xids)
            if self._xids_outdated:
                self._xids.close()
                self._watch_xids()
        for gpu in self._library.gpus:
            if gpu.lost and not self._try_again(gpu):
                if gpu not in self._tries:
                    yield self._lose(gpu, "it does not answer")
                yield Sample(gpu.subject, self._lost_values(gpu))
                continue
            if gpu in self._tries:
                yield self._found(gpu)
            values: dict[str, Value] = {"up": 1}
            if reason := self._ask(gpu, values):
                yield self._lose(gpu, reason)
                values = self._lost_values(gpu)
            elif gpu in self._xid_counts:
                values |= self._xid_values(gpu)
            yield Sample(gpu.subject, values)

    def close(self) -> None:
        self._library.close()

    def _ask(self, gpu: Gpu, values: dict[str, Value]) -> str | None:
        """Fill in the values of one board; the reason, when it is lost instead."""
        error = 0
        calls = self._calls[gpu]
        for call in calls:
            code = call(values)
            if code:
                error = code
                if code in LOST:
                    break
        # A board of which nothing at all can be read is lost too: in a container whose device access was revoked,
        # every call ends in an unknown error.
        if error in LOST or (error and _is_silent(values, calls)):
            return str(pynvml.NVMLError(error))
        return None

    def _lose(self, gpu: Gpu, reason: str) -> Event:
        gpu.lost = True
        self._xids_outdated = True  # one lost board may spoil the waiting for all
        self._tries[gpu] = 0
        self._retry_at[gpu] = time.monotonic() + RETRY_SECONDS[0]
        return gpus.lost(gpu.index, gpu.uuid or "unknown", gpu.name, reason)

    def _found(self, gpu: Gpu) -> Event:
        del self._tries[gpu]
        self._xids_outdated = True
        return gpus.back(gpu.index, gpu.uuid or "unknown", gpu.name)

    def _try_again(self, gpu: Gpu) -> bool:
        """Look for a lost board, with increasing delay."""
        now = time.monotonic()
        if now < self._retry_at.get(gpu, 0.0):
            return False
        tries = self._tries.get(gpu, 0)
        self._retry_at[gpu] = now + RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
        if gpu in self._tries:
            self._tries[gpu] += 1
        if self._answers(gpu):
            gpu.lost = False
            return True
        # Boards that were lost together share one restart.
        pause = FIRST_RESTART_SECONDS if tries == 2 else RESTART_SECONDS
        if tries >= 2 and now - self._restarted_at > pause:
            self._restarted_at = now
            if self._library.restart(self._lock):
                self.prepare()
                self._prepared = self._library.generation
                gpu.lost = not self._answers(gpu)
        return not gpu.lost

    def _answers(self, gpu: Gpu) -> bool:
        if not self._library.reopen(gpu):
            return False
        self._calls[gpu] = prepare_calls(gpu)
        return self._ask(gpu, {"up": 1}) is None

    def _watch_xids(self) -> None:
        self._xids = _Xids(self._library.gpus)
        self._xids_outdated = False
        for gpu in self._xids.registered:
            self._xid_counts.setdefault(gpu, Counter())

    def _read_xids(self, xids: "_Xids") -> Iterator[Event]:
        for gpu, xid in xids.read():
            self._xid_counts[gpu][xid_label(xid)] += 1
            about = XIDS.get(xid)
            meaning = f"{about.meaning}: {about.action}" if about else "see NVIDIA's list of XID errors"
            yield Event(
                "xid",
                f"GPU {gpu.index} ({gpu.name}): XID {xid}, {meaning}",
                "critical" if about and about.critical else "warning",
                {"gpu_index": gpu.index, "uuid": gpu.uuid, "xid": xid},
            )

    def _xid_values(self, gpu: Gpu) -> dict[str, Value]:
        counts = self._xid_counts[gpu]
        return {"xid_errors": counts.total(), **({"xid_code_errors": dict(counts)} if counts else {})}

    def _lost_values(self, gpu: Gpu) -> dict[str, Value]:
        """Nothing is known of a lost board but what the driver said of it: often the very error that it was lost by."""
        return gpus.lost_values() | (self._xid_values(gpu) if self._xid_counts.get(gpu) else {})


def _is_silent(values: dict[str, Value], calls: list[Call]) -> bool:
    """Whether a board reported nothing of its own."""
    borrowed = MEMORY_FIELDS if _shared_memory in calls else ()
    return values.keys() - borrowed == {"up"}


def prepare_calls(gpu: Gpu) -> list[Call]:
    """The calls of a tick for one board."""
    calls: list[Call] = [PreparedCalls(gpu), _Fields(pynvml.nvmlLib, gpu)]
    memory = pynvml.nvmlDeviceGetMemoryInfo
    if shares_host_memory(gpu) and gpu.ask(memory) is None and gpu.lacks(memory):
        calls.append(_shared_memory)
    return calls


def shares_host_memory(gpu: Gpu) -> bool:
    return any(name in gpu.name for name in UNIFIED_MEMORY)


def _shared_memory(values: dict[str, Value]) -> int:
    memory = psutil.virtual_memory()
    values["memory_used_mb"] = (memory.total - memory.available) / MIB
    values["memory_free_mb"] = memory.available / MIB
    values["memory_total_mb"] = memory.total / MIB
    values["memory_percent"] = gpus.memory_percent(memory.total - memory.available, memory.total)
    return 0


class _Fields:
    """Power, energy and memory temperature: many fields in one call, each with its own code and type."""

    FIELDS = (
        (pynvml.NVML_FI_DEV_POWER_INSTANT, "power_instant_watts", 1000),
        (pynvml.NVML_FI_DEV_POWER_AVERAGE, "power_average_watts", 1000),
        (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, "energy_joules", 1000),
        (pynvml.NVML_FI_DEV_MEMORY_TEMP, "memory_temperature_celsius", 1),
    )
    """NVML's number, our field, and what to divide by."""

    def __init__(self, library: Any, gpu: Gpu) -> None:
        self._gpu = gpu
        self._function = library.nvmlDeviceGetFieldValues
        self._power: Call | None = None
        self._choose()

    def _choose(self) -> None:
        self._fields = [field for field in self.FIELDS if field[0] not in self._gpu.unsupported]
        self._array = (pynvml.c_nvmlFieldValue_t * len(self._fields))()
        for view, (number, _, _) in zip(self._array, self._fields, strict=True):
            view.fieldId = number
        self._arguments = (self._gpu.handle, len(self._fields), byref(self._array))
        self._expect((pynvml.NVML_VALUE_TYPE_UNSIGNED_INT,) * len(self._fields))
        names = {name for _, name, _ in self._fields}
        if not names & {"power_instant_watts", "power_average_watts"} and POWER_USAGE not in self._gpu.unsupported:
            self._power = _power_usage(self._gpu)

    def _expect(self, types: tuple[int, ...]) -> None:
        """Make ready to read answers of these types. They come with the answers, and hardly ever change."""
        self._types = types
        # Of each field: skip number, scope, timestamp and latency; then its type, its code and eight bytes of value.
        # One that failed may have any type.
        self._unpack = Struct("".join(f"24xIi{_LAYOUT.get(type, 'Q')}" for type in types)).unpack_from

    def __call__(self, values: dict[str, Value]) -> int:
        code: int = self._function(*self._arguments) if self._fields else 0
        if code:
            if code not in ABSENT:
                return code
            self._drop([number for number, _, _ in self._fields])
            return self(values)
        answers = self._unpack(self._array)
        if answers[0::3] != self._types:
            self._expect(answers[0::3])
            answers = self._unpack(self._array)
        failure = 0
        absent = []
        position = 1
        for number, name, divisor in self._fields:
            code = answers[position]
            if code == 0:
                values[name] = answers[position + 1] / divisor
            elif code in ABSENT:
                absent.append(number)
            else:
                failure = code
            position += 3
        if absent:
            self._drop(absent)
        if self._power is not None:
            code = self._power(values)
            if code in ABSENT:
                self._gpu.unsupported.add(POWER_USAGE)
                self._power = None
            else:
                failure = failure or code
        power = values.get("power_instant_watts", values.get("power_average_watts"))
        if power is not None:
            values["power_draw_watts"] = power
        return failure

    def _drop(self, numbers: list[int]) -> None:
        self._gpu.unsupported.update(numbers)
        self._choose()


_LAYOUT = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "d",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "I4x",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "L" if calcsize("L") == 8 else "L4x",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "Q",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "q",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "i4x",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "H6x",
}
"""How to read a field's eight bytes, by its type."""


def _power_usage(gpu: Gpu) -> Call:
    """The older power call."""
    field = "power_average_watts" if usage_is_average(gpu) else "power_instant_watts"
    function = getattr(pynvml.nvmlLib, POWER_USAGE)
    milliwatts = c_uint()
    handle, pointer = gpu.handle, byref(milliwatts)

    def call(values: dict[str, Value]) -> int:
        code: int = function(handle, pointer)
        if code == 0:
            values[field] = milliwatts.value / 1000
        return code

    return call


def usage_is_average(gpu: Gpu) -> bool:
    """Whether the older power call gives a mean over a second: from Ampere on, except on GA100."""
    architecture = gpu.ask(pynvml.nvmlDeviceGetArchitecture) or 0
    return architecture >= pynvml.NVML_DEVICE_ARCH_AMPERE and not is_ga100(gpu)


def is_ga100(gpu: Gpu) -> bool:
    """A100 and A30, whose power sensor is not that of other Ampere boards."""
    return tuple(gpu.ask(pynvml.nvmlDeviceGetCudaComputeCapability) or ()) == (8, 0)


class _Xids:
    """XID errors, which the driver hands out as they happen."""

    def __init__(self, devices: list[Gpu]) -> None:
        self.registered: list[Gpu] = []
        self._by_handle: dict[int | None, Gpu] = {}
        self._set = None
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        for gpu in devices:
            if gpu.lost or gpu.uuid is None:
                continue
            try:
                pynvml.nvmlDeviceRegisterEvents(gpu.handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
            except pynvml.NVMLError:
                continue  # some boards and systems report none
            self.registered.append(gpu)
            self._by_handle[cast(gpu.handle, c_void_p).value] = gpu
        self._data = pynvml.c_nvmlEventData_t()
        self._pointer = byref(self._data)
        self._wait = pynvml.nvmlLib.nvmlEventSetWait_v2

    def read(self) -> Iterator[tuple[Gpu, int]]:
        """What has come since the last reading; never waits."""
        while self.registered and self._wait(self._set, self._pointer, 0) == 0:
            gpu = self._by_handle.get(cast(self._data.device, c_void_p).value)
            if gpu is not None:
                yield gpu, self._data.eventData

    def close(self) -> None:
        if self._set is not None:
            pynvml.nvmlLib.nvmlEventSetFree(self._set)

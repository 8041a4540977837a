"""What a tick asks of one NVIDIA board in single calls: prepared, so that asking costs little more than the C calls.

Functions, arguments and places for the answers are made once, and one unpacking reads all answers.
"""

from collections.abc import Iterator
from ctypes import Structure, byref, c_uint, c_ulonglong
from struct import Struct
from typing import Any

import pynvml

from pulsetrain.snapshot import Value
from pulsetrain.sources.gpus import memory_percent
from pulsetrain.sources.nvidia.library import ABSENT, LOST, Gpu
from pulsetrain.sources.throttle import throttle_words
from pulsetrain.units import MIB

MEMORY_FIELDS = ("memory_used_mb", "memory_free_mb", "memory_total_mb", "memory_percent")


class _Answers(Structure):
    """Where NVML puts them."""

    _fields_ = (
        ("memory", pynvml.c_nvmlMemory_v2_t),
        ("throttle_reasons", c_ulonglong),
        ("utilization", pynvml.c_nvmlUtilization_t),
        ("temperature", c_uint),
        ("clock_sm", c_uint),
        ("clock_memory", c_uint),
        ("fan_speed", c_uint),
        ("performance_state", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
        ("sampling_period", c_uint),
    )


PreparedCall = tuple[Any, tuple[Any, ...], tuple[str, ...]]
"""A function, its arguments, and the fields that have no value when it fails."""


class PreparedCalls:
    """The single calls of a tick for one board. What it does not have is not asked again."""

    def __init__(self, gpu: Gpu) -> None:
        self._answers = _Answers()
        self._answers.memory.version = pynvml.nvmlMemory_v2
        self._calls = list(self._prepare(pynvml.nvmlLib, gpu.handle))
        self._absent: tuple[str, ...] = ()

    def __call__(self, values: dict[str, Value]) -> int:
        """Put the answers into the values; NVML's code when something failed that this board has."""
        failure = 0
        missing = self._absent
        for call in self._calls:
            function, arguments, fields = call
            code = function(*arguments)
            if code:
                if code in LOST:
                    return int(code)
                missing += fields
                if code in ABSENT:
                    self._absent += fields
                    self._calls = [kept for kept in self._calls if kept is not call]
                else:
                    failure = code
        total, free, used, reasons, busy, memory_busy, celsius, sm_mhz, memory_mhz, fan, state, encoder, decoder = (
            self._unpack(self._answers)
        )
        values["utilization_percent"] = busy
        values["memory_controller_ratio"] = memory_busy / 100
        values["memory_used_mb"] = used / MIB
        values["memory_free_mb"] = free / MIB
        values["memory_total_mb"] = total / MIB
        values["memory_percent"] = memory_percent(used, total)
        values["temperature_celsius"] = celsius
        values["clock_sm_hertz"] = sm_mhz * 1e6
        values["clock_memory_hertz"] = memory_mhz * 1e6
        values["fan_speed_percent"] = fan
        values["throttle_reasons"] = throttle_words(reasons)
        values["performance_state"] = state
        values["encoder_ratio"] = encoder / 100
        values["decoder_ratio"] = decoder / 100
        for field in missing:
            del values[field]
        return failure

    def _prepare(self, library: Any, handle: Any) -> Iterator[PreparedCall]:
        def ask(name: str, *arguments: Any, fields: tuple[str, ...]) -> PreparedCall:
            return getattr(library, name), (handle, *arguments), fields

        def place(name: str) -> Any:
            return byref(self._answers, getattr(_Answers, name).offset)

        memory, layout = "nvmlDeviceGetMemoryInfo_v2", "8xQ8xQQ"
        if not hasattr(library, memory):  # the older call counts what the driver reserves for itself as used
            memory, layout = "nvmlDeviceGetMemoryInfo", "QQQ16x"
        self._unpack = Struct(f"{layout}Q9I").unpack_from
        reasons = "nvmlDeviceGetCurrentClocksEventReasons"
        if not hasattr(library, reasons):
            reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
        clock, period = "nvmlDeviceGetClockInfo", place("sampling_period")
        busy = ("utilization_percent", "memory_controller_ratio")
        yield ask("nvmlDeviceGetUtilizationRates", place("utilization"), fields=busy)
        yield ask(memory, place("memory"), fields=MEMORY_FIELDS)
        yield ask("nvmlDeviceGetTemperature", 0, place("temperature"), fields=("temperature_celsius",))
        yield ask(clock, pynvml.NVML_CLOCK_SM, place("clock_sm"), fields=("clock_sm_hertz",))
        yield ask(clock, pynvml.NVML_CLOCK_MEM, place("clock_memory"), fields=("clock_memory_hertz",))
        yield ask("nvmlDeviceGetFanSpeed", place("fan_speed"), fields=("fan_speed_percent",))
        yield ask(reasons, place("throttle_reasons"), fields=("throttle_reasons",))
        yield ask("nvmlDeviceGetPerformanceState", place("performance_state"), fields=("performance_state",))
        yield ask("nvmlDeviceGetEncoderUtilization", place("encoder"), period, fields=("encoder_ratio",))
        yield ask("nvmlDeviceGetDecoderUtilization", place("decoder"), period, fields=("decoder_ratio",))

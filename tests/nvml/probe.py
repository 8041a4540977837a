"""Answers expressions about NVML in a process of its own, as a loaded library cannot be exchanged.

Reads a request as JSON from standard input and writes the list of answers. Expressions see all names of nvidia-ml-py
and the functions below; an NVML error is answered by its name, such as "NotSupported".
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pynvml
from tests.nvml.clock import Clock


def gpu(index: int) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def mig(index: int, number: int) -> Any:
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(index), number)


def field(index: int, number: int, scope: int = 0) -> int:
    answer = pynvml.nvmlDeviceGetFieldValues(gpu(index), [(number, scope)])[0]
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    is_int = answer.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return int(answer.value.uiVal if is_int else answer.value.ullVal)


def energy_and_time() -> tuple[float, float]:
    """Joules on the counter of GPU 0, and the second at which that was."""
    answer = pynvml.nvmlDeviceGetFieldValues(gpu(0), [pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION])[0]
    return answer.value.ullVal / 1e3, answer.timestamp / 1e6


def gpm(sample: Callable[[Any], Any], wait_s: float, metrics: Sequence[int]) -> list[tuple[int, float]]:
    """The result code and value of GPM metrics between two samples."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    for slot, metric in zip(request.metrics, metrics, strict=False):
        slot.metricId = metric
    request.sample1 = sample(pynvml.nvmlGpmSampleAlloc())
    time.sleep(wait_s)
    request.sample2 = sample(pynvml.nvmlGpmSampleAlloc())
    pynvml.nvmlGpmMetricsGet(request)
    pynvml.nvmlGpmSampleFree(request.sample1)
    pynvml.nvmlGpmSampleFree(request.sample2)
    return [(slot.nvmlReturn, slot.value) for slot in request.metrics[: len(metrics)]]


def watch(*indices: int) -> Any:
    """An event set that watches some GPUs for XIDs."""
    events = pynvml.nvmlEventSetCreate()
    for index in indices:
        pynvml.nvmlDeviceRegisterEvents(gpu(index), pynvml.nvmlEventTypeXidCriticalError, events)
    return events


def next_xid(events: Any, timeout_ms: int) -> int:
    return int(pynvml.nvmlEventSetWait(events, timeout_ms).eventData)


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    begin = time.monotonic()
    function(*arguments)
    return time.monotonic() - begin


def background(expression: str, threads: int = 1, times: int = 1) -> list[threading.Thread]:
    def work() -> None:
        for _ in range(times):
            answer(expression)

    started = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    return started


def in_child(expression: str) -> Any:
    """The answer of a forked child."""
    receive, send = os.pipe()
    if os.fork() == 0:
        os.write(send, json.dumps(answer(expression)).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(receive, 10_000))


def calls(function: str | None = None) -> int:
    count = pynvml.nvmlLib.pulsetrain_test_calls
    count.restype = ctypes.c_ulonglong
    return int(count(function and function.encode()))


def truth(index: int, start: float, end: float) -> float:
    """Joules of a GPU between two moments of the monotonic clock."""
    energy = pynvml.nvmlLib.pulsetrain_test_energy
    energy.restype = ctypes.c_double
    return float(energy(index, ctypes.c_double(start), ctypes.c_double(end)))


def loop(ticks: int) -> float:
    run = pynvml.nvmlLib.pulsetrain_test_loop
    run.restype = ctypes.c_double
    return float(run(ticks))


def plain(value: Any) -> Any:
    """Structures and arrays as dicts and lists, for JSON."""
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, pynvml.nvmlFriendlyObject):
        return vars(value)
    return value.value if isinstance(value, (ctypes.c_uint, ctypes.c_int)) else value


def answer(expression: str) -> Any:
    try:
        return plain(eval(expression, NAMES))
    except pynvml.NVMLError as error:
        return type(error).__name__.removeprefix("NVMLError_")


NAMES: dict[str, Any] = vars(pynvml) | globals()


def main() -> None:
    request = json.load(sys.stdin)
    if request["at"] is not None:
        Clock(request["at"])
    if request["start"]:
        pynvml.nvmlInit()
    json.dump([answer(expression) for expression in request["expressions"]], sys.stdout, default=repr)


if __name__ == "__main__":
    main()

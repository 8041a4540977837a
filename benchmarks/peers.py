"""How others read the same boards: each of these gives a function that reads all of them once."""

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

Read = Callable[[], Any]

FIELDS = [
    pynvml.NVML_FI_DEV_POWER_INSTANT,
    pynvml.NVML_FI_DEV_POWER_AVERAGE,
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    pynvml.NVML_FI_DEV_MEMORY_TEMP,
]


def nvidia_ml_py(*, fan: bool = True) -> Read:
    """A plain loop over the fields of our tick; the answers are thrown away.

    To find out that an H100 has no fan, it must ask, each time. Ours asks once, and then makes the calls of `no fan`.
    """
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def read() -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetUtilizationRates(handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            pynvml.nvmlDeviceGetFieldValues(handle, FIELDS)
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
            if fan:
                try:  # noqa: SIM105 - a context manager would cost more
                    pynvml.nvmlDeviceGetFanSpeed(handle)
                except pynvml.NVMLError:
                    pass
            pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            pynvml.nvmlDeviceGetPerformanceState(handle)
            pynvml.nvmlDeviceGetEncoderUtilization(handle)
            pynvml.nvmlDeviceGetDecoderUtilization(handle)

    return read


def nvitop() -> Read:
    """Its snapshot of every device. Some of its values are up to a second old, which favors it here."""
    from nvitop import Device

    devices = Device.all()
    return lambda: [device.as_snapshot() for device in devices]


def gpustat() -> Read:
    from gpustat import new_query

    def read() -> None:
        new_query()

    return read


def nvidia_ml_py_thread() -> None:
    """A thread that reads every second, as scripts have it beside their training."""
    read, pause = nvidia_ml_py(), threading.Event()

    def loop() -> None:
        while not pause.wait(1.0):
            read()

    threading.Thread(target=loop, daemon=True).start()


def nvitop_collector() -> None:
    """Its collector of GPU, host and process metrics, every second."""
    from nvitop import Device, ResourceMetricCollector

    ResourceMetricCollector(Device.all(), interval=1.0).daemonize(lambda metrics: True)


def sleep() -> None:
    """Nothing but ticks on a grid of 0.1 s, as ours at 10 Hz: how late the machine lets anybody be.

    Writes the seconds since its start into a file, one line for each tick.
    """

    def loop() -> None:
        start, number = time.monotonic(), 0
        with Path("sleep.txt").open("w", buffering=1) as file:
            while True:
                file.write(f"{time.monotonic() - start:.3f}\n")
                number += 1
                time.sleep(max(0.0, start + number * 0.1 - time.monotonic()))

    threading.Thread(target=loop, daemon=True).start()


BACKGROUND = {"nvidia-ml-py": nvidia_ml_py_thread, "nvitop": nvitop_collector, "time.sleep": sleep}
"""Start something every second in a thread, or on a finer grid."""
PYTHON: dict[str, Callable[[], Read]] = {
    "nvidia-ml-py": nvidia_ml_py,
    "nvidia-ml-py, no fan": lambda: nvidia_ml_py(fan=False),
    "nvitop": nvitop,
    "gpustat": gpustat,
}
"""By the name of the package."""
MODULES = {"nvidia-ml-py": "pynvml", "nvidia-ml-py, no fan": "pynvml", "nvitop": "nvitop", "gpustat": "gpustat"}


def c_loop(ticks: int) -> float:
    """The calls of our tick, straight from C: seconds for so many ticks."""
    loop = ctypes.CDLL("libnvidia-ml.so.1").pulsetrain_test_loop
    loop.restype = ctypes.c_double
    return float(loop(ticks))


if __name__ == "__main__":
    BACKGROUND[sys.argv[1]]()
    signal.pause()

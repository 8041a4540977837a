"""How others measure the energy of the same boards, each in a process of its own for a window of so many seconds."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pynvml

Joules = Sequence[float | None]
"""One figure for each GPU, or for each of equal groups of them; None where the tool gives none."""
TOGETHER = 8
JOULES_PER_KWH = 3.6e6


class Meter(Protocol):
    """What a tool is asked to do. Setting it up, imports and all, is done before the window begins."""

    interval: float
    """Seconds to sleep after each poll."""

    def begin(self) -> None: ...

    def poll(self) -> None: ...

    def end(self) -> None:
        """Take the last reading. What follows is arithmetic and no part of the window."""

    def joules(self) -> Joules: ...


class Polls:
    """Scripts that multiply each reading with the interval that they asked for, not with the one they got.

    A reading counts when its interval is over, so that none reaches beyond the end of the window.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        pynvml.nvmlInit()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        self._joules = [0.0] * len(self._handles)
        self._watts = [0.0] * len(self._handles)

    def begin(self) -> None:
        pass

    def poll(self) -> None:
        for index, handle in enumerate(self._handles):
            self._joules[index] += self._watts[index] * self.interval
            self._watts[index] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000

    def end(self) -> None:
        pass

    def joules(self) -> Joules:
        return self._joules


class CodeCarbon:
    """Its GPU part at the pace of its tracker, which itself tells only the sum over all GPUs."""

    interval = 1.0
    MEASURE_EVERY = 15

    def __init__(self) -> None:
        from codecarbon.core.units import Time
        from codecarbon.external.hardware import GPU

        logging.getLogger("codecarbon").setLevel(logging.CRITICAL)  # it warns of each GPU without a counter
        self._time = Time
        self._gpu = GPU.from_utils()
        self._joules = [0.0] * self._gpu.num_gpus
        self._polls = 0

    def begin(self) -> None:
        self._measured = time.perf_counter()
        self._gpu.start()

    def poll(self) -> None:
        if self._polls and self._polls % self.MEASURE_EVERY == 0:
            self.end()
        self._polls += 1
        self._gpu.monitor_power()

    def end(self) -> None:
        now = time.perf_counter()
        for device in self._gpu.devices.get_delta(self._time.from_seconds(now - self._measured)):
            self._joules[device["gpu_index"]] += device["delta_energy_consumption"].kWh * JOULES_PER_KWH
        self._measured = now

    def joules(self) -> Joules:
        return self._joules


class Zeus:
    """A window of its monitor, which wants an energy counter from Volta on."""

    interval = float("inf")

    def __init__(self) -> None:
        from zeus.monitor import ZeusMonitor

        self._monitor = ZeusMonitor(cpu_indices=[])

    def begin(self) -> None:
        self._monitor.begin_window("benchmark", sync_execution=False)

    def poll(self) -> None:
        pass

    def end(self) -> None:
        self._measured = self._monitor.end_window("benchmark", sync_execution=False)

    def joules(self) -> Joules:
        energy: dict[int, float] = self._measured.gpu_energy
        return [energy[index] for index in sorted(energy)]


class ZeusPower:
    """Its power monitor, for boards without a counter.

    With the period that it chooses by itself it polls without a pause: it is given the longest that it allows itself.
    """

    interval = float("inf")
    PERIOD_SECONDS = 0.1

    def __init__(self) -> None:
        from zeus.monitor import PowerMonitor

        self._monitor = PowerMonitor(update_period=self.PERIOD_SECONDS)

    def begin(self) -> None:
        self._begin = time.time()

    def poll(self) -> None:
        pass

    def end(self) -> None:
        self._end = time.time()

    def joules(self) -> Joules:
        """Its readings wait in a pipe that holds few of them: it is asked until its answer stays the same."""
        try:
            energy, before = self._energy(), None
            while energy != before:
                energy, before = self._energy(), energy
        except ValueError:  # it reads power by fields that not every board has
            return [None] * len(self._monitor.gpu_indices)
        finally:
            self._monitor.stop()
        return energy

    def _energy(self) -> list[float]:
        time.sleep(5 * self.PERIOD_SECONDS)
        energy = self._monitor.get_energy(self._begin, self._end)
        return [energy[index] for index in sorted(energy)]


class CarbonTracker:
    """Its GPU component, as its thread drives it: for each GPU, or for eight of them, as one machine has them."""

    interval = 1.0

    def __init__(self, together: int) -> None:
        from carbontracker.components.component import Component

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        self._components = []
        for first in range(0, count, together):
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + together)))
            component = Component("gpu", pids=[], devices_by_pid=False, logger=None)
            component.init()
            self._components.append(component)

    def begin(self) -> None:
        self._begin = time.time()

    def poll(self) -> None:
        for component in self._components:
            component.collect_power_usage(epoch=1)

    def end(self) -> None:
        self._seconds = time.time() - self._begin

    def joules(self) -> Joules:
        return [component.energy_usage([self._seconds])[0] * JOULES_PER_KWH for component in self._components]


def _has_counter() -> bool:
    pynvml.nvmlInit()
    try:
        pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError_NotSupported:
        return False
    return True


METERS: dict[str, Callable[[], Meter]] = {
    "polls every 5 s": lambda: Polls(5.0),
    "polls every 1 s": lambda: Polls(1.0),
    "codecarbon": CodeCarbon,
    "zeus": lambda: Zeus() if _has_counter() else ZeusPower(),
    "carbontracker": lambda: CarbonTracker(1),
    "carbontracker, 8 GPUs": lambda: CarbonTracker(TOGETHER),
}
MODULES = {
    "codecarbon": "codecarbon",
    "zeus": "zeus",
    "carbontracker": "carbontracker",
    "carbontracker, 8 GPUs": "carbontracker",
}


def measure(meter: Meter, seconds: float) -> dict[str, Any]:
    """What it made of the window, and from when to when that was on the monotonic clock."""
    begin = _moment(meter.begin)
    while (left := begin + seconds - time.monotonic()) > 0:
        meter.poll()
        time.sleep(min(meter.interval, left))
    return {"window": (begin, _moment(meter.end)), "joules": meter.joules()}


def _moment(act: Callable[[], None]) -> float:
    """When it was done: the middle of the call, as readings of many boards take a moment."""
    before = time.monotonic()
    act()
    return (before + time.monotonic()) / 2


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # peers greet on standard output, which is to carry our answer alone
    sys.modules["amdsmi"] = None  # type: ignore[assignment]  # complains at length where there is no AMD driver
    ready = METERS[sys.argv[1]]()
    print("ready", file=answer, flush=True)
    sys.stdin.read()  # until it is closed: all begin together, and nobody measures while others still load
    json.dump(measure(ready, float(sys.argv[2])), answer)

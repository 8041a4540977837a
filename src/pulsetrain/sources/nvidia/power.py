"""What it takes to know a board's energy, beside its counter at every tick.

Where the counter is missing or stuck, power is polled many times a second. Where it works, it moves about ten
times a second: at the first and the last reading its moves are waited for, so that the edges of a run are known too.
"""

import math
import time
from collections.abc import Callable, Iterable
from ctypes import byref, c_uint
from typing import NamedTuple

import pynvml

from pulsetrain.snapshot import Event, Sample
from pulsetrain.sources.nvidia.library import Gpu, Library, NvmlSource
from pulsetrain.sources.nvidia.tick import POWER_USAGE, is_ga100, usage_is_average
from pulsetrain.sources.polling import EnergyIntegral, PowerPoller, PowerSensor

STILL_SECONDS = 2.0
"""A counter that has not moved for so long does not work: no board draws nothing."""
CHECK_SECONDS = 5.0
"""How often counters that work are checked."""
LOOK_SECONDS = 0.001
"""Between looks for a move of the counter."""
FIRST_SECONDS, LAST_SECONDS = 0.25, 0.15
"""How long to look for moves: two at the first reading, which tell how far apart they are, and one at the last."""
UPDATE_SECONDS = 0.1
"""Between two moves of a counter, where they have not been seen."""

ONE_SECOND_MEAN = PowerSensor(update_seconds=0.1, window_seconds=1.0)
QUARTER_SEEN = PowerSensor(update_seconds=0.1, window_seconds=0.025)
"""Of GA100 and Hopper; and of what is not known, to be on the safe side."""
ALL_SEEN = PowerSensor(update_seconds=0.1, window_seconds=0.1)
INSTANT_SENSORS = {
    pynvml.NVML_DEVICE_ARCH_PASCAL: PowerSensor(update_seconds=0.02, window_seconds=0.01),
    pynvml.NVML_DEVICE_ARCH_VOLTA: PowerSensor(update_seconds=0.02, window_seconds=0.01),
    pynvml.NVML_DEVICE_ARCH_TURING: ALL_SEEN,
    pynvml.NVML_DEVICE_ARCH_AMPERE: ALL_SEEN,
    pynvml.NVML_DEVICE_ARCH_ADA: ALL_SEEN,
}
"""How instant power is measured, by architecture (arXiv 2312.02741)."""

Ask = Callable[[], int | None]
"""A prepared question: the answer in thousandths, or None when there is none."""


class PolledPower(NvmlSource):
    """Energy from power, of the boards whose counter does not work. All count as such until theirs has moved."""

    name = "nvidia_power"

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self.period: float | None = None
        self._boards = [_Board(gpu) for gpu in library.gpus]
        self._poller = PowerPoller("poll-nvidia", self._look)

    def prepare(self) -> None:
        for board in self._boards:
            board.forget_handle()

    def collect(self) -> Iterable[Sample | Event]:
        now = time.monotonic()
        for board in self._boards:
            board.check_counter(now)
        polled = [(board.gpu.subject, board.energy) for board in self._boards if board.energy is not None]
        if polled:
            self._poller.start()
        # Nothing is asked at a tick of boards whose counter works.
        self.period = None if polled else CHECK_SECONDS
        return [Sample(subject, energy.values(now)) for subject, energy in polled]

    def close(self) -> None:
        self._poller.close()

    def _look(self) -> bool:
        """Look at the power of all boards that need it; False when there are none."""
        with self._lock:
            polled = [board for board in self._boards if board.energy is not None]
            if self._prepared == self._library.generation:
                for board in polled:
                    board.look()
            return bool(polled)


class _Board:
    """One board: whether its counter works, and else its energy from power."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.energy: EnergyIntegral | None = None
        """None while the counter works, and where there is no power to look at."""
        self._counter: Ask | None = None
        self._power: Ask | None = None
        self._count: int | None = None
        self._moved_at = -math.inf

    def forget_handle(self) -> None:
        self._counter = self._power = None

    def check_counter(self, now: float) -> None:
        if self.gpu.lost:
            self.forget_handle()
            return
        if self._counter is None:
            self._counter = _field(self.gpu, pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
        count = self._counter()
        if count is not None and self._count is not None and count != self._count:
            self._moved_at = now
            self.energy = None
        elif now - self._moved_at > STILL_SECONDS and self.energy is None and (chosen := _power_sensor(self.gpu)):
            self._power, sensor = chosen
            self.energy = EnergyIntegral(sensor, _limit_watts(self.gpu))
            self.look()
        self._count = self._count if count is None else count

    def look(self) -> None:
        assert self.energy is not None
        if self._power is None and not self.gpu.lost and (chosen := _power_sensor(self.gpu)):
            self._power = chosen[0]
        milliwatts = None if self._power is None or self.gpu.lost else self._power()
        self.energy.add(time.monotonic(), None if milliwatts is None else milliwatts / 1000)


class CounterEdges(NvmlSource):
    """The counter at the very moment of the first and the last reading, found from its next move.

    It is asked at the first two ticks, which wait for it, and then only when everything is read a last time.
    """

    name = "nvidia_edges"

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self.period: float | None = None
        self._readings = 0
        self._update_seconds: dict[Gpu, float] = {}

    def collect(self) -> Iterable[Sample | Event]:
        begin = time.monotonic()
        self._readings += 1
        if self._readings == 1:
            return self._samples(begin, moves=2, seconds=FIRST_SECONDS)
        self.period = math.inf  # not before the second reading: the first belongs to its tick even when it is late
        return self._samples(begin, moves=1, seconds=LAST_SECONDS)

    def _samples(self, begin: float, moves: int, seconds: float) -> list[Sample]:
        watches = [_Watch(gpu, begin) for gpu in self._library.gpus if not gpu.lost]
        waiting = watches
        while waiting and time.monotonic() < begin + seconds:
            time.sleep(LOOK_SECONDS)
            waiting = [watch for watch in waiting if watch.look() and len(watch.moves) < moves]
        return [sample for watch in watches if (sample := self._sample(watch, begin))]

    def _sample(self, watch: "_Watch", begin: float) -> Sample | None:
        if not watch.moves:
            return None
        if len(watch.moves) > 1:
            self._update_seconds[watch.gpu] = watch.moves[1].at - watch.moves[0].at
        update_seconds = self._update_seconds.get(watch.gpu, UPDATE_SECONDS)
        joules, error = interpolate(watch.moves[0], begin, update_seconds, _limit_watts(watch.gpu))
        return Sample(
            watch.gpu.subject,
            {
                "energy_interpolated_joules": round(joules, 3),
                "energy_interpolation_error_joules": round(error, 3),
                "energy_interpolation_watts": round(watch.moves[0].rise_joules / update_seconds, 3),
                # On a busy machine this is some milliseconds after the tick, of which only the sampler knows.
                "energy_interpolated_monotonic_seconds": round(begin, 6),
            },
        )


class CounterMove(NamedTuple):
    """One move of a counter."""

    at: float
    uncertain_seconds: float
    """It may have been so much earlier or later."""
    before_joules: float
    after_joules: float

    @property
    def rise_joules(self) -> float:
        return self.after_joules - self.before_joules


def interpolate(move: CounterMove, at: float, update_seconds: float, limit_watts: float | None) -> tuple[float, float]:
    """Energy at a moment before a move, and how far it may be off: power need not have been even between two moves."""
    rise = move.rise_joules
    ahead = min(max(0.0, move.at - at), update_seconds)
    joules = move.after_joules - rise * ahead / update_seconds
    mean_watts = rise / update_seconds
    most_watts = math.inf if limit_watts is None else max(limit_watts, mean_watts)
    lowest = max(move.before_joules, move.after_joules - most_watts * ahead) if ahead else move.after_joules
    behind = update_seconds - ahead
    highest = min(move.after_joules, move.before_joules + most_watts * behind) if behind else move.before_joules
    uncertain = move.uncertain_seconds * (mean_watts if limit_watts is None else most_watts)
    return joules, max(joules - lowest, highest - joules) + uncertain


class _Watch:
    """Follows a counter from move to move."""

    def __init__(self, gpu: Gpu, begin: float) -> None:
        self.gpu = gpu
        self.moves: list[CounterMove] = []
        self._ask = _field(gpu, pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
        self._looked_at = begin
        self._count = self._ask()

    def look(self) -> bool:
        """Look once more; False when there is no counter to be seen."""
        if self._count is None:
            return False
        count, now = self._ask(), time.monotonic()
        if count is not None and count > self._count:
            uncertain = (now - self._looked_at) / 2
            self.moves.append(CounterMove(now - uncertain, uncertain, self._count / 1000, count / 1000))
        self._count, self._looked_at = count, now
        return True


def _power_sensor(gpu: Gpu) -> tuple[Ask, PowerSensor] | None:
    """The power to add up, and how it is measured: one that sees all the time, else the nearest to it."""
    instant: Ask | None = _field(gpu, pynvml.NVML_FI_DEV_POWER_INSTANT)
    average: Ask | None = _field(gpu, pynvml.NVML_FI_DEV_POWER_AVERAGE)
    instant, average = (ask if ask and ask() is not None else None for ask in (instant, average))
    if instant is None and average is None:
        usage = _power_usage(gpu)
        if usage() is None:
            return None
        instant, average = (None, usage) if usage_is_average(gpu) else (usage, None)
    sensor = QUARTER_SEEN
    if not is_ga100(gpu):
        sensor = INSTANT_SENSORS.get(gpu.ask(pynvml.nvmlDeviceGetArchitecture), QUARTER_SEEN)
    if average is not None and (instant is None or sensor is QUARTER_SEEN):
        return average, ONE_SECOND_MEAN
    return (instant, sensor) if instant is not None else None


def _limit_watts(gpu: Gpu) -> float | None:
    milliwatts = gpu.ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
    return None if milliwatts is None else milliwatts / 1000


def _field(gpu: Gpu, number: int) -> Ask:
    """A prepared question for one field."""
    answer = pynvml.c_nvmlFieldValue_t(fieldId=number)
    function, arguments = pynvml.nvmlLib.nvmlDeviceGetFieldValues, (gpu.handle, 1, byref(answer))

    def ask() -> int | None:
        if function(*arguments) or answer.nvmlReturn:
            return None
        return int(getattr(answer.value, _MEMBERS.get(answer.valueType, "ullVal")))

    return ask


_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
}
"""Where a field's value is, by its type."""


def _power_usage(gpu: Gpu) -> Ask:
    """The older power call, prepared."""
    function = getattr(pynvml.nvmlLib, POWER_USAGE)
    milliwatts = c_uint()
    arguments = gpu.handle, byref(milliwatts)
    return lambda: milliwatts.value if function(*arguments) == 0 else None

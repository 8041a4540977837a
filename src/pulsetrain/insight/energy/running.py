"""The energy of a run in progress: the same sums as those of its report, added up on the way.

Nothing heavy is imported before the first sum: the command waits to be started.
"""

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pulsetrain.insight.energy.lines import COLUMNS, RAPL_UPDATE_SECONDS, load_watts, size_watts
from pulsetrain.snapshot import Value
from pulsetrain.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsetrain.insight.energy.gpu_meter import GpuMeter
    from pulsetrain.insight.energy.meter import MeanPower, Meter, Stretch

ROUNDED = 3
"""Digits of the times in lines, which a report adds up by."""


class RisingSince:
    """What a device has used since the last sum, cheaply: by its counter, or by its power where it has none."""

    def __init__(self) -> None:
        self.joules = 0.0
        self._elapsed: float | None = None
        self._counter = self._watts = math.nan

    def add(self, elapsed: float, counter: float, watts: float) -> None:
        rise = counter - self._counter
        if not rise >= 0 and self._elapsed is not None:  # no counter, or one that was reset
            mean = watts if math.isnan(self._watts) else (watts + self._watts) / 2
            rise = mean * (elapsed - self._elapsed)
        if rise > 0:
            self.joules += rise
        self._elapsed, self._counter, self._watts = elapsed, counter, watts


class RunningGpu:
    """One GPU's lines, added up now and then."""

    def __init__(self, *, started: float, interval_seconds: float, idle_percent: float) -> None:
        self.joules = self.idle_seconds = 0.0
        """Up to the last line that was settled, as if nothing more came."""
        self._started, self._interval_seconds, self._idle_percent = started, interval_seconds, idle_percent
        self._settled = (0.0, 0.0)
        self._meter: GpuMeter | None = None
        self._limit_watts: float | None = None
        self._lines: list[tuple[float, ...]] = []
        self._since = RisingSince()

    @property
    def joules_now(self) -> float:
        """Up to the last line; what is not settled yet, by the counter or the power alone."""
        return self.joules + self._since.joules

    def add(self, values: Mapping[str, Value], elapsed: float) -> None:
        limit = known(values.get("power_limit_watts"))
        if limit is not None:
            self._limit_watts = max(limit, self._limit_watts or 0.0)
        if "up" not in values:  # a line with slow values alone
            return
        counter = values.get("polled_energy_joules", values.get("energy_joules"))
        self._since.add(elapsed, _number(counter), _number(values.get("power_draw_watts")))
        watts = known(values.get("energy_interpolation_watts"))
        self._lines.append(
            (
                round(elapsed, ROUNDED),
                _number(values.get("power_draw_watts") if watts is None else watts),
                _number(values.get("energy_interpolated_monotonic_seconds")),
                *(_number(values.get(field)) for field in COLUMNS.values()),
            )
        )

    def settle(self) -> None:
        """Add up what has come since."""
        import numpy as np

        from pulsetrain.insight.energy.gpu_meter import GpuMeter

        if not self._lines:
            return
        self._since.joules = 0.0
        names = ("seconds", "watts", "exact_at", *COLUMNS)
        columns = dict(zip(names, np.array(self._lines).T, strict=True))
        self._lines.clear()
        self._meter = self._meter or GpuMeter(started=self._started, interval_seconds=self._interval_seconds)
        self._meter.limit_watts = self._limit_watts
        self._settled = self._sums(self._settled, self._meter.add(columns))
        self.joules, self.idle_seconds = self._sums(self._settled, copy.deepcopy(self._meter).finish())

    def _sums(self, before: tuple[float, float], stretches: "Iterable[Stretch]") -> tuple[float, float]:
        """Joules and idle seconds."""
        import numpy as np

        joules, idle = before
        for stretch in stretches:
            joules += float(np.sum(stretch.joules))
            if len(stretch.joules):
                idle += float(np.sum(np.diff(stretch.times)[stretch.utilization <= self._idle_percent]))
        return joules, idle


class RunningHost:
    """CPUs and memory of this machine: by their counters, else as a report estimates them."""

    def __init__(self) -> None:
        self.joules: dict[str, float] = {}
        self._devices = {"cpu": _RunningDevice(), "dram": _RunningDevice()}

    @property
    def joules_now(self) -> dict[str, float]:
        """Up to the last line; what is not settled yet, by the counters or the estimated power alone."""
        return {name: joules + self._devices[name].since.joules for name, joules in self.joules.items()}

    def add(self, values: Mapping[str, Value], elapsed: float) -> None:
        cores, load, memory = (known(values.get(name)) for name in ("cpu_cores", "cpu_ratio", "memory_total_bytes"))
        estimates = {
            "cpu": load_watts(cores, load) if cores is not None and load is not None else math.nan,
            "dram": size_watts(memory / GIB) if memory is not None else math.nan,
        }
        for name, watts in estimates.items():
            counter = _number(values.get(f"{name}_energy_joules"))
            self._devices[name].lines.append((round(elapsed, ROUNDED), counter, watts))
            self._devices[name].since.add(elapsed, counter, watts)

    def settle(self) -> None:
        """Add up what has come since."""
        sums = {name: device.settle() for name, device in self._devices.items()}
        self.joules = {name: joules for name, joules in sums.items() if joules is not None}


class _RunningDevice:
    """The CPUs, or the memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, float, float]] = []
        """Elapsed seconds, the counter, and what power is taken for."""
        self.since = RisingSince()
        self._counts = 0
        self._by_counter = self._by_watts = 0.0
        self._estimated = False
        self._meter: Meter | None = None
        self._power: MeanPower | None = None

    def settle(self) -> float | None:
        """Joules up to the last line, as if nothing more came; None while nothing is known."""
        import numpy as np

        from pulsetrain.insight.energy.meter import MeanPower, Meter, Readings

        if self._meter is None or self._power is None:
            self._meter, self._power = Meter(update_seconds=RAPL_UPDATE_SECONDS), MeanPower()
        self.since.joules = 0.0
        if self.lines:
            seconds, counter, watts = np.array(self.lines).T
            self.lines.clear()
            self._counts += int(np.count_nonzero(~np.isnan(counter)))
            self._estimated |= bool(np.any(~np.isnan(watts)))
            self._by_counter += float(np.sum(self._meter.add(Readings(seconds, counter)).joules))
            self._by_watts += self._power.add(seconds, watts)
        if self._counts > 1:
            return self._by_counter + float(np.sum(copy.deepcopy(self._meter).finish().joules))
        return self._by_watts + self._power.rest() if self._estimated else None


def known(value: Value) -> float | None:
    """A value, when it is a number."""
    return float(value) if isinstance(value, int | float) else None


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else math.nan

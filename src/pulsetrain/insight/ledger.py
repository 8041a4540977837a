"""What a run has used so far, while it goes on: energy, emissions, money, and what is still to come."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsetrain.insight import carbon, cost
from pulsetrain.insight.energy.lines import COLUMNS, GIB, load_watts, size_watts
from pulsetrain.insight.prices import Price
from pulsetrain.intensity import Record
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value

if TYPE_CHECKING:
    from pulsetrain.insight.energy.meter import Meter

PERIOD_SECONDS = 15.0
"""Between two entries: adding up 8 GPUs takes some milliseconds."""
ACCOUNT = Subject("account", "")
STEPS_KEPT = 20
"""Entries over which the pace of the training is told."""


class Ledger:
    """Hands snapshots on, and adds an entry of the table `account` to one every few seconds."""

    def __init__(self, *, price: Price | None = None, pue: float = 1.0, record: Callable[[], Record | None]) -> None:
        """`record` gives the carbon intensities known by now."""
        self._price = price
        self._pue = pue
        self._record = record
        self._gpus: dict[str, _Device] = {}
        self._host = _Host()
        self._progress = _Progress()
        self._grams: float | None = None
        self._accounted_joules = 0.0
        self._due = PERIOD_SECONDS

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        for sample in snapshot.samples:
            self._take(sample, snapshot.elapsed)
        if snapshot.elapsed < self._due and not snapshot.last:
            return snapshot
        self._due = snapshot.elapsed + PERIOD_SECONDS
        return snapshot._replace(samples=(*snapshot.samples, self._entry(snapshot.time, snapshot.elapsed)))

    def _entry(self, time: float, elapsed: float) -> Sample:
        """The account up to now."""
        for gpu in self._gpus.values():
            gpu.settle()
        joules = {"gpu": sum(gpu.joules for gpu in self._gpus.values())} if self._gpus else {}
        joules |= self._host.joules
        values: dict[str, Value] = {}
        if joules:
            values["energy_joules"] = {device: round(self._pue * used, 3) for device, used in joules.items()}
        if self._gpus:
            values["gpu_seconds"] = round(elapsed * len(self._gpus), 3)
            values["gpu_idle_seconds"] = round(sum(gpu.idle_seconds for gpu in self._gpus.values()), 3)
        total = self._pue * sum(joules.values()) if joules else None
        values |= self._carbon(total, time)
        values |= self._progress.values()
        values |= self._cost(total, elapsed)
        return Sample(ACCOUNT, values)

    def _take(self, sample: Sample, elapsed: float) -> None:
        table = sample.subject.table
        if table == "gpu":
            self._gpus.setdefault(sample.subject.key, _Device()).add(sample.values, elapsed)
        elif table == "host":
            self._host.add(sample.values, elapsed)
        elif table == "training" and sample.subject.labels.get("rank") == 0:
            self._progress.add(sample.values, elapsed)

    def _carbon(self, joules: float | None, time: float) -> dict[str, Value]:
        """What has been used since the last entry, at the intensity of now."""
        record = self._record()
        now = carbon.intensity_at(record, datetime.fromtimestamp(time, UTC)) if record else None
        if now is None or joules is None:
            return {}
        self._grams = (self._grams or 0.0) + (joules - self._accounted_joules) / carbon.JOULES_PER_KWH * now
        self._accounted_joules = joules
        return {"carbon_grams": round(self._grams, 6), "carbon_grams_per_kwh": now}

    def _cost(self, joules: float | None, elapsed: float) -> dict[str, Value]:
        if self._price is None:
            return {}
        use = cost.Use(seconds=elapsed, gpus=len(self._gpus), joules=joules)
        found = cost.cost(self._price, use, self._progress.told())
        if found is None:
            return {}
        values: dict[str, Value] = {"cost": {found.currency: found.amount}}
        if found.projected is not None:
            values["cost_projected"] = {found.currency: found.projected}
        return values


class _Device:
    """One GPU's lines, added up now and then."""

    def __init__(self) -> None:
        self.joules = self.idle_seconds = 0.0
        self._meter: Meter | None = None
        self._lines: list[tuple[float, ...]] = []

    def add(self, values: Mapping[str, Value], elapsed: float) -> None:
        if "up" in values:  # else a line with slow values alone
            self._lines.append((elapsed, *(_number(values.get(field)) for field in COLUMNS.values())))

    def settle(self) -> None:
        import numpy as np  # now, and not while the command waits to be started

        from pulsetrain.insight.energy.meter import Meter, Readings

        if not self._lines:
            return
        self._meter = self._meter or Meter()
        seconds, *columns = np.array(self._lines).T
        self._lines.clear()
        settled = self._meter.add(Readings(seconds, **dict(zip(COLUMNS, columns, strict=True))))
        self.joules += float(np.sum(settled.joules))
        if len(settled.joules):
            self.idle_seconds += float(np.sum(np.diff(settled.times)[settled.utilization == 0]))


class _Host:
    """CPUs and memory of this machine: by their counters, else as a report estimates them."""

    def __init__(self) -> None:
        self.joules: dict[str, float] = {}
        self._last: float | None = None
        self._counters: dict[str, float] = {}

    def add(self, values: Mapping[str, Value], elapsed: float) -> None:
        seconds = elapsed - self._last if self._last is not None else 0.0
        self._last = elapsed
        for device, watts in (("cpu", _load(values)), ("dram", _size(values))):
            counter = values.get(f"{device}_energy_joules")
            if isinstance(counter, int | float):
                rise = counter - self._counters.get(device, counter)
                self._counters[device] = counter
                self._add(device, max(0.0, rise))
            elif device not in self._counters and watts is not None:
                self._add(device, watts * seconds)

    def _add(self, device: str, joules: float) -> None:
        self.joules[device] = self.joules.get(device, 0.0) + joules


class _Progress:
    """How far the training has come, and how fast it goes."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float]] = []
        self._total: float | None = None
        self._samples: float | None = None

    def add(self, values: Mapping[str, Value], elapsed: float) -> None:
        step, total, samples = (_known(values.get(field)) for field in ("step", "total_steps", "samples"))
        self._total = total or self._total
        if samples is not None:
            self._samples = (self._samples or 0.0) + samples
        if step is not None:
            self._marks = [*self._marks[-STEPS_KEPT:], (elapsed, step)]

    def told(self) -> cost.Progress | None:
        if not self._marks:
            return None
        last = self._marks[-1][1]
        return cost.Progress(
            steps=int(last),
            last_step=last,
            total_steps=self._total,
            step_seconds=self._step_seconds(),
            samples=self._samples,
        )

    def values(self) -> dict[str, Value]:
        if not self._marks or not self._total:
            return {}
        last = self._marks[-1][1]
        values: dict[str, Value] = {"progress_ratio": round(min(1.0, last / self._total), 6)}
        pace = self._step_seconds()
        if pace is not None:
            values["remaining_seconds"] = round(max(0.0, self._total - last) * pace, 1)
        return values

    def _step_seconds(self) -> float | None:
        (began, first), (now, last) = self._marks[0], self._marks[-1]
        return (now - began) / (last - first) if last > first else None


def _load(values: Mapping[str, Value]) -> float | None:
    cores, load = _known(values.get("cpu_cores")), _known(values.get("cpu_ratio"))
    return load_watts(cores, load) if cores is not None and load is not None else None


def _size(values: Mapping[str, Value]) -> float | None:
    total = _known(values.get("memory_total_bytes"))
    return size_watts(total / GIB) if total is not None else None


def _known(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else math.nan

"""Energy of GPUs, from their lines."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pulsetrain.insight.energy.curve import HostClock
from pulsetrain.insight.energy.device import MeteredDevice, total_of
from pulsetrain.insight.energy.figures import DeviceEnergy, Origin
from pulsetrain.insight.energy.gpu_meter import GpuMeter
from pulsetrain.insight.energy.lines import COLUMNS
from pulsetrain.insight.energy.meter import CounterFaults, Method, Stretch, curve_of
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run

_WORDS = {Method.COUNTER: "counter", Method.POLLED: "polled power", Method.POWER: "power"}
SENSOR_NOTE = "Power sensors may be off by another 5 % or so, differently on each card."


def devices(database: Database, run: Run, clocks: dict[str, HostClock], idle_percent: float) -> list[MeteredDevice]:
    """The GPUs of every host."""
    rows = database.rows(
        "SELECT host, uuid, gpu_index, any_value(name) AS name, max(power_limit_watts) AS limit_watts, "
        "count(polled_energy_joules) > 0 AS polled, "
        "count(utilization_percent) > 0 AS has_utilization, any_value(up) IS NOT NULL AS watched "
        "FROM boards.gpu GROUP BY host, uuid, gpu_index ORDER BY host, gpu_index, uuid"
    )
    started = {name: machine.started for name, machine in run.hosts.items()}
    return [
        _gpu(database, row, clocks[row["host"]], started.get(row["host"], 0.0), run.interval_seconds, idle_percent)
        for row in rows
        if row["watched"]
    ]


def _gpu(
    database: Database, row: dict[str, Any], clock: HostClock, started: float, interval: float, idle_percent: float
) -> MeteredDevice:
    columns = {name: column for name, column in COLUMNS.items() if row["polled"] or not column.startswith("polled_")}
    selected = ", ".join(f"{column} AS {name}" for name, column in columns.items())
    lines = database.arrays(
        f"SELECT elapsed_seconds AS seconds, energy_interpolated_monotonic_seconds AS exact_at, "
        f"coalesce(energy_interpolation_watts, power_draw_watts) AS watts, {selected} FROM boards.gpu "
        "WHERE host = ? AND uuid IS NOT DISTINCT FROM ? AND gpu_index IS NOT DISTINCT FROM ? "
        "AND elapsed_seconds IS NOT NULL",
        [row["host"], row["uuid"], row["gpu_index"]],
    )
    meter = GpuMeter(started=started, interval_seconds=interval, limit_watts=row["limit_watts"])
    stretches = [*meter.add(lines), *meter.finish()]
    curve = curve_of(stretches, clock, row["limit_watts"])
    figure = DeviceEnergy(
        device="gpu",
        host=row["host"],
        gpu_index=row["gpu_index"],
        uuid=row["uuid"],
        name=row["name"] or "",
        total=None,
    )
    known = [method for method in _WORDS if any(np.any(part.method == method) for part in stretches)]
    if not known:
        return MeteredDevice(figure)
    origin: Origin = "measured" if known == [Method.COUNTER] else "estimated"
    figure.total = total_of(curve, origin, " + ".join(_WORDS[method] for method in known))
    figure.notes = list(_notes(stretches, meter.faults))
    if row["has_utilization"]:
        idle = (part.joules[part.utilization <= idle_percent] for part in stretches)
        figure.idle_joules = float(sum(map(np.sum, idle)))
        figure.active_joules = figure.total.joules - figure.idle_joules
    _compare(figure, stretches)
    return MeteredDevice(figure, curve)


def _compare(figure: DeviceEnergy, stretches: Sequence[Stretch]) -> None:
    """Power at the ticks beside the counter, over the time for which there are both."""
    both = [(part.method == Method.COUNTER) & ~np.isnan(part.power_joules) for part in stretches]
    counter = sum(float(np.sum(part.joules[chosen])) for part, chosen in zip(stretches, both, strict=True))
    power = sum(float(np.sum(part.power_joules[chosen])) for part, chosen in zip(stretches, both, strict=True))
    if counter > 0 and any(np.any(chosen) for chosen in both):
        figure.power_joules = power
        figure.disagreement_ratio = power / counter - 1


def _notes(stretches: Sequence[Stretch], faults: CounterFaults) -> Iterable[str]:
    if faults.resets:
        yield f"The counter was reset {_times(faults.resets)}; power fills in for that moment."
    if faults.jumps:
        yield f"The counter jumped {_times(faults.jumps)}; power fills in for that moment."
    if faults.still_seconds:
        yield f"The counter stood still for {faults.still_seconds:.0f} s while power was drawn; power fills in."
    gaps = sum(float(np.sum(part.gap_seconds)) for part in stretches)
    if gaps:
        yield f"For {gaps:.0f} s nothing could be read: power was assumed to match the readings around it."
    unknown = sum(float(np.sum(np.diff(part.times)[part.method == Method.UNKNOWN])) for part in stretches)
    if unknown:
        yield f"For {unknown:.0f} s nothing could be read: energy used then is not counted."
    if any(np.any(part.method == Method.POLLED) | np.any(part.method == Method.POWER) for part in stretches):
        yield SENSOR_NOTE


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

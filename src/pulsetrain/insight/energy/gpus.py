"""Energy of GPUs, from their lines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pulsetrain.insight.energy.curve import Clock
from pulsetrain.insight.energy.device import Device, total_of
from pulsetrain.insight.energy.figures import DeviceEnergy, Origin
from pulsetrain.insight.energy.lines import COLUMNS
from pulsetrain.insight.energy.meter import Findings, Meter, Method, Readings, Stretch, curve_of
from pulsetrain.runs.database import Array, Database
from pulsetrain.runs.folder import Run

_WORDS = {Method.COUNTER: "counter", Method.POLLED: "polled power", Method.POWER: "power"}
MOST_LATE_SECONDS = 1.0
"""After its tick, a reading begins within this time."""
SENSOR_NOTE = "Power sensors may be off by about 5 % on top, each card in its own way."


def devices(database: Database, run: Run, clocks: dict[str, Clock]) -> list[Device]:
    """The GPUs of every host."""
    rows = database.rows(
        "SELECT host, uuid, gpu_index, any_value(name) AS name, max(power_limit_watts) AS limit_watts, "
        "count(polled_energy_joules) > 0 AS polled, "
        "count(utilization_percent) > 0 AS has_utilization, any_value(up) IS NOT NULL AS watched "
        "FROM gpu GROUP BY host, uuid, gpu_index ORDER BY host, gpu_index, uuid"
    )
    # A board that did not answer at the start had no UUID then; the rest of its lines has.
    known = {(row["host"], row["gpu_index"]) for row in rows if row["uuid"] is not None}
    rows = [row for row in rows if row["uuid"] is not None or (row["host"], row["gpu_index"]) not in known]
    started = {name: machine.started for name, machine in run.hosts.items()}
    return [
        _gpu(database, row, clocks[row["host"]], started.get(row["host"], 0.0), run.interval_seconds)
        for row in rows
        if row["watched"]
    ]


def _gpu(database: Database, row: dict[str, Any], clock: Clock, started: float, interval: float) -> Device:
    columns = {name: column for name, column in COLUMNS.items() if row["polled"] or not column.startswith("polled_")}
    selected = ", ".join(f"{column} AS {name}" for name, column in columns.items())
    lines = database.arrays(
        f"SELECT elapsed_seconds AS seconds, energy_interpolated_monotonic_seconds AS exact_at, "
        f"coalesce(energy_interpolation_watts, power_draw_watts) AS watts, {selected} FROM gpu "
        "WHERE host = ? AND uuid IS NOT DISTINCT FROM ? AND gpu_index IS NOT DISTINCT FROM ? "
        "AND elapsed_seconds IS NOT NULL",
        [row["host"], row["uuid"], row["gpu_index"]],
    )
    watts = lines.pop("watts")
    _to_the_tick(lines, watts, started, row["limit_watts"])
    meter = Meter(limit_watts=row["limit_watts"])
    stretches = [meter.add(Readings(**lines)), meter.finish()]
    stretches = [
        *_before_the_first(stretches, watts[np.argsort(lines["seconds"])], interval, row["limit_watts"]),
        *stretches,
    ]
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
        return Device(figure)
    origin: Origin = "measured" if known == [Method.COUNTER] else "estimated"
    figure.total = total_of(curve, origin, " + ".join(_WORDS[method] for method in known))
    figure.notes = list(_notes(stretches, meter.findings))
    if row["has_utilization"]:
        figure.idle_joules = float(sum(np.sum(part.joules[part.utilization == 0]) for part in stretches))
        figure.active_joules = figure.total.joules - figure.idle_joules
    _compare(figure, stretches)
    return Device(figure, curve)


def _to_the_tick(lines: dict[str, Array], watts: Array, started: float, limit_watts: float | None) -> None:
    """Take the exact counter back to the time of its line, a little before it was looked at."""
    late = lines.pop("exact_at") - started - lines["seconds"]
    # Times in lines are rounded to milliseconds. Where it is not known when elapsed time began, nothing can be told.
    late = np.where(np.abs(late) < MOST_LATE_SECONDS, np.maximum(late, 0.001), 0.001)
    power = np.nan_to_num(watts)
    lines["exact"] = lines["exact"] - late * power
    lines["exact_error"] = lines["exact_error"] + late * np.maximum(power, limit_watts or 0)


def _before_the_first(
    stretches: Sequence[Stretch], powers: Array, interval: float, limit_watts: float | None
) -> Iterator[Stretch]:
    """From the start of the run to the first reading, a few milliseconds as a rule: at the power that it showed."""
    powers = powers[~np.isnan(powers)]
    first = next((stretch for stretch in stretches if len(stretch.joules)), None)
    if first is None or not len(powers) or not 0 < first.times[0] <= interval:
        return
    seconds, watts = float(first.times[0]), float(powers[0])
    slack = float(first.edge[0]) + seconds * max(watts, (np.nan if limit_watts is None else limit_watts) - watts)
    yield Stretch(
        times=np.array([0.0, seconds]),
        edge=np.zeros(2),
        joules=np.array([watts * seconds]),
        method=first.method[:1],
        variance=np.zeros(1),
        slack=np.array([slack]),
        power_joules=np.full(1, np.nan),
        utilization=first.utilization[:1],
        gap_seconds=np.zeros(1),
    )


def _compare(figure: DeviceEnergy, stretches: Sequence[Stretch]) -> None:
    """Power at the ticks beside the counter, over the time for which there are both."""
    both = [(part.method == Method.COUNTER) & ~np.isnan(part.power_joules) for part in stretches]
    counter = sum(float(np.sum(part.joules[chosen])) for part, chosen in zip(stretches, both, strict=True))
    power = sum(float(np.sum(part.power_joules[chosen])) for part, chosen in zip(stretches, both, strict=True))
    if counter > 0 and any(np.any(chosen) for chosen in both):
        figure.power_joules = power
        figure.disagreement_ratio = power / counter - 1


def _notes(stretches: Sequence[Stretch], findings: Findings) -> Iterable[str]:
    if findings.resets:
        yield f"The counter was reset {_times(findings.resets)}; the energy of that moment is from power."
    if findings.jumps:
        yield f"The counter jumped {_times(findings.jumps)}; the energy of that moment is from power."
    if findings.still_seconds:
        yield f"The counter stood still for {findings.still_seconds:.0f} s while power was drawn; that is from power."
    gaps = sum(float(np.sum(part.gap_seconds)) for part in stretches)
    if gaps:
        yield f"For {gaps:.0f} s nothing could be read: power was taken to be as before and after."
    unknown = sum(float(np.sum(np.diff(part.times)[part.method == Method.UNKNOWN])) for part in stretches)
    if unknown:
        yield f"For {unknown:.0f} s nothing could be read: what was used then is not in it."
    if any(np.any(part.method == Method.POLLED) | np.any(part.method == Method.POWER) for part in stretches):
        yield SENSOR_NOTE


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

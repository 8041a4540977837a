"""Energy of CPUs and memory: measured where RAPL can be read, else estimated from load, and assumed from size."""

from collections.abc import Iterator, Mapping

import numpy as np

from pulsetrain.insight.energy.curve import Array, EnergyCurve, HostClock
from pulsetrain.insight.energy.device import MeteredDevice, total_of
from pulsetrain.insight.energy.figures import DeviceEnergy
from pulsetrain.insight.energy.lines import RAPL_UPDATE_SECONDS, load_watts, size_watts
from pulsetrain.insight.energy.meter import Meter, Readings, curve_of, mean_power_joules
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run
from pulsetrain.units import GIB

LOAD_ERROR_RATIO = 1.0
"""The truth may be nothing that we can tell apart from half, or twice as much."""
DRAM_ERROR_RATIO = 0.7
"""Large modules draw about 0.1 W for a GiB, small ones 0.4 W, and a busy one more."""


def devices(database: Database, run: Run, clocks: Mapping[str, HostClock]) -> Iterator[MeteredDevice]:
    """CPUs and memory of every host."""
    for name, clock in clocks.items():
        lines = database.arrays(
            "SELECT elapsed_seconds AS seconds, max(cpu_energy_joules) AS cpu, max(dram_energy_joules) AS dram, "
            "max(cpu_ratio) AS load, max(cpu_cores) AS cores, max(memory_total_bytes) / ? AS gib FROM host "
            "WHERE host = ? AND elapsed_seconds IS NOT NULL GROUP BY elapsed_seconds ORDER BY elapsed_seconds",
            [GIB, name],
        )
        if len(lines["seconds"]) < 2:
            continue
        told = database.rows("SELECT message FROM events WHERE host = ? AND starts_with(kind, 'counter_')", [name])
        notes = [row["message"] for row in told]
        closed = run.hosts[name].unavailable.get("rapl", "") if name in run.hosts else ""
        cpu = DeviceEnergy(device="cpu", host=name, total=None)
        dram = DeviceEnergy(device="dram", host=name, total=None)
        measured = (_by_counter(figure, lines, clock, notes) for figure in (cpu, dram))
        by_rapl = [device for device in measured if device]
        yield from by_rapl
        if not any(device.figure is cpu for device in by_rapl):
            cpu.notes = [f"{closed}: estimated from load." if closed else "Estimated from load."]
            yield _by_load(cpu, lines, clock)
        if not any(device.figure is dram for device in by_rapl):
            dram.notes = ["Assumed from the size of the memory."]
            yield _by_size(dram, lines, clock)


def _by_counter(
    figure: DeviceEnergy, lines: Mapping[str, Array], clock: HostClock, notes: list[str]
) -> MeteredDevice | None:
    counter = lines[figure.device]
    if np.count_nonzero(~np.isnan(counter)) < 2:
        return None
    meter = Meter(update_seconds=RAPL_UPDATE_SECONDS)
    stretches = meter.add(Readings(lines["seconds"], counter)), meter.finish()
    curve = curve_of(stretches, clock, None)
    figure.total = total_of(curve, "measured", "rapl")
    figure.notes = notes
    return MeteredDevice(figure, curve)


def _by_load(figure: DeviceEnergy, lines: Mapping[str, Array], clock: HostClock) -> MeteredDevice:
    watts = load_watts(lines["cores"], lines["load"])
    curve = _by_watts(lines["seconds"], watts, LOAD_ERROR_RATIO, clock)
    if curve is not None:
        figure.total = total_of(curve, "estimated", "load")
    return MeteredDevice(figure, curve)


def _by_size(figure: DeviceEnergy, lines: Mapping[str, Array], clock: HostClock) -> MeteredDevice:
    curve = _by_watts(lines["seconds"], size_watts(lines["gib"]), DRAM_ERROR_RATIO, clock)
    if curve is not None:
        figure.total = total_of(curve, "assumed", "size")
    return MeteredDevice(figure, curve)


def _by_watts(seconds: Array, watts: Array, error_ratio: float, clock: HostClock) -> EnergyCurve | None:
    """Energy of a power that is known at some lines as the mean since the one before; None where it never is."""
    if np.all(np.isnan(watts)):
        return None
    joules = np.concatenate(([0.0], np.cumsum(mean_power_joules(seconds, watts))))
    nothing = np.zeros(len(seconds))
    return EnergyCurve(seconds, joules, nothing, error_ratio * joules, nothing, clock=clock)

"""What the charts of a run show: lines over elapsed time, thinned to what a page can hold. `plots` draws them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.energy.account import total_curve
from pulsetrain.insight.report import Report
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run

Floats = npt.NDArray[np.float64]

POINTS = 600
"""Of a line at most, half as many where there are many lines."""
MANY_LINES = 4
GAP = 5.0
"""So many times the usual distance between points is a gap in the record, and a line does not cross it."""
SMOOTHING_POINTS = 25
"""Width of the window over which the loss is smoothed."""
MIB_PER_GIB = 1024
JOULES_PER_WH = 3600
GPU = "coalesce(uuid, gpu_index::VARCHAR)"
FIRST_RANK = "coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM training)"
STEP_PARTS = {
    "data_wait_seconds": "waiting for data",
    "forward_seconds": "forward",
    "backward_seconds": "backward",
    "optimizer_seconds": "optimizer",
    "other_seconds": "other",
}


@dataclass(frozen=True)
class Line:
    """Values over elapsed seconds, NaN where there are none. Low and high are those of the readings behind a value."""

    label: str
    seconds: Floats
    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    smooth: Floats | None = None
    """Drawn on top, where the values themselves are too restless to read."""


@dataclass(frozen=True)
class Chart:
    """One picture. Lines of the same place in their lists have the same colour in all charts of a group."""

    title: str
    unit: str
    group: str
    lines: list[Line]
    kind: Literal["lines", "stack", "steps"] = "lines"
    top: float | None = None
    """Where the axis must reach to at least."""
    zero: bool = True
    """Whether the axis begins at 0."""
    cut: float | None = None
    """Where the axis ends, although some values lie beyond: they would make all others flat."""

    @property
    def caption(self) -> str:
        """Title and unit, and what is not shown."""
        cut = ", a few higher values cut off" if self.cut is not None else ""
        return self.title + (f" ({self.unit})" if self.unit else "") + cut


def run_charts(report: Report, database: Database) -> list[Chart]:
    """Every chart for which the run has figures."""
    charts = [*gpu_charts(database), *_training_charts(database), *_energy_chart(report, database)]
    if report.carbon:
        charts += _intensity_chart(report.carbon, report.run)
    return charts


def run_span(report: Report, charts: Sequence[Chart]) -> float:
    """The end of the time axis that all charts share, in seconds."""
    ends = [float(line.seconds[-1]) for chart in charts for line in chart.lines if line.seconds.size]
    return max([report.summary.seconds, *(end for end in ends if np.isfinite(end))]) or 1.0


def gpu_charts(database: Database) -> list[Chart]:
    """Utilisation, power, temperature and memory, one line for each GPU."""
    (about,) = database.rows(
        f"SELECT max(elapsed_seconds) AS seconds, count(DISTINCT (host, {GPU})) AS gpus, count(DISTINCT host) AS hosts "
        "FROM gpu WHERE up IS NOT NULL"
    )
    if not about["gpus"]:
        return []
    width = _bucket(about["seconds"], POINTS if about["gpus"] <= MANY_LINES else POINTS // 2)
    fields = {
        "utilization": "utilization_percent",
        "power": "power_draw_watts",
        "temperature": "temperature_celsius",
        "memory": f"memory_used_mb / {MIB_PER_GIB}",
    }
    found = database.arrays(
        f"SELECT host, {GPU} AS board, any_value(gpu_index) AS gpu_index, avg(elapsed_seconds) AS seconds, "
        f"{', '.join(_spread(name, expression) for name, expression in fields.items())} FROM gpu WHERE up IS NOT NULL "
        f"GROUP BY host, board, floor(elapsed_seconds / {width}) ORDER BY host, gpu_index, board, seconds"
    )
    changes = (found["host"][1:] != found["host"][:-1]) | (found["board"][1:] != found["board"][:-1])
    bounds = [0, *(np.flatnonzero(changes) + 1), found["board"].size]
    lines: dict[str, list[Line]] = {name: [] for name in fields}
    for start, end in pairwise(bounds):
        one = {name: column[start:end] for name, column in found.items()}
        index = one["gpu_index"][0]
        label = f"{one['host'][0]}:{index:.0f}" if about["hosts"] > 1 else f"GPU {index:.0f}"
        for name in fields:
            lines[name].append(_line(label, one, name))
    charts = [
        Chart("Utilisation", "%", "GPUs", lines["utilization"], top=100),
        Chart("Power", "W", "GPUs", lines["power"]),
        Chart("Temperature", "°C", "GPUs", lines["temperature"], zero=False),
        Chart("Memory in use", "GiB", "GPUs", lines["memory"]),
    ]
    return [chart for chart in charts if _known(chart.lines)]


def _training_charts(database: Database) -> list[Chart]:
    fields = {"loss": "loss", "learning_rate": "learning_rate", "step_seconds": "step_seconds"}
    (about,) = database.rows(f"SELECT max(elapsed_seconds) AS seconds FROM training WHERE {FIRST_RANK}")
    if about["seconds"] is None:
        return []
    width = _bucket(about["seconds"], POINTS)
    columns = ", ".join(_spread(name, expression) for name, expression in fields.items())
    parts = ", ".join(f"avg({name}) AS {name}" for name in STEP_PARTS)
    found = database.arrays(
        f"SELECT avg(elapsed_seconds) AS seconds, {columns}, {parts}, "
        "sum(samples) / sum(step_seconds) FILTER (samples IS NOT NULL) AS samples, "
        "sum(tokens) / sum(step_seconds) FILTER (tokens IS NOT NULL) AS tokens FROM training "
        f"WHERE {FIRST_RANK} GROUP BY floor(elapsed_seconds / {width}) ORDER BY seconds"
    )
    loss = _line("loss", found, "loss")
    smoothed = Line(loss.label, loss.seconds, loss.values, loss.low, loss.high, _smooth(loss.values))
    charts = [
        Chart("Loss", "", "Training", [smoothed], zero=False),
        Chart("Learning rate", "", "Training", [_line("learning rate", found, "learning_rate")]),
        _step_chart(found),
        Chart("Throughput", "samples/s", "Training", [_line("samples/s", found, "samples")]),
        Chart("Throughput", "tokens/s", "Training", [_line("tokens/s", found, "tokens")]),
    ]
    return [chart for chart in charts if _known(chart.lines)]


def _step_chart(found: dict[str, Any]) -> Chart:
    """What a step's time went into, or, where nobody told that, the time of a step."""
    known = found["step_seconds"][np.isfinite(found["step_seconds"])]
    if not known.size:
        return Chart("Time of a step", "s", "Training", [])
    scale, unit = (1.0, "s") if np.median(known) >= 1 else (1000.0, "ms")
    usual = scale * float(np.quantile(known, 0.95))
    cut = 2 * usual if scale * float(np.nanmax(found["step_seconds_high"])) > 3 * usual else None
    whole = np.isfinite(found["step_seconds"])
    parts = [
        _line(label, found | {name: np.where(whole, scale * np.nan_to_num(found[name]), np.nan)}, name)
        for name, label in STEP_PARTS.items()
        if np.isfinite(found[name]).any()
    ]
    if parts:
        return Chart("Time of a step", unit, "Training", parts, kind="stack", cut=cut)
    scaled = {name: scale * column if name.startswith("step_seconds") else column for name, column in found.items()}
    return Chart("Time of a step", unit, "Training", [_line("step", scaled, "step_seconds")], cut=cut)


def _energy_chart(report: Report, database: Database) -> list[Chart]:
    """The run's energy as it added up to the total of the account."""
    account = report.energy
    curve = total_curve(database, report.run, charge=report.account.charge or "all")
    if account.total is None or not curve.times.size:
        return []
    seconds = np.unique(np.linspace(curve.times[0], curve.times[-1], POINTS))
    unit, joules = (
        ("kWh", 1000 * JOULES_PER_WH) if account.total.joules >= 1000 * JOULES_PER_WH else ("Wh", JOULES_PER_WH)
    )
    line = Line("energy", seconds, account.pue * curve.joules_at(seconds) / joules)
    return [Chart("Energy, added up", unit, "Energy", [line])]


def _intensity_chart(carbon: Carbon, run: Run) -> list[Chart]:
    """The grid's intensity, where it changed during the run."""
    if len({slot.grams_per_kwh for slot in carbon.slots}) < 2:
        return []
    seconds = [max(0.0, (slot.start - run.start).total_seconds()) for slot in carbon.slots]
    end = (carbon.slots[-1].end - run.start).total_seconds()
    if run.end:
        end = min(end, (run.end - run.start).total_seconds())
    values = [slot.grams_per_kwh for slot in carbon.slots]
    line = Line(carbon.region, np.array([*seconds, end]), np.array([*values, values[-1]]))
    return [Chart("Carbon intensity", "g/kWh", "Carbon", [line], kind="steps")]


def _bucket(seconds: float, points: int) -> float:
    """The width of a bucket. The very last moment belongs to the last of them."""
    return max(seconds, 1e-3) * (1 + 1e-9) / points


def _spread(name: str, expression: str) -> str:
    """The mean and the extremes of a bucket, in SQL."""
    return ", ".join(
        f"{f}({expression}) AS {name}{suffix}" for f, suffix in (("avg", ""), ("min", "_low"), ("max", "_high"))
    )


def _line(label: str, found: dict[str, Any], name: str) -> Line:
    """A line of a query's columns, broken where the record has a gap."""
    seconds = found["seconds"]
    steps = np.diff(seconds)
    gaps = np.flatnonzero(steps > GAP * np.median(steps)) + 1 if steps.size else np.array([], dtype=int)

    def broken(column: Floats) -> Floats:
        return np.insert(column, gaps, np.nan)

    extremes = [broken(found[name + suffix]) if name + suffix in found else None for suffix in ("_low", "_high")]
    return Line(label, broken(seconds), broken(found[name]), *extremes)


def _smooth(values: Floats) -> Floats | None:
    """A mean over the neighbours on both sides, which does not lag; None where there is little to smooth."""
    known = np.isfinite(values)
    if known.sum() < 3 * SMOOTHING_POINTS:
        return None
    window = np.hanning(SMOOTHING_POINTS + 2)
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    weights = np.convolve(known.astype(float), window, "same")
    return np.where(known, sums / np.maximum(weights, np.finfo(float).tiny), np.nan)


def _known(lines: Sequence[Line]) -> bool:
    return any(np.isfinite(line.values).any() for line in lines)

"""What the charts of a run show: lines over elapsed time, thinned to what a page can hold. `plots` draws them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from pulsetrain.catalog.time_classes import TIME_CLASSES
from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.energy.curve import EnergyCurve
from pulsetrain.insight.own_metrics import read_curves
from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.rank_timeline import RankTimeline
from pulsetrain.insight.report import Report, Study
from pulsetrain.insight.steps import Floats
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Run
from pulsetrain.units import JOULES_PER_KWH, JOULES_PER_WH
from pulsetrain.views.chart_list import (
    GAP,
    GPU_MEMORY,
    LEARNING_RATE,
    LOSS,
    POWER,
    SAMPLES,
    STEP_TIME,
    TEMPERATURE,
    TIME,
    TOKENS,
    UTILIZATION,
    WHOLE_STEP_TIME,
    ChartKind,
    DeclaredChart,
    own_chart,
)

POINTS = 600
"""Of a line at most, half as many where there are many lines."""
MANY_LINES = 4
MOST_OWN_METRICS = 24
"""A page that draws more of them is one that nobody reads."""
MOST_CLASSES = 8
BAND_PIECES = 200
"""Of the band of time."""
SMOOTHING_POINTS = 25
"""Width of the window over which the loss is smoothed."""


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
    """One picture. Lines of the same place in their lists have the same color in all charts of a group."""

    title: str
    unit: str
    group: str
    lines: list[Line]
    kind: ChartKind = "lines"
    top: float | None = None
    """Where the axis must reach to at least."""
    zero: bool = True
    """Whether the axis begins at 0."""
    cut: float | None = None
    """Where the axis ends, although some values lie beyond: they would make all others flat."""
    share: bool = False
    """Whether it shows shares of a whole, up to 100."""

    @property
    def caption(self) -> str:
        """Title and unit, and what is not shown."""
        cut = ", a few higher values cut off" if self.cut is not None else ""
        return self.title + (f" ({self.unit})" if self.unit else "") + cut


def run_charts(study: Study, database: Database) -> list[Chart]:
    """Every chart for which the run has figures."""
    report = study.report
    charts = [*gpu_charts(database), *_training_charts(database), *_time_charts(study.timelines)]
    charts += _own_charts(report, database)
    charts += _energy_chart(report, study.facts.energy)
    if report.carbon:
        charts += _intensity_chart(report.carbon, report.run)
    return charts


def run_span(report: Report, charts: Sequence[Chart]) -> float:
    """The end of the time axis that all charts share, in seconds."""
    ends = [float(line.seconds[-1]) for chart in charts for line in chart.lines if line.seconds.size]
    return max([report.summary.seconds, *(end for end in ends if np.isfinite(end))]) or 1.0


def gpu_charts(database: Database) -> list[Chart]:
    """Utilization, power, temperature and memory, one line for each GPU."""
    (about,) = database.rows(
        "SELECT max(elapsed_seconds) AS seconds, count(DISTINCT (host, board)) AS gpus, count(DISTINCT host) AS hosts "
        "FROM boards.gpu WHERE up IS NOT NULL"
    )
    if not about["gpus"]:
        return []
    width = _bucket(about["seconds"], POINTS if about["gpus"] <= MANY_LINES else POINTS // 2)
    fields = {
        declared.key: f"{field} * {declared.scale}"
        for declared in (UTILIZATION, POWER, TEMPERATURE, GPU_MEMORY)
        for field in declared.fields
    }
    columns = ", ".join(_spread(name, expression) for name, expression in fields.items())
    found = database.arrays(
        f"SELECT host, board, any_value(gpu_index) AS gpu_index, avg(elapsed_seconds) AS seconds, {columns} "
        "FROM boards.gpu WHERE up IS NOT NULL "
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
    charts = [_chart(declared, lines[declared.key]) for declared in (UTILIZATION, POWER, TEMPERATURE, GPU_MEMORY)]
    return [chart for chart in charts if _known(chart.lines)]


def _training_charts(database: Database) -> list[Chart]:
    fields = {"loss": "loss", "learning_rate": "learning_rate", "step_seconds": "step_seconds"}
    (about,) = database.rows("SELECT max(elapsed_seconds) AS seconds FROM first_rank.training")
    if about["seconds"] is None:
        return []
    width = _bucket(about["seconds"], POINTS)
    columns = ", ".join(_spread(name, expression) for name, expression in fields.items())
    parts = ", ".join(f"avg({part}_seconds) AS {part}" for part in STEP_PARTS)
    found = database.arrays(
        f"SELECT avg(elapsed_seconds) AS seconds, {columns}, {parts}, "
        "sum(samples) / sum(step_seconds) FILTER (samples IS NOT NULL) AS samples, "
        "sum(tokens) / sum(step_seconds) FILTER (tokens IS NOT NULL) AS tokens FROM first_rank.training "
        f"GROUP BY floor(elapsed_seconds / {width}) ORDER BY seconds"
    )
    loss = _line("loss", found, "loss")
    smoothed = Line(loss.label, loss.seconds, loss.values, loss.low, loss.high, _smooth(loss.values))
    charts = [
        _chart(LOSS, [smoothed]),
        _chart(LEARNING_RATE, [_line("learning rate", found, "learning_rate")]),
        _step_chart(found),
        _chart(SAMPLES, [_line("samples/s", found, "samples")]),
        _chart(TOKENS, [_line("tokens/s", found, "tokens")]),
    ]
    return [chart for chart in charts if _known(chart.lines)]


def _time_charts(timelines: Sequence[RankTimeline]) -> list[Chart]:
    """What the time of the first rank went into, as a band."""
    first = [line for line in timelines if (line.host, line.rank) == (timelines[0].host, timelines[0].rank)]
    if not first:
        return []
    edges = np.linspace(first[0].began, first[-1].ended, BAND_PIECES + 1)
    bands = [timeline.band(edges) for timeline in first]
    length = edges[1] - edges[0]
    if not length > 0:
        return []
    seconds = np.repeat(edges, 2)[1:-1]  # both edges of each piece, so that it is drawn flat
    shares = {
        words: 100 * sum((band[name] for band in bands if name in band), np.zeros(BAND_PIECES)) / length
        for name, words in TIME_CLASSES.items()
        if any(name in band for band in bands)
    }
    lines = [Line(words, seconds, np.repeat(share, 2)) for words, share in _largest(shares).items()]
    several = len({(line.host, line.rank) for line in timelines}) > 1
    title = f"What rank {first[0].rank} did" if several else "Where the time went"
    return [Chart(title, "%", TIME, lines, kind="stack", share=True)]


def _largest(shares: dict[str, Floats]) -> dict[str, Floats]:
    """So many that each has a color of its own; the smallest of them are one."""
    if len(shares) <= MOST_CLASSES:
        return shares
    kept = set(sorted(shares, key=lambda words: -float(shares[words].sum()))[: MOST_CLASSES - 1])
    rest = sum((share for words, share in shares.items() if words not in kept), np.zeros(BAND_PIECES))
    return {words: share for words, share in shares.items() if words in kept} | {"the rest": rest}


def _own_charts(report: Report, database: Database) -> list[Chart]:
    """A chart for each name that the program made up, where it has a course."""
    curves = read_curves(database, [metric.name for metric in report.own_metrics[:MOST_OWN_METRICS]])
    return [_chart(own_chart(name), [Line(name, curve.seconds, curve.values)]) for name, curve in curves.items()]


def _step_chart(found: dict[str, Any]) -> Chart:
    """What a step's time went into, or, where that is not known, the step time."""
    known = found["step_seconds"][np.isfinite(found["step_seconds"])]
    if not known.size:
        return _chart(WHOLE_STEP_TIME, [])
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
        return replace(_chart(STEP_TIME, parts), unit=unit, cut=cut)
    scaled = {name: scale * column if name.startswith("step_seconds") else column for name, column in found.items()}
    return replace(_chart(WHOLE_STEP_TIME, [_line("step", scaled, "step_seconds")]), unit=unit, cut=cut)


def _energy_chart(report: Report, curve: EnergyCurve) -> list[Chart]:
    """The run's energy as it added up to its total."""
    used = report.energy
    if used.total is None or not curve.times.size:
        return []
    seconds = np.unique(np.linspace(curve.times[0], curve.times[-1], POINTS))
    unit, joules = ("kWh", JOULES_PER_KWH) if used.total.joules >= JOULES_PER_KWH else ("Wh", JOULES_PER_WH)
    line = Line("energy", seconds, used.pue * curve.joules_at(seconds) / joules)
    return [Chart("Cumulative energy", unit, "Energy", [line])]


def _intensity_chart(carbon: Carbon, run: Run) -> list[Chart]:
    """The grid's intensity, where it changed during the run."""
    if len({slot.grams_per_kwh for slot in carbon.slots}) < 2:
        return []
    seconds = [max(0.0, (slot.start - run.start).total_seconds()) for slot in carbon.slots]
    end = (carbon.slots[-1].end - run.start).total_seconds()
    if run.seconds is not None:
        end = min(end, run.seconds)
    values = [slot.grams_per_kwh for slot in carbon.slots]
    line = Line(carbon.region, np.array([*seconds, end]), np.array([*values, values[-1]]))
    return [Chart("Carbon intensity", "g/kWh", "Carbon", [line], kind="steps")]


def _chart(declared: DeclaredChart, lines: list[Line]) -> Chart:
    return Chart(
        declared.title, declared.unit, declared.group, lines, declared.kind, top=declared.top, zero=declared.zero
    )


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
    """A mean over the neighbors on both sides, which does not lag; None where there is little to smooth."""
    known = np.isfinite(values)
    if known.sum() < 3 * SMOOTHING_POINTS:
        return None
    window = np.hanning(SMOOTHING_POINTS + 2)
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    weights = np.convolve(known.astype(float), window, "same")
    return np.where(known, sums / np.maximum(weights, np.finfo(float).tiny), np.nan)


def _known(lines: Sequence[Line]) -> bool:
    return any(np.isfinite(line.values).any() for line in lines)

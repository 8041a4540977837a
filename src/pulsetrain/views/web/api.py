"""The JSON API: what each address answers. All of it reads; nothing here changes a run."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pulsetrain import catalog
from pulsetrain.catalog.time_classes import TIME_CLASSES
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.runs.folder import Run
from pulsetrain.views import outcomes
from pulsetrain.views.chart_list import GROUPS, DeclaredChart
from pulsetrain.views.colors import DARK, LIGHT, TIME_CLASS_COLORS
from pulsetrain.views.text import duration
from pulsetrain.views.web.chart_columns import InView
from pulsetrain.views.web.columns import ChartLine
from pulsetrain.views.web.configuration import configuration
from pulsetrain.views.web.following import FollowedRun
from pulsetrain.views.web.site import Site
from pulsetrain.views.web.thinning import Stretches, ThinLine, rounded, thin, thin_stretches

MOST_POINTS = 4000
MOST_CHARTS = 200
"""In one question."""
MOST_STEPS = 2000
"""Points of the curve that says which step was when."""
MOST_CSV_ROWS = 5_000_000

Document = dict[str, Any]


class NotFound(PulsetrainError):
    """There is no such run, chart or host."""


def run_document(site: Site, id: str) -> Document:
    """A run, at once: what run.json says, which charts it has, and how it is doing."""
    followed = opened_run(site, id)
    run = followed.run
    elapsed = followed.elapsed_seconds
    charts = followed.columns.charts()
    return {
        "run": run_summary(id, run),
        "command": run.command,
        "directory": run.directory,
        "note": run.note,
        "facts": configuration(run),
        "elapsed_seconds": elapsed,
        "in_progress": followed.in_progress,
        "charts": [chart_document(chart) for chart in charts],
        "figures": followed.figures(),
        "steps": _steps(followed),
    }


def run_summary(id: str, run: Run) -> Document:
    """A run in the list."""
    gpus = [gpu for host in run.hosts.values() for gpu in host.gpus]
    names = dict.fromkeys(str(gpu.get("name", "GPU")).removeprefix("NVIDIA ") for gpu in gpus)
    return {
        "id": id,
        "name": run.name,
        "status": run.status,
        "outcome": outcomes.outcome(run),
        "good": run.status in outcomes.GOOD,
        "start": run.start.timestamp(),
        "seconds": run.seconds,
        "took": duration(run.seconds) if run.seconds is not None else "",
        "hosts": sorted(run.hosts),
        "gpus": len(gpus),
        "gpu_names": list(names),
        "tags": run.tags,
        "note": run.note,
        "simulated": run.simulated,
        "exit_code": run.exit_code,
    }


def chart_document(chart: DeclaredChart) -> Document:
    """A chart as it is declared."""
    return {
        "key": chart.key,
        "title": chart.title,
        "unit": chart.unit,
        "group": chart.group,
        "kind": chart.kind,
        "top": chart.top,
        "zero": chart.zero,
        "labels": list(chart.fields.values()),
        "help": _help(chart),
    }


def series_document(
    site: Site, id: str, keys: Sequence[str], start: float | None, end: float | None, points: int, smooth: float
) -> Document:
    """Charts between two moments, thinned to so many points. `smooth` is a share of the time in view."""
    followed = opened_run(site, id)
    charts = [_chart(followed, key) for key in keys[:MOST_CHARTS]]
    begin, until = start if start is not None else 0.0, end if end is not None else max(followed.elapsed_seconds, 1e-3)
    if not begin < until:
        raise UsageError("the end must come after the start.")
    points = max(2, min(points, MOST_POINTS))
    found = followed.columns.lines(charts, InView(begin, until, points, smooth * (until - begin)))
    return {
        "start": begin,
        "end": until,
        "charts": {
            chart.key: list(_lines(chart, lines, begin, until, points, smooth * (until - begin)))
            for chart, lines in zip(charts, found, strict=True)
        },
    }


def csv_rows(site: Site, id: str, key: str, start: float | None, end: float | None) -> Iterator[str]:
    """Every reading of a chart between two moments, as CSV."""
    followed = opened_run(site, id)
    chart = _chart(followed, key)
    view = InView(0.0 if start is None else start, followed.elapsed_seconds if end is None else end)
    (lines,) = followed.columns.lines([chart], view)
    yield _csv_line(["elapsed_seconds", "line", f"{chart.title} ({chart.unit})" if chart.unit else chart.title])
    for line in lines:
        times, values = line.column.read(rate=chart.rate)
        first = 0 if start is None else int(np.searchsorted(times, start))
        stop = times.size if end is None else int(np.searchsorted(times, end, "right"))
        label = _cell(line.label)
        for place in range(first, min(stop, first + MOST_CSV_ROWS)):
            yield _csv_line([f"{times[place]:.3f}", label, f"{values[place] * chart.scale:.7g}"])


def catalog_document() -> Document:
    """Every metric that pulsetrain knows, and the groups of charts in their order."""
    return {
        "groups": GROUPS,
        "colors": {"light": LIGHT, "dark": DARK},
        "time_classes": [
            {"key": name, "title": title, "light": TIME_CLASS_COLORS[name][0], "dark": TIME_CLASS_COLORS[name][1]}
            for name, title in TIME_CLASSES.items()
        ],
        "metrics": [
            {
                "table": metric.table,
                "field": metric.field,
                "unit": metric.unit,
                "kind": metric.kind,
                "help": metric.help,
                "prometheus": metric.name,
            }
            for metric in catalog.METRICS
        ],
    }


def opened_run(site: Site, id: str) -> FollowedRun:
    followed = site.open(id)
    if followed is None:
        raise NotFound(f"there is no run {id!r}.")
    return followed


def _chart(followed: FollowedRun, key: str) -> DeclaredChart:
    found = followed.columns.chart(key)
    if found is None:
        raise NotFound(f"the run has no chart {key!r}.")
    return found


def _lines(
    chart: DeclaredChart, lines: Sequence[ChartLine], start: float, end: float, points: int, smooth_seconds: float
) -> Iterator[Document]:
    before: ThinLine | None = None
    for line in lines:
        found = _thin(chart, line, start, end, points, smooth_seconds)
        document: Document = {"label": line.label}
        if before is None or not np.array_equal(before.times, found.times):
            document["x"] = rounded_times(found.times, start, end)
        stacked = chart.kind == "stack" and found.mean is not None
        document["last"] = rounded(found.mean if stacked else found.last)
        if found.low is not None and not stacked:
            document["low"], document["high"] = rounded(found.low), rounded(found.high)
        if found.smooth is not None:
            document["smooth"] = rounded(found.smooth)
        yield document
        before = found


def _thin(
    chart: DeclaredChart, line: ChartLine, start: float, end: float, points: int, smooth_seconds: float
) -> ThinLine:
    breaks = chart.table != "training"
    stretches = line.column.stretches(rate=chart.rate)
    if stretches:
        times, *values = stretches
        scaled = Stretches(times, *(column * chart.scale for column in values))
        return thin_stretches(scaled, start, end, points, smooth_seconds=smooth_seconds, breaks=breaks)
    times, readings = line.column.read(rate=chart.rate)
    return thin(times, readings * chart.scale, start, end, points, smooth_seconds=smooth_seconds, breaks=breaks)


def rounded_times(times: np.ndarray[Any, np.dtype[np.float64]], start: float, end: float) -> list[float]:
    """Seconds to a ten-thousandth of what is in view, and at most to a microsecond."""
    places = min(6, max(0, 5 - math.floor(math.log10(max(end - start, 1e-6)))))
    listed: list[float] = np.round(times, places).tolist()
    return listed


def _steps(followed: FollowedRun) -> Document:
    """Which step was when, in few points."""
    times, steps = followed.columns.steps()
    if times.size < 2:
        return {"seconds": [], "steps": []}
    places = np.unique(np.linspace(0, times.size - 1, min(times.size, MOST_STEPS)).astype(int))
    return {"seconds": np.round(times[places], 3).tolist(), "steps": steps[places].tolist()}


def _help(chart: DeclaredChart) -> str:
    """What the catalog says of its fields."""
    known = {(metric.table, metric.field): metric.help for metric in catalog.METRICS}
    helps = [known[chart.table, name] for name in chart.fields if (chart.table, name) in known]
    return " ".join(dict.fromkeys(helps))


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _cell(text: str) -> str:
    """A label that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text

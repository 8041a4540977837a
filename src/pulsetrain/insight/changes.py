"""What else changed: for a stretch of a run, the metrics whose values differ most from those of the time before."""

import re
from collections.abc import Iterator

import msgspec
import numpy as np

from pulsetrain import catalog
from pulsetrain.errors import UsageError
from pulsetrain.insight.robust import Floats, deviation, distance
from pulsetrain.runs.database import Database
from pulsetrain.runs.line_columns import identifier
from pulsetrain.snapshot import Metric

LEAST_VALUES = 5
"""On either side, to be compared."""
LEAST_DISTANCE = 0.5
"""Distributions that lie closer are alike."""
LEAST_CHANGE = 0.02
"""Medians must differ by this share, and by one deviation."""
_TABLES = ("training", "gpu", "host")
_AT_REST = {"step", "samples_total", "timestamp", "elapsed_seconds", "gpu_index", "rank", "epoch", "total_steps"}
"""Columns that say nothing by being different later."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A metric in a stretch of time, against the time before."""

    table: str
    field: str
    unit: str
    subject: str
    """Which GPU, rank or host; empty where there is one only."""
    before: float
    after: float
    """Medians."""
    distance: float
    """Kolmogorov-Smirnov: 1 where no value of the one is as low, or as high, as any of the other."""


def parse_span(text: str) -> tuple[float, float]:
    """Seconds since the start of a run: `120-180`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*-\s*(\d+(?:\.\d*)?)\s*", text)
    if match is None or float(match[1]) >= float(match[2]):
        raise UsageError(f"{text!r} is not a time range.", hint="Give seconds since the start: 120-180.")
    return float(match[1]), float(match[2])


def find_changes(
    database: Database, start: float, end: float, *, before: float | None = None, most: int = 10
) -> list[Change]:
    """The metrics that changed most in these elapsed seconds, against as long a time before, or from `before` on."""
    since = max(0.0, 2 * start - end) if before is None else before
    found = [change for table in _TABLES for change in _of_table(database, table, since, start, end)]
    return sorted(found, key=lambda change: (-change.distance, -_relative(change)))[:most]


def _of_table(database: Database, table: str, since: float, start: float, end: float) -> Iterator[Change]:
    metrics = {metric.field: metric for metric in catalog.metrics_of(table) if metric.by is None}
    columns = database.columns(table)
    fields = [name for name, type in columns.items() if name not in _AT_REST and _is_number(type, name, metrics)]
    if not fields:
        return
    subject = {"gpu": "gpu_index", "training": "coalesce(rank, 0)", "host": "host"}[table]
    chosen = ", ".join(identifier(name) for name in fields)
    lines = database.arrays(
        f"SELECT {subject}::VARCHAR AS subject, elapsed_seconds AS at, {chosen} FROM {table} "
        "WHERE elapsed_seconds BETWEEN ? AND ? ORDER BY elapsed_seconds",
        (since, end),
    )
    subjects = sorted(set(lines["subject"].tolist()))
    for name in fields:
        metric = metrics.get(name)
        for one in subjects:
            mine = lines["subject"] == one
            times, values = _known(lines["at"][mine], lines[name][mine])
            if metric is not None and metric.kind == "counter":
                times, values = _rates(times, values)
            change = _compared(values[times < start], values[times >= start])
            if change is not None:
                unit = metric.unit if metric else ""
                yield Change(
                    table=table,
                    field=name,
                    unit=f"{unit}/s" if metric is not None and metric.kind == "counter" else unit,
                    subject=one if len(subjects) > 1 else "",
                    before=change[0],
                    after=change[1],
                    distance=change[2],
                )


def _is_number(type: str, name: str, metrics: dict[str, Metric]) -> bool:
    return type in ("DOUBLE", "BIGINT", "INTEGER", "FLOAT") and (name not in metrics or metrics[name].kind != "text")


def _known(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    known = np.isfinite(values)
    return times[known], values[known]


def _rates(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    lengths, rises = np.diff(times), np.diff(values)
    kept = (lengths > 0) & (rises >= 0)
    return times[1:][kept], rises[kept] / lengths[kept]


def _compared(before: Floats, after: Floats) -> tuple[float, float, float] | None:
    if min(len(before), len(after)) < LEAST_VALUES:
        return None
    old, new, apart = float(np.median(before)), float(np.median(after)), distance(before, after)
    moved = abs(new - old)
    if apart < LEAST_DISTANCE or moved <= LEAST_CHANGE * max(abs(old), abs(new)) or moved <= deviation(before):
        return None
    return old, new, apart


def _relative(change: Change) -> float:
    return abs(change.after - change.before) / max(abs(change.before), abs(change.after))

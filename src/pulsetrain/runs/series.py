"""A metric over time, in as many points as a chart can show: the least, the mean and the most of each bucket."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from operator import itemgetter
from typing import Any

import numpy as np

from pulsetrain.errors import UsageError
from pulsetrain.runs.database import Array, Database
from pulsetrain.runs.lines import identifier, quoted
from pulsetrain.runs.tables import LINE_TABLES
from pulsetrain.snapshot import Metric

GAP = 3.0
"""So many times the usual distance between two points, and something is missing between them."""
BY_KEY = "MAP(VARCHAR, DOUBLE)"
"""The type of a field that holds a value for each core, device, package or source."""
_LABELS = {
    "gpu": ("gpu_index", "uuid", "host", "run"),
    "mig": ("gpu_index", "mig_uuid", "host", "run"),
    "host": ("host", "run"),
    "process": ("pid", "command", "gpu_index", "host", "run"),
    "training": ("rank", "training", "host", "run"),
    "account": ("host", "run"),
    "events": ("gpu_index", "uuid", "host", "run"),
}
"""What tells the subjects of a table apart. The first of them often do, and to group by a number is cheapest."""


@dataclass(frozen=True)
class Series:
    """One metric of one subject. Between points with a gap between them stands one that is NaN."""

    labels: dict[str, Any]
    """Whose it is: run, host; gpu_index and uuid, rank, pid; `key`, where there is a value for each core or device."""
    time: Array
    """Elapsed seconds; of a bucket, the mean time of its values."""
    min: Array
    mean: Array
    max: Array


def series(
    database: Database,
    run: str | None,
    metric: str | Metric,
    start: float | None = None,
    end: float | None = None,
    points: int = 1000,
) -> list[Series]:
    """A metric, such as `gpu.power_draw_watts`, of each of its subjects, in at most so many points.

    `start` and `end` are in elapsed seconds, by default all there is. A `run` of None means all runs of the database.
    Where there are fewer values than points, each value is a point.
    """
    table, field = (metric.table, metric.field) if isinstance(metric, Metric) else _split(metric)
    type = dict(database.columns(table)).get(field)
    if type not in ("DOUBLE", BY_KEY):
        raise UsageError(f"{table}.{field} is no metric that has a value over time.")
    span = database.span(table)
    labels = _LABELS[table]
    subjects = [one for one in database.distinct(table, labels) if run in (None, one[-1])]
    if span is None or not subjects:
        return []
    begin, last = span[0] if start is None else start, span[1] if end is None else end
    conditions = ["value IS NOT NULL"]
    if start is not None or end is not None:
        conditions.append(f"elapsed_seconds BETWEEN {begin} AND {last}")
    if len(subjects) < len(database.distinct(table, labels)):
        conditions.append(f"run = {quoted(subjects[0][-1])}")
    telling = _telling(subjects)
    groups = [*labels[:telling], *(["key"] if type == BY_KEY else [])]
    names = "".join(f"{name}, " for name in groups)
    scale = points / max(last - begin, 1e-9)
    rows = database.execute(f"""
        SELECT {names} ((elapsed_seconds - {begin}) * {scale * (1 - 1e-9)} - 0.5)::INTEGER AS bucket,
            avg(elapsed_seconds), min(value), avg(value), max(value)
        FROM ({_values(table, field, type)}) WHERE {" AND ".join(conditions)}
        GROUP BY ALL ORDER BY {names} bucket""").fetchall()
    named = {one[:telling]: dict(zip(labels, one, strict=True)) for one in subjects}
    found = []
    for group, buckets in groupby(rows, key=itemgetter(slice(len(groups)))):
        more = {"key": group[-1]} if type == BY_KEY else {}
        values = np.array([bucket[len(groups) + 1 :] for bucket in buckets]).T
        found.append(Series(named[group[:telling]] | more, *_with_gaps(*values)))
    return found


def _telling(subjects: Sequence[tuple[Any, ...]]) -> int:
    """How many of the labels it takes to tell these subjects apart."""
    return next(n for n in count() if len({one[:n] for one in subjects}) == len(subjects))


def _split(metric: str) -> tuple[str, str]:
    table, _, field = metric.partition(".")
    if table not in LINE_TABLES or not field:
        raise UsageError(f"{metric!r} is no metric of a table, as gpu.power_draw_watts is.")
    return table, field


def _values(table: str, field: str, type: str) -> str:
    """The rows of a table with the `value` of a field; where it has one for each key, a row for each."""
    if type != BY_KEY:
        return f"SELECT *, {identifier(field)} AS value FROM {table}"
    entries = f"SELECT *, unnest(map_entries({identifier(field)})) AS entry FROM {table}"
    return f"SELECT *, entry.key AS key, entry.value AS value FROM ({entries})"


def _with_gaps(time: Array, *values: Array) -> Iterator[Array]:
    """The same with a point that is NaN in each gap."""
    steps = np.diff(time)
    after = np.flatnonzero(steps > GAP * np.median(steps)) + 1 if len(steps) else np.array([], dtype=int)
    yield np.insert(time, after, (time[after - 1] + time[after]) / 2)
    for each in values:
        yield np.insert(each, after, np.nan)

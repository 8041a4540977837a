"""The lines of one host of a run as columns, a stretch of time at once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pulsetrain.catalog import DATA_TABLES, TICK_TABLES
from pulsetrain.runs.database import Array, Database
from pulsetrain.runs.extent import Extent, Window, event_elapsed
from pulsetrain.runs.line_columns import identifier

MACHINE_TABLES = DATA_TABLES["machine"]


class TickTimes(NamedTuple):
    """The moments at which something was read, in the order of time."""

    elapsed: Array
    times: Array
    """Milliseconds since the epoch."""
    machine: Array
    """Whether there is a line of the host or a GPU."""


class ValidPoints(NamedTuple):
    """The values of a field that are there."""

    elapsed: Array
    times: Array
    values: Array


class SubjectLines(NamedTuple):
    """The lines of one subject, in the order of time."""

    labels: dict[str, Any]
    elapsed: Array
    times: Array
    fields: dict[str, Any]
    """Masked arrays."""

    def known(self, field: str) -> ValidPoints:
        """Of two lines of one tick, one was late: the last one holds."""
        column = self.fields[field]
        values = np.asarray(np.ma.getdata(column), np.float64)
        there = ~np.ma.getmaskarray(column)
        if there.all():
            known = ValidPoints(self.elapsed, self.times, values)
        else:
            known = ValidPoints(self.elapsed[there], self.times[there], values[there])
        again = np.diff(known.elapsed) == 0
        if not again.any():
            return known
        kept = np.append(~again, True)
        return ValidPoints(*(array[kept] for array in known))


def ticks(database: Database, host: str, window: Window, known: Extent) -> TickTimes:
    """All moments of a stretch. After the last reading, the last report of each second stands for one."""
    each = " UNION ALL ".join(
        f"SELECT elapsed_seconds AS elapsed, epoch_ms(timestamp) AS time, {table in MACHINE_TABLES} AS machine "
        f"FROM {table} WHERE host = $1"
        for table in TICK_TABLES
    )
    found = database.execute(
        f"""
        SELECT elapsed, min(time) AS time, bool_or(machine) AS machine FROM (
            {each}
            UNION ALL
            SELECT {event_elapsed("$4")}, epoch_ms(timestamp), false FROM events WHERE host = $1
            UNION ALL
            SELECT max(elapsed_seconds), max(epoch_ms(timestamp)), false FROM training
            WHERE host = $1 AND elapsed_seconds > $5 GROUP BY floor(elapsed_seconds)
        ) WHERE elapsed >= $2 AND elapsed < $3 GROUP BY elapsed ORDER BY elapsed""",
        (host, *window, known.origin, known.last_tick),
    ).fetchnumpy()
    return TickTimes(*(np.asarray(found[name]) for name in ("elapsed", "time", "machine")))


def read(
    database: Database, host: str, window: Window, source: str, labels: Sequence[str], fields: Mapping[str, str]
) -> Iterator[SubjectLines]:
    """The lines of each subject. `source` is a table, or a query of one; `fields` are SQL by name."""
    lines = f"FROM {source} WHERE host = $1 AND elapsed_seconds >= $2 AND elapsed_seconds < $3"
    wanted = "".join(f", {expression} AS {identifier(name)}" for name, expression in fields.items())
    order = ", ".join([*labels, "elapsed_seconds"])
    columns = database.execute(
        f"SELECT epoch_ms(timestamp) AS timestamp, elapsed_seconds{wanted} {lines} ORDER BY {order}", (host, *window)
    ).fetchnumpy()
    begin = 0
    for subject in _subjects(database, lines, labels, (host, *window)):
        part = slice(begin, begin + subject.pop("lines"))
        begin = part.stop
        values = {name: columns[name][part] for name in fields}
        elapsed, times = (np.asarray(columns[name][part]) for name in ("elapsed_seconds", "timestamp"))
        yield SubjectLines(subject, elapsed, times, values)


def _subjects(
    database: Database, lines: str, labels: Sequence[str], parameters: Sequence[object]
) -> list[dict[str, Any]]:
    """The labels of each subject, and how many lines it has, in the order in which they are read."""
    if not labels:
        return database.raw_rows(f"SELECT count(*) AS lines {lines}", parameters)
    names = ", ".join(labels)
    return database.raw_rows(f"SELECT {names}, count(*) AS lines {lines} GROUP BY {names} ORDER BY {names}", parameters)

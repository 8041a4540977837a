"""The lines of one host of a run as columns, a stretch of time at once."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pulsetrain.runs.database import Array, Database
from pulsetrain.runs.lines import identifier

WINDOW_LINES = 40_000
"""About so many lines are in memory at once, however long the run is."""
SAMPLED = ("gpu", "mig", "host", "process", "account")
"""The tables with a line for each reading."""
MACHINE = ("gpu", "host")


class Window(NamedTuple):
    """A stretch of elapsed time, its end excluded."""

    start: float
    end: float


class Ticks(NamedTuple):
    """The moments at which something was read, in the order of time."""

    elapsed: Array
    times: Array
    """Milliseconds since the epoch."""
    machine: Array
    """Whether there is a line of the host or a GPU."""


class Known(NamedTuple):
    """The values of a field that are there."""

    elapsed: Array
    times: Array
    values: Array


class Lines(NamedTuple):
    """The lines of one subject, in the order of time."""

    labels: dict[str, Any]
    elapsed: Array
    times: Array
    fields: dict[str, Any]
    """Masked arrays."""

    def known(self, field: str) -> Known:
        """Of two lines of one tick, one was late: the last one holds."""
        column = self.fields[field]
        values = np.asarray(np.ma.getdata(column), np.float64)
        there = ~np.ma.getmaskarray(column)
        if there.all():
            known = Known(self.elapsed, self.times, values)
        else:
            known = Known(self.elapsed[there], self.times[there], values[there])
        again = np.diff(known.elapsed) == 0
        if not again.any():
            return known
        kept = np.append(~again, True)
        return Known(*(array[kept] for array in known))


class Extent(NamedTuple):
    """Which stretch of elapsed time a host has lines for."""

    lines: int
    first: float
    last: float
    origin: float
    """Seconds since the epoch at which elapsed time began."""
    last_tick: float
    """After this there are reports of the training alone; negative when there was no tick at all."""

    def windows(self) -> list[Window]:
        """Stretches with about as many lines as may be in memory; the last one holds the last line."""
        count = math.ceil(self.lines / WINDOW_LINES)
        edges = [self.first + (self.last - self.first) * number / count for number in range(count)]
        return [Window(*pair) for pair in zip(edges, [*edges[1:], math.inf], strict=True)]


def extent(database: Database, host: str) -> Extent | None:
    """None when there is no line at all."""
    each = " UNION ALL ".join(
        f"SELECT '{table}' AS name, elapsed_seconds AS elapsed, epoch(timestamp) AS time FROM {table} WHERE host = $1"
        for table in (*SAMPLED, "training", "events")
    )
    (found,) = database.rows(
        "SELECT count(*) AS lines, min(elapsed) AS first, max(elapsed) AS last, min(time - elapsed) AS origin, "
        f"coalesce(max(elapsed) FILTER (name <> 'training'), -1) AS last_tick FROM ({each}) WHERE elapsed IS NOT NULL",
        [host],
    )
    return Extent(**found) if found["lines"] else None


def ticks(database: Database, host: str, window: Window, known: Extent) -> Ticks:
    """All moments of a stretch. After the last reading, the last report of each second stands for one."""
    each = " UNION ALL ".join(
        f"SELECT elapsed_seconds AS elapsed, epoch_ms(timestamp) AS time, {table in MACHINE} AS machine FROM {table} "
        "WHERE host = $1"
        for table in SAMPLED
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
    return Ticks(*(np.asarray(found[name]) for name in ("elapsed", "time", "machine")))


def event_elapsed(origin: str) -> str:
    """The writer of a run knows no elapsed time: its own events have the clock's alone."""
    return f"coalesce(elapsed_seconds, epoch(timestamp) - {origin})"


def read(
    database: Database, host: str, window: Window, source: str, labels: Sequence[str], fields: Mapping[str, str]
) -> Iterator[Lines]:
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
        yield Lines(subject, elapsed, times, values)


def _subjects(
    database: Database, lines: str, labels: Sequence[str], parameters: Sequence[object]
) -> list[dict[str, Any]]:
    """The labels of each subject, and how many lines it has, in the order in which they are read."""
    if not labels:
        return database.rows(f"SELECT count(*) AS lines {lines}", parameters)
    names = ", ".join(labels)
    return database.rows(f"SELECT {names}, count(*) AS lines {lines} GROUP BY {names} ORDER BY {names}", parameters)

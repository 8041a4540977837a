"""Which stretch of time one host of a recorded run has lines for, and how to read it in pieces that fit into memory."""

import math
from typing import NamedTuple

from pulsetrain.catalog import TABLES
from pulsetrain.runs.database import Database


class Window(NamedTuple):
    """A stretch of elapsed time, its end excluded."""

    start: float
    end: float


class Extent(NamedTuple):
    """Which stretch of elapsed time a host has lines for."""

    lines: int
    first: float
    last: float
    origin: float
    """Seconds since the epoch at which elapsed time began."""
    last_tick: float
    """After this there are reports of the training alone; negative when there was no tick at all."""

    def windows(self, lines: int) -> list[Window]:
        """Stretches with about `lines` lines each; the last one holds the last line."""
        count = math.ceil(self.lines / lines)
        edges = [self.first + (self.last - self.first) * number / count for number in range(count)]
        return [Window(*pair) for pair in zip(edges, [*edges[1:], math.inf], strict=True)]


def find_extent(database: Database, host: str, start: float = -math.inf) -> Extent | None:
    """That of the lines from `start` on; None when there are none."""
    each = " UNION ALL ".join(
        f"SELECT {table.from_training} AS report, elapsed_seconds AS elapsed, epoch(timestamp) AS time "
        f"FROM {table.name} WHERE host = $1 AND elapsed_seconds >= $2"
        for table in TABLES.values()
    )
    (found,) = database.rows(
        "SELECT count(*) AS lines, min(elapsed) AS first, max(elapsed) AS last, min(time - elapsed) AS origin, "
        f"coalesce(max(elapsed) FILTER (NOT report), -1) AS last_tick FROM ({each})",
        (host, start),
    )
    return Extent(**found) if found["lines"] else None


def event_elapsed(origin: str) -> str:
    """SQL of the elapsed time of an event: the run's writer does not know that of its own."""
    return f"coalesce(elapsed_seconds, epoch(timestamp) - {origin})"

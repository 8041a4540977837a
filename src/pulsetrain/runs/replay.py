"""A recorded run once more, as the snapshots of its ticks: what live views and exporters saw, at any speed."""

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pulsetrain.catalog import EVENT_TABLE, TABLES
from pulsetrain.errors import UsageError
from pulsetrain.runs.codec import from_row
from pulsetrain.runs.database import Database
from pulsetrain.runs.extent import Window, event_elapsed, find_extent
from pulsetrain.runs.ticks import Ticks
from pulsetrain.sampler import Consumer, SamplerClock
from pulsetrain.snapshot import Snapshot

WINDOW_LINES = 10_000
"""About how many lines are in memory at a time, however long the run is."""


class Replay:
    """The snapshots of one host of a run, from `start` seconds after it began. The run may still go on."""

    def __init__(
        self,
        database: Database,
        host: str,
        *,
        speed: float = 1.0,
        start: float = 0.0,
        clock: SamplerClock | None = None,
    ) -> None:
        """`database` holds the one run. A speed of 1 is as it was; infinity does not wait at all."""
        if not speed > 0:
            raise UsageError(
                f"a run cannot be replayed at speed {speed:g}.",
                hint="1 is the original speed, 20 is twenty times as fast, and inf is as fast as possible.",
            )
        self._database = database
        self._host = host
        self._speed = speed
        self._start = start
        self._clock = clock or SamplerClock()

    def run(self, consumers: Sequence[Consumer], stop: threading.Event) -> int:
        """Give each snapshot to every consumer when its time has come, until stopped. How many there were."""
        shown = 0
        began = 0.0
        for snapshot in self:
            elapsed = snapshot.elapsed / self._speed
            if not shown:
                began = self._clock.monotonic() - elapsed
            if self._clock.wait(stop, max(0.0, began + elapsed - self._clock.monotonic())):
                break
            for consumer in consumers:
                consumer(snapshot)
            shown += 1
        return shown

    def __iter__(self) -> Iterator[Snapshot]:
        """All snapshots in the order of their times, without waiting."""
        extent = find_extent(self._database, self._host, self._start)
        if extent is None:
            return
        ticks = Ticks()
        for window in extent.windows(WINDOW_LINES):
            for table in TABLES:
                for row in self._rows(table, window, extent.origin):
                    ticks.add(table, from_row(row))
            yield from ticks.take(math.nextafter(window.end, -math.inf))
        yield from ticks.rest()

    def _rows(self, table: str, window: Window, origin: float) -> list[dict[str, Any]]:
        placed = f"* REPLACE ({event_elapsed(str(origin))} AS elapsed_seconds)" if table == EVENT_TABLE.name else "*"
        return self._database.raw_rows(
            f"SELECT * FROM (SELECT {placed} FROM {table} WHERE host = $1) "
            "WHERE elapsed_seconds >= $2 AND elapsed_seconds < $3",
            (self._host, *window),
        )

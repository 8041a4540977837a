"""One GPU's energy from its lines, from the start of the run on. Reports and the running account add up with it."""

from collections.abc import Mapping

import numpy as np

from pulsetrain.insight.energy.curve import Array
from pulsetrain.insight.energy.meter import CounterFaults, Meter, Method, Readings, Stretch

MOST_LATE_SECONDS = 1.0
"""After its tick, a reading begins within this time."""


class GpuMeter:
    """Takes lines in as they come, a few at a time or a week at once, with the same result."""

    def __init__(self, *, started: float, interval_seconds: float, limit_watts: float | None = None) -> None:
        """`started` is when elapsed time began, on the machine's monotonic clock."""
        self._meter = Meter(limit_watts=limit_watts)
        self._started = started
        self._interval_seconds = interval_seconds
        self._first_watts = np.nan
        self._begun = False

    @property
    def limit_watts(self) -> float | None:
        """What the board may draw, as far as it is known."""
        return self._meter.limit_watts

    @limit_watts.setter
    def limit_watts(self, watts: float | None) -> None:
        self._meter.limit_watts = watts

    @property
    def faults(self) -> CounterFaults:
        return self._meter.faults

    def add(self, lines: Mapping[str, Array]) -> list[Stretch]:
        """Take in the columns of a meter's readings, and `exact_at` and `watts`; what they settle."""
        columns = dict(lines)
        watts, exact_at = columns.pop("watts"), columns.pop("exact_at")
        self._note_first(columns["seconds"], watts)
        self._to_the_tick(columns, watts, exact_at)
        return self._from_the_start(self._meter.add(Readings(**columns)))

    def finish(self) -> list[Stretch]:
        """Settle the rest: there are no more lines."""
        return self._from_the_start(self._meter.finish())

    def _note_first(self, seconds: Array, watts: Array) -> None:
        known = watts[np.argsort(seconds, kind="stable")]
        known = known[~np.isnan(known)]
        if np.isnan(self._first_watts) and len(known):
            self._first_watts = float(known[0])

    def _to_the_tick(self, columns: dict[str, Array], watts: Array, exact_at: Array) -> None:
        """Take the exact counter back to the time of its line, a little before it was looked at."""
        late = exact_at - self._started - columns["seconds"]
        # Times in lines are rounded to milliseconds. Where it is not known when elapsed time began, nothing is known.
        late = np.where(np.abs(late) < MOST_LATE_SECONDS, np.maximum(late, 0.001), 0.001)
        power = np.nan_to_num(watts)
        columns["exact"] = columns["exact"] - late * power
        columns["exact_error"] = columns["exact_error"] + late * np.maximum(power, self.limit_watts or 0)

    def _from_the_start(self, stretch: Stretch) -> list[Stretch]:
        if self._begun or not len(stretch.joules):
            return [stretch]
        self._begun = True
        before = self._before_the_first(stretch)
        return [before, stretch] if before else [stretch]

    def _before_the_first(self, first: Stretch) -> Stretch | None:
        """From the start of the run to the first reading: a few milliseconds as a rule, at the power that it showed.

        When it is longer than an interval, the driver answered late: then nothing is known of it, as of a lost GPU.
        """
        seconds = float(first.times[0])
        if np.isnan(self._first_watts) or seconds <= 0:
            return None
        unseen = seconds > self._interval_seconds
        watts = 0.0 if unseen else self._first_watts
        limit = np.nan if self.limit_watts is None else self.limit_watts
        return Stretch(
            times=np.array([0.0, seconds]),
            edge=np.zeros(2),
            joules=np.array([watts * seconds]),
            method=np.full(1, Method.UNKNOWN, np.int8) if unseen else first.method[:1],
            variance=np.zeros(1),
            slack=np.array([float(first.edge[0]) + seconds * max(watts, limit - watts)]),
            power_joules=np.full(1, np.nan),
            utilization=np.full(1, np.nan) if unseen else first.utilization[:1],
            gap_seconds=np.zeros(1),
        )

"""One device's energy from its lines: the counter first, and power where the counter cannot be believed.

A meter takes lines in as they come, a few at a time or a week at once, with the same result. It gives back what is
settled: a later line can still tell what happened in a gap, or that a counter which seemed to rest stood still.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from pulsetrain.insight.energy.curve import Array, EnergyCurve, HostClock

STILL_SECONDS = 2.0
"""A counter that stands still for longer while power is drawn does not work."""
MOST_WATTS = 10_000.0
"""No device draws more: a counter that rises faster was set."""


class Method(IntEnum):
    """How the energy of an interval was obtained."""

    COUNTER = 0
    POLLED = 1
    """From power, looked at many times a second."""
    POWER = 2
    """From power at the ticks alone."""
    UNKNOWN = 3


@dataclass(frozen=True)
class Readings:
    """Columns of one device's lines, NaN where a line has no such value. Lines may come in any order."""

    seconds: Array
    """Elapsed, on the monotonic clock: the wall clock may jump."""
    counter: Array | None = None
    exact: Array | None = None
    """The counter at this very moment, where that was found out."""
    exact_error: Array | None = None
    power: Array | None = None
    utilization: Array | None = None
    polled: Array | None = None
    variance: Array | None = None
    unseen: Array | None = None
    gap: Array | None = None
    edge: Array | None = None

    def column(self, name: str) -> Array:
        values: Array | None = getattr(self, name)
        return np.full(len(self.seconds), np.nan) if values is None else values

    def __getitem__(self, part: slice) -> "Readings":
        columns: dict[str, Array | None] = {name: getattr(self, name) for name in COLUMNS}
        chosen = {name: None if values is None else values[part] for name, values in columns.items()}
        return Readings(self.seconds[part], **chosen)

    def __len__(self) -> int:
        return len(self.seconds)


COLUMNS = tuple(column.name for column in fields(Readings) if column.name != "seconds")


@dataclass(frozen=True)
class Stretch:
    """Settled energy: one interval after the other."""

    times: Array
    """The ends of the intervals, one more than there are intervals."""
    edge: Array
    """How far the energy at each of them may be off, seen alone."""
    joules: Array
    """Of each interval, as all that follows."""
    method: npt.NDArray[np.int8]
    variance: Array
    slack: Array
    """NaN where nobody can say."""
    power_joules: Array
    """From power at the ticks, whatever the method; NaN where there is none."""
    utilization: Array
    """Percent, NaN where it is not known."""
    gap_seconds: Array
    """Time of it in which power was not known and was taken to be as before and after."""


@dataclass
class CounterFaults:
    """What was wrong with a counter."""

    resets: int = 0
    jumps: int = 0
    still_seconds: float = 0.0


@dataclass
class Meter:
    """Adds up the lines of one device."""

    update_seconds: float = 0.1
    """How long the counter may show the same while energy is used."""
    limit_watts: float | None = None
    faults: CounterFaults = field(default_factory=CounterFaults)
    _open: Readings | None = None
    """Lines that are not settled, from the last settled one on."""
    _still_since: float = np.nan
    """When the counter came to the value it has at the last settled line."""
    _ahead: float = 0.0
    """How far the curve is above the counter there."""
    _utilization: float = np.nan
    _has_counter = _has_power = False

    def add(self, readings: Readings) -> Stretch:
        """Take lines in, later ones than before; what they settle."""
        lines = _in_order([self._open, readings] if self._open is not None else [readings])
        self._has_counter |= bool(np.any(~np.isnan(lines.column("counter"))))
        self._has_power |= bool(np.any(~np.isnan(lines.column("power"))))
        settled = self._settled(lines)
        stretch = self._stretch(lines[: settled + 1])
        self._open = lines[settled:]
        return stretch

    def finish(self) -> Stretch:
        """Settle the rest: there are no more lines."""
        lines = self._open if self._open is not None else Readings(np.zeros(0))
        self._open = None
        return self._stretch(lines)

    def _settled(self, lines: Readings) -> int:
        """The last line about which nothing that follows can change anything."""
        complete = np.full(len(lines), True)
        if self._has_power:
            complete &= ~np.isnan(lines.column("power"))
        if self._has_counter:
            counter = lines.column("counter")
            known = ~np.isnan(counter)
            complete &= known
            complete[known] &= _Rests.of(counter[known], lines.seconds[known], self._still_since).decided
        places = np.flatnonzero(complete)
        return int(places[-1]) if len(places) else 0

    def _stretch(self, lines: Readings) -> Stretch:
        count = max(0, len(lines) - 1)
        seconds = np.diff(lines.seconds) if count else np.zeros(0)
        by_power, gap_seconds = self._power(lines)
        by_polling, variance, slack, polling_gaps = self._polling(lines, by_power)
        by_counter = self._counter(lines, np.nan_to_num(np.fmax(by_polling, by_power)))
        method = np.full(count, Method.UNKNOWN, np.int8)
        joules = np.zeros(count)
        for candidate, values in (
            (Method.POWER, by_power),
            (Method.POLLED, by_polling),
            (Method.COUNTER, by_counter),
        ):
            known = ~np.isnan(values)
            joules[known], method[known] = values[known], candidate
        limit = np.nan if self.limit_watts is None else self.limit_watts
        watts = joules / seconds
        anything = np.maximum(watts, limit - watts) * seconds
        variance = np.where(method == Method.POLLED, variance, 0)
        slack = np.select([method == Method.COUNTER, method == Method.POLLED], [np.zeros(count), slack], anything)
        return Stretch(
            lines.seconds,
            self._edges(lines, method, watts),
            joules,
            method,
            variance,
            slack,
            by_power,
            self._utilizations(lines),
            np.select([method == Method.POWER, method == Method.POLLED], [gap_seconds, polling_gaps], 0),
        )

    def _counter(self, lines: Readings, otherwise: Array) -> Array:
        """Joules of each interval by the counter, NaN where it cannot be believed."""
        counter, exact = lines.column("counter"), lines.column("exact")
        known = np.flatnonzero(~np.isnan(counter))
        joules = np.full(max(0, len(lines) - 1), np.nan)
        if not len(known):
            return joules
        counts, times = counter[known], lines.seconds[known]
        rises = np.diff(counts)
        rests = _Rests.of(counts, times, self._still_since)
        # A reading that knew more than the counter showed lies above it, and what follows never lies below.
        ahead = np.nan_to_num(exact[known] - counts)
        ahead[0] = max(ahead[0], self._ahead)
        curve = np.maximum.accumulate(np.concatenate(([0.0], np.cumsum(np.maximum(0, rises)))) + ahead)
        parts = np.diff(curve)
        spans = np.diff(times)
        used = np.add.reduceat(otherwise[: known[-1]], known[:-1]) if len(known) > 1 else np.zeros(0)
        reset = rises < 0
        # A counter that stood still may catch up: what it missed has been counted by power.
        tolerance = (self.limit_watts or MOST_WATTS) * self.update_seconds
        caught_up = rests.stands[:-1] & (used > 0) & (parts > 2 * used + tolerance)
        jump = caught_up | (parts > MOST_WATTS * (spans + self.update_seconds))
        still = rests.stands[1:] & (rises == 0) & (used > 0)
        self.faults.resets += int(np.sum(reset))
        self.faults.jumps += int(np.sum(jump))
        self.faults.still_seconds += float(np.sum(spans[still]))
        self._still_since = float(rests.since[-1])
        self._ahead = float(curve[-1] - np.sum(np.maximum(0, rises)))
        rates = parts / spans
        rates[reset | jump | still] = np.nan
        first, last = known[0], known[-1]
        place = np.searchsorted(known, np.arange(first, last), "right") - 1
        joules[first:last] = rates[place] * np.diff(lines.seconds[first : last + 1])
        return joules

    def _power(self, lines: Readings) -> tuple[Array, Array]:
        """Joules of each interval from power at the ticks: the mean of both ends, over real time; and time in gaps."""
        power = lines.column("power")
        known = np.flatnonzero(~np.isnan(power))
        count = max(0, len(lines) - 1)
        joules, gaps = np.full(count, np.nan), np.zeros(count)
        if len(known) > 1:
            watts = (power[known[1:]] + power[known[:-1]]) / 2
            first, last = known[0], known[-1]
            place = np.searchsorted(known, np.arange(first, last), "right") - 1
            spans = np.diff(lines.seconds[first : last + 1])
            joules[first:last] = watts[place] * spans
            gaps[first:last] = np.where(np.diff(known)[place] > 1, spans, 0)
        return joules, gaps

    def _polling(self, lines: Readings, by_power: Array) -> tuple[Array, Array, Array, Array]:
        """Joules of each interval from polled power, their variance, how far they may be off besides, time in gaps."""
        joules, variance, unseen, gaps = (
            np.diff(lines.column(name)) if len(lines) else np.zeros(0)
            for name in ("polled", "variance", "unseen", "gap")
        )
        joules = np.where(joules >= 0, joules, np.nan)
        spans = np.diff(lines.seconds) if len(lines) else np.zeros(0)
        gaps = np.clip(np.nan_to_num(gaps), 0, spans)
        # What no look was taken at was as what is known of the same time, or as the ticks before and after.
        seen = spans - gaps
        rate = np.divide(joules, seen, where=seen > 0, out=np.full(len(spans), np.nan))
        bridged = np.where(gaps > 0, gaps * np.where(np.isnan(by_power), rate, by_power / spans), 0)
        limit = np.nan if self.limit_watts is None else self.limit_watts
        slack = unseen + np.where(gaps > 0, gaps * limit, 0)
        return joules + bridged, variance, slack, gaps

    def _edges(self, lines: Readings, method: npt.NDArray[np.int8], watts: Array) -> Array:
        """How far the energy at each line may be off, seen alone."""
        if not len(method):
            return np.zeros(len(lines))
        nearest = np.concatenate((method[:1], method))
        drawn = np.concatenate((watts[:1], watts))
        most = drawn if self.limit_watts is None else np.maximum(drawn, self.limit_watts)
        exact_error = lines.column("exact_error")
        by_counter = np.where(np.isnan(exact_error), most * self.update_seconds, exact_error)
        by_polling = np.nan_to_num(lines.column("edge")) / 2  # two edges make up one whole
        return np.select([nearest == Method.COUNTER, nearest == Method.POLLED], [by_counter, by_polling], 0.0)

    def _utilizations(self, lines: Readings) -> Array:
        """Of each interval: at its end, because sensors look back; where it was not read, the last that was."""
        values = lines.column("utilization").copy()
        if not len(values):
            return values
        values[0] = values[0] if np.isnan(self._utilization) else self._utilization
        filled = values[np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(values))))]
        self._utilization = float(filled[-1])
        return filled[1:]


def mean_power_joules(seconds: Array, watts: Array) -> Array:
    """Of each interval, where power is known at some lines, as the mean since the one before."""
    known = ~np.isnan(watts)
    if not np.any(known):
        return np.zeros(max(0, len(seconds) - 1))
    means: Array = np.interp(seconds, seconds[known], watts[known])[1:]
    return means * np.diff(seconds)


class MeanPower:
    """Adds up such lines as they come, with the same result."""

    def __init__(self) -> None:
        self._open = Readings(np.zeros(0), power=np.zeros(0))
        """Lines from the last one on whose power is known."""

    def add(self, seconds: Array, watts: Array) -> float:
        """Take lines in; the joules that they settle."""
        lines = _in_order([self._open, Readings(seconds, power=watts)])
        places = np.flatnonzero(~np.isnan(lines.column("power")))
        last = int(places[-1]) if len(places) else 0
        self._open = lines[last:]
        return float(np.sum(mean_power_joules(lines.seconds[: last + 1], lines.column("power")[: last + 1])))

    def rest(self) -> float:
        """What would be added if nothing more came."""
        return float(np.sum(mean_power_joules(self._open.seconds, self._open.column("power"))))


def curve_of(stretches: Iterable[Stretch], clock: HostClock, limit_watts: float | None) -> EnergyCurve:
    """One curve from what a meter gave, one stretch after the other."""
    parts = [stretch for stretch in stretches if len(stretch.joules)]
    if not parts:
        nothing = np.zeros(0)
        return EnergyCurve(nothing, nothing, nothing, nothing, nothing)

    def added_up(values: Sequence[Array]) -> Array:
        return np.concatenate(([0.0], np.cumsum(np.concatenate(values))))

    return EnergyCurve(
        np.concatenate([parts[0].times[:1], *(part.times[1:] for part in parts)]),
        added_up([part.joules for part in parts]),
        added_up([part.variance for part in parts]),
        added_up([part.slack for part in parts]),
        np.concatenate([parts[0].edge[:1], *(part.edge[1:] for part in parts)]),
        np.inf if limit_watts is None else limit_watts,
        clock,
    )


def _in_order(parts: Sequence[Readings]) -> Readings:
    """Lines by time; those of one time become one, with the last known value of each column."""
    seconds = np.concatenate([part.seconds for part in parts])
    wanted = np.argsort(seconds, kind="stable")
    if len(parts) > 1 and len(parts[0]):  # what comes too late is older than what is settled
        wanted = wanted[np.searchsorted(seconds[wanted], parts[0].seconds[0]) :]
    seconds = seconds[wanted]
    starts = np.flatnonzero(np.concatenate(([True], np.diff(seconds) > 0))) if len(seconds) else np.zeros(0, int)
    columns = {
        name: _last_known(np.concatenate([part.column(name) for part in parts])[wanted], starts)
        for name in COLUMNS
        if any(getattr(part, name) is not None for part in parts)
    }
    return Readings(seconds[starts], **columns)


def _last_known(values: Array, starts: npt.NDArray[np.intp]) -> Array:
    """Of each group of values, beginning at these places, the last that is not NaN."""
    if len(starts) == len(values):
        return values
    place = np.where(np.isnan(values), -1, np.arange(len(values)))
    last = np.maximum.reduceat(place, starts)
    return np.where(last >= 0, values[last], np.nan)


@dataclass(frozen=True)
class _Rests:
    """For each reading of a counter: how long it has been, and will be, what it is."""

    times: Array
    since: Array
    until: Array
    """The last reading with the same value."""
    ended: npt.NDArray[np.bool_]
    """Whether there is a reading with another one after it."""

    @staticmethod
    def of(counts: Array, times: Array, first_since: float) -> "_Rests":
        """`first_since` is when the counter came to the first of these values, if it is known."""
        changed = np.flatnonzero(np.concatenate(([True], np.diff(counts) != 0)))
        group = np.searchsorted(changed, np.arange(len(counts)), "right") - 1
        since = times[changed]
        if not np.isnan(first_since):
            since[0] = first_since
        until = times[np.concatenate((changed[1:] - 1, [len(counts) - 1]))]
        return _Rests(times, since[group], until[group], group < len(changed) - 1)

    @property
    def stands(self) -> npt.NDArray[np.bool_]:
        """Whether it is the same for too long."""
        return np.asarray(self.until - self.since > STILL_SECONDS)

    @property
    def decided(self) -> npt.NDArray[np.bool_]:
        """Whether the readings up to one tell as well as all that follow whether the counter stands still there."""
        long_enough = self.times - self.since > STILL_SECONDS
        return np.asarray((self.since == self.times) | long_enough | (self.ended & ~self.stands))

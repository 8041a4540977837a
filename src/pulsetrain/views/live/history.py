"""What was seen so far, in bounded memory: lines for charts, and the state of every moment to go back to.

New readings are kept one by one. With age, two become one, again and again: the least, the mean and the most of ever
longer stretches. So there is enough for a chart of the last minute and for one of the whole run.
"""

import math
import zlib
from array import array
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from pulsetrain.catalog import METRICS, SAMPLE_TABLES, STEP_COUNTS
from pulsetrain.live import Live
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value

CHARTED: dict[str, frozenset[str]] = {
    "gpu": frozenset(
        {
            "utilization_percent",
            "memory_percent",
            "memory_used_mb",
            "temperature_celsius",
            "memory_temperature_celsius",
            "power_draw_watts",
            "fan_speed_percent",
            "clock_sm_hertz",
            "clock_memory_hertz",
            "memory_controller_ratio",
            "sm_active_ratio",
            "tensor_active_ratio",
            "dram_active_ratio",
            "pcie_received_bytes_per_second",
            "pcie_sent_bytes_per_second",
            "nvlink_received_bytes",
            "nvlink_sent_bytes",
        }
    ),
    "mig": frozenset({"memory_used_mb", "sm_active_ratio", "tensor_active_ratio"}),
    "host": frozenset(
        {
            "cpu_ratio",
            "cpu_iowait_ratio",
            "load_1m",
            "memory_used_bytes",
            "swap_used_bytes",
            "disk_read_bytes",
            "disk_written_bytes",
            "network_received_bytes",
            "network_sent_bytes",
            "job_cpu_cores",
            "job_memory_bytes",
            "cpu_energy_joules",
        }
    ),
}
"""What is kept as lines; of a training, every number that it reports. Processes come and go, and have none."""
FINEST_SECONDS = 0.1
"""Readings that are closer together become one."""
LEVEL_POINTS = 256
"""So many points stay as they are before two become one."""
MOST_LEVELS = 18
"""Enough for a month; what is older is forgotten."""
MOST_SERIES = 2000
"""A program can make up names without end."""
FRAME_SECONDS = 1.0
FRAMES = 240
"""States to go back to: so many one second apart, so many two seconds, four, and so on."""
GAP = 5.0
"""So many times the distance of its neighbors, and something is missing between two points."""

Floats: TypeAlias = "array[float]"
Statistic = Literal["low", "mean", "high"]
Points: TypeAlias = tuple[float | None, ...]
"""A curve: values at even distances, None where nothing is known."""

_COUNTERS = {(metric.table, metric.field) for metric in METRICS if metric.kind == "counter"}
_AMOUNTS = {metric.field for metric in METRICS if metric.table == "training" and metric.kind == "amount"}
_POINT = 4
"""A point in an array: its time, the least, the mean and the most."""
_COLUMN: dict[Statistic, int] = {"low": 1, "mean": 2, "high": 3}


class History:
    """A consumer of snapshots. It has no lock: who feeds it from one thread and asks it from another brings one."""

    def __init__(self) -> None:
        self.live = Live()
        """The present."""
        self._origin: float | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the past; the present stays."""
        self._lines: dict[Subject, dict[str, _Line]] = {}
        self._series = 0
        self._frames = _Frames()
        self._span: tuple[float, float] | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        if self._origin is None:
            self._origin = snapshot.time - snapshot.elapsed
        time = self._origin + snapshot.elapsed  # a clock that nobody sets
        self.live(snapshot)
        self._span = (self._span[0], max(self._span[1], time)) if self._span else (time, time)
        for sample in snapshot.samples:
            self._take(sample, time)
        self._frames.add(self.live, time)

    @property
    def span(self) -> tuple[float, float] | None:
        """From when to when there is anything, in seconds since the epoch, whatever the clock was set to since."""
        return self._span

    @property
    def size(self) -> int:
        """How many points and states are kept."""
        return self._frames.size + sum(line.size for lines in self._lines.values() for line in lines.values())

    def fields(self, table: str, key: str) -> list[str]:
        """Those of a subject that have a line."""
        return list(self._lines.get(Subject(table, key), ()))

    def series(
        self, table: str, key: str, field: str, start: float, end: float, points: int, of: Statistic = "mean"
    ) -> Sequence[float | None]:
        """A field between two moments, as so many points; None where nothing is known.

        A counter becomes its rate per second, an amount of a training that of one step. The points lie on a grid
        of time: while a chart moves on, what has been drawn keeps its shape.
        """
        line = self._lines.get(Subject(table, key), {}).get(field)
        if line is None or not end > start:
            return [None] * points
        width = (end - start) / points
        start = (end // width + 1 - points) * width
        return _in_slots(*line.between(start, end, of), start, width, points, _COMBINE[of])

    def at(self, time: float | None) -> Live:
        """The state at a moment that has passed, or the first that is known; None is now."""
        return self.live if time is None else self._frames.at(time) or self.live

    def _take(self, sample: Sample, time: float) -> None:
        subject, values = sample
        charted = CHARTED.get(subject.table)
        if charted is None and subject.table != "training":
            return
        lines = self._lines.setdefault(subject, {})
        if values.get("up") == 0:  # lost: what it showed ends here
            for line in lines.values():
                line.interrupt(time)
        steps = _steps(values)
        for field, value in values.items():
            if isinstance(value, int | float) and (charted is None or field in charted):
                of_one = value / steps if charted is None and field in _AMOUNTS else value
                self._line(lines, subject.table, field).add(time, of_one)

    def _line(self, lines: "dict[str, _Line]", table: str, field: str) -> "_Line":
        found = lines.get(field)
        if found is None:
            found = _Rate() if (table, field) in _COUNTERS else _Line()
            if self._series < MOST_SERIES:
                self._series += 1
                lines[field] = found
        return found


class _Line:
    """One field over time. Each level holds points from stretches twice as long as the one before; all are in order."""

    def __init__(self) -> None:
        self._levels: list[Floats] = [array("d")]

    @property
    def size(self) -> int:
        return sum(map(len, self._levels)) // _POINT

    def add(self, time: float, value: float) -> None:
        newest = self._levels[0]
        if not newest or time >= newest[-_POINT]:  # what is late has no place any more
            self._push(time, value, value, value)

    def interrupt(self, time: float) -> None:
        """Nothing is known from here on."""
        newest = self._levels[0]
        if newest and not math.isnan(newest[-1]) and time > newest[-_POINT]:
            self._push(time, math.nan, math.nan, math.nan)

    def between(self, start: float, end: float, of: Statistic) -> tuple[Floats, Floats]:
        """Times and values, with the last one before the start."""
        times, values = array("d"), array("d")
        for level in reversed(self._levels):
            own = level[::_POINT]
            first, last = max(0, bisect_right(own, start) - 1), bisect_right(own, end)
            if first > 0:  # all that is older is of no use
                times, values = array("d"), array("d")
            times += own[first:last]
            values += level[_COLUMN[of] :: _POINT][first:last]
        return times, values

    def _push(self, time: float, low: float, mean: float, high: float) -> None:
        """A point joins the newest one when they are of the same stretch. When a level is full, its oldest moves on."""
        width = FINEST_SECONDS
        for level in self._levels:
            if level and level[-_POINT] // width == time // width:
                _join(level, low, mean, high)
                return
            level.extend((time, low, mean, high))
            if len(level) <= _POINT * LEVEL_POINTS:
                return
            time, low, mean, high = level[:_POINT]
            del level[:_POINT]
            width *= 2
        if len(self._levels) < MOST_LEVELS:
            self._levels.append(array("d", (time, low, mean, high)))


class _Rate(_Line):
    """How fast a counter rises, per second."""

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[float, float] | None = None

    def add(self, time: float, value: float) -> None:
        if self._before is not None and time > self._before[0]:
            rise = value - self._before[1]
            if rise >= 0:
                super().add(time, rise / (time - self._before[0]))
            else:  # the counter was reset
                self.interrupt(time)
        self._before = (time, value)

    def interrupt(self, time: float) -> None:
        super().interrupt(time)
        self._before = None


class _Frame(NamedTuple):
    time: float
    packed: bytes


class _Frames:
    """States of the past, packed; of the older ones, every second, fourth, ... is left."""

    def __init__(self) -> None:
        self._levels: list[deque[_Frame]] = [deque()]
        self._skip = [True]

    @property
    def size(self) -> int:
        return sum(map(len, self._levels))

    def add(self, live: Live, time: float) -> None:
        newest = self._levels[0]
        if newest and time < newest[-1].time + FRAME_SECONDS:
            return
        frame = _Frame(time, _packed(live))
        for number, level in enumerate(self._levels):
            level.append(frame)
            if len(level) <= FRAMES:
                return
            frame = level.popleft()
            self._skip[number] = not self._skip[number]
            if self._skip[number]:
                return
        if len(self._levels) < MOST_LEVELS:
            self._levels.append(deque([frame]))
            self._skip.append(True)

    def at(self, time: float) -> Live | None:
        """The last one up to a moment, or else the first."""
        first = None
        for level in self._levels:
            for frame in reversed(level):
                if frame.time <= time:
                    return _unpacked(frame.packed)
                first = frame
        return _unpacked(first.packed) if first else None


def _packed(live: Live) -> bytes:
    states = [
        (state.subject.table, state.subject.key, state.subject.labels, state.values, state.rates)
        for table in SAMPLE_TABLES
        for state in live.table(table.name)
    ]
    return zlib.compress(msgspec.msgpack.encode((live.time, live.elapsed, states)), 1)


def _unpacked(packed: bytes) -> Live:
    time, elapsed, states = msgspec.msgpack.decode(zlib.decompress(packed))
    rates: dict[Subject, dict[str, float]] = {}
    samples = []
    for table, key, labels, values, rate in states:
        subject = Subject(table, key, labels)
        samples.append(Sample(subject, values))
        rates[subject] = rate
    live = Live()
    live(Snapshot(time, elapsed, tuple(samples)))
    for table in SAMPLE_TABLES:
        for state in live.table(table.name):
            state.rates.update(rates[state.subject])
    return live


def _steps(values: dict[str, Value]) -> float:
    """How many steps a report of a training is about."""
    counts = values.get(STEP_COUNTS.field)
    return max(1.0, sum(counts.values())) if isinstance(counts, dict) else 1.0


def _join(level: Floats, low: float, mean: float, high: float) -> None:
    """Merge a point into the newest one of a level."""
    if math.isnan(mean):
        return
    if math.isnan(level[-2]):
        level[-3:] = array("d", (low, mean, high))
        return
    level[-3:] = array("d", (min(level[-3], low), (level[-2] + mean) / 2, max(level[-1], high)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_COMBINE: dict[Statistic, Callable[[Sequence[float]], float]] = {"low": min, "mean": _mean, "high": max}


def _in_slots(
    times: Floats, values: Floats, start: float, width: float, count: int, combine: Callable[[Sequence[float]], float]
) -> list[float | None]:
    """Points put into even slots. One holds until the next, unless there is a gap between them."""
    places = [int((time - start) // width) for time in times]
    slots: list[float | None] = [None] * count
    for number, place in enumerate(places):
        after = places[number + 1] if number + 1 < len(places) else count
        if after > place + 1 and not math.isnan(values[number]):
            first, end = max(0, place + 1), min(count, after, int((_holds_until(times, number) - start) // width))
            slots[first:end] = [values[number]] * (end - first)
    together: defaultdict[int, list[float]] = defaultdict(list)
    for place, value in zip(places, values, strict=True):
        if 0 <= place < count and not math.isnan(value):
            together[place].append(value)
    for place, several in together.items():
        slots[place] = combine(several)
    return slots


def _holds_until(times: Floats, number: int) -> float:
    """Until when a point is true: to the next one, unless that is much farther away than its neighbors."""
    around = [after - before for before, after in pairwise(times[max(0, number - 1) : number + 3])]
    time = times[number]
    if number + 1 == len(times):
        return time + GAP * around[0] if around else time
    distance = times[number + 1] - time
    usual = max((around[0] if number else 0.0), (around[-1] if number + 2 < len(times) else 0.0)) or distance
    return time + (distance if distance <= GAP * usual else usual)

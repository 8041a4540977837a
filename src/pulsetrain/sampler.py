"""The one loop: asks every source on a fixed schedule and hands snapshots on.

Each source is read by a thread of its own, so that one that hangs holds up nobody. Ticks lie on a grid of the
monotonic clock: what a tick costs never shifts the next one, and a tick that could not be kept is a recorded gap.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pulsetrain.catalog import HOST
from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.sources import Source
from pulsetrain.sources.opening import Opened
from pulsetrain.supervise import Part, Supervisor, reason_of

log = logging.getLogger(__name__)

Consumer = Callable[[Snapshot], None]
Stage = Callable[[Snapshot], Snapshot]
"""Adds to a snapshot what follows from it and from those before."""

HUNG_AFTER_SECONDS = 5.0
"""A source that has not answered for so long (or three ticks, if that is longer) counts as down."""
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Waits between tries of a source that fails, so that a broken one costs next to nothing."""
WAITED_PERIOD_SECONDS = 1.0
"""Sources that are read more seldom than this are slow ones, for which no tick waits."""
CLOCK_JUMP_SECONDS = 1.0
LAST_TICK_SECONDS = 1.0
"""How long the end of a run may wait for a last reading."""


class SamplerClock:
    """Time as the sampler sees it; tests and benchmarks bring their own."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Sleep, or return True at once when stopped."""
        return stop.wait(seconds)


class _Tick(NamedTuple):
    time: float
    elapsed: float


class _Reading(NamedTuple):
    reader: "_Reader"
    tick: _Tick
    items: tuple[Sample | Event, ...]
    error: Exception | None
    seconds: float


class _Reader:
    """One source, its thread, and how it is doing."""

    def __init__(self, source: Source, done: "queue.SimpleQueue[_Reading]") -> None:
        self.source = source
        self.due = 0.0
        self.asked: _Tick | None = None
        self.missed_ticks = 0
        self.failures = 0
        self.hung = False
        self.read_seconds: float | None = None
        self._requests: queue.SimpleQueue[_Tick | None] = queue.SimpleQueue()
        self._done = done
        # A daemon, because a driver call that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"read-{source.name}", daemon=True)
        self._thread.start()

    @property
    def waited_for(self) -> bool:
        """Whether a tick waits for it, as it does for all but slow ones."""
        return (self.source.period or 0.0) <= WAITED_PERIOD_SECONDS

    @property
    def up(self) -> bool:
        return self.failures == 0 and not self.hung

    def ask(self, tick: _Tick) -> None:
        self.asked = tick
        self._requests.put(tick)

    def end(self, timeout: float) -> None:
        self._requests.put(None)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self.source.close()

    def _run(self) -> None:
        while (tick := self._requests.get()) is not None:
            started = time.perf_counter()
            items: tuple[Sample | Event, ...] = ()
            failure = None
            try:
                items = tuple(map(_checked, self.source.read()))
            except Exception as error:  # noqa: BLE001 - a source must never take the others, or the run, down
                failure = error
            self._done.put(_Reading(self, tick, items, failure, time.perf_counter() - started))


def _checked(item: Sample | Event) -> Sample | Event:
    """What a source gave: anything else must not reach what all sources share."""
    if not isinstance(item, Sample | Event):
        raise TypeError(f"it gave a {type(item).__name__}")
    return item


class Sampler:
    """Reads sources every `interval` seconds and gives each snapshot to every consumer, in order."""

    def __init__(
        self,
        sources: Iterable[Source],
        interval: float,
        consumers: Sequence[Consumer] = (),
        clock: SamplerClock | None = None,
        started: float | None = None,
        stages: Sequence[Stage] = (),
        supervisor: Supervisor | None = None,
        opened: Opened | None = None,
    ) -> None:
        """`started` is when elapsed time began, on the monotonic clock; now, unless somebody counts already.

        What all consumers get has gone through the `stages`, in order. Each of them is a supervised part: an exception
        costs it that one snapshot. What the supervisor knows of any part is in each snapshot's line of the host.
        Sources that `opened` brings later join at the next tick.
        """
        self.interval = interval
        self._supervisor = supervisor or Supervisor()
        self._part = self._supervisor.part("sampler")
        self._stages = [(self._supervised(stage), stage) for stage in stages]
        self._consumers = [(self._supervised(consumer), consumer) for consumer in consumers]
        self._clock = clock or SamplerClock()
        self._done: queue.SimpleQueue[_Reading] = queue.SimpleQueue()
        self._readers = [_Reader(source, self._done) for source in sources]
        self._opened = opened
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._events: list[Event] = []
        now = self._clock.monotonic()
        started = now if started is None else started
        self._start = _Tick(self._clock.time() - (now - started), started)
        self._clock_offset = 0.0

    def start(self) -> None:
        """Run the loop in a thread until `stop`."""
        self._thread = threading.Thread(target=self.run, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop after one last reading, so that counters reach to the end, and close the sources."""
        self._stop.set()
        if self._opened:
            self._opened.stop()
        if self._thread:
            self._thread.join(self.interval + 5.0)
        for reader in self._readers:
            with self._part.attempt(f"the end of {reader.source.name}"):
                reader.end(timeout=0.2 if reader.asked else 2.0)

    def run(self, ticks: float = math.inf) -> None:
        """The loop itself: `ticks` readings on the grid, or until stopped."""
        number = 0
        while number < ticks:
            with self._part.attempt("a tick"):
                self._tick()
            behind = self._clock.monotonic() - self._start.elapsed - number * self.interval
            skipped = int(behind // self.interval)
            if skipped > 0:
                self._gap("sampler", skipped, "the machine was too busy, or asleep")
            number += 1 + skipped
            due = self._start.elapsed + number * self.interval
            if self._clock.wait(self._stop, max(0.0, due - self._clock.monotonic())):
                with self._part.attempt("the last tick"):
                    self._last_tick()
                return

    def once(self, timeout: float) -> Snapshot:
        """One reading of every source, slow ones too, waiting for them at most so long."""
        tick = self._now()
        for reader in self._readers:
            reader.ask(tick)
        return self._snapshot(tick, self._collect(set(self._readers), timeout))

    def _join(self) -> None:
        """Take in sources that have opened since the last tick."""
        for item in self._opened.arrivals() if self._opened else ():
            if isinstance(item, Event):
                self._events.append(item)
            else:
                self._readers.append(_Reader(item, self._done))

    def _tick(self) -> None:
        self._join()
        tick = self._now()
        arrived = self._collect(set(), 0.0)
        waited_for = set()
        for reader in self._readers:
            if reader.asked is not None:
                self._still_busy(reader, tick)
            elif tick.elapsed >= reader.due - 0.01 * self.interval:
                reader.ask(tick)
                if reader.waited_for:
                    waited_for.add(reader)
        arrived += self._collect(waited_for, 0.9 * self.interval)
        now: list[_Reading] = []
        late: list[_Reading] = []
        for reading in arrived:
            # A slow source's news joins the tick at which it arrives; a late one of this loop keeps its own time.
            belongs = reading.tick is tick or not reading.reader.waited_for
            (now if belongs else late).append(reading)
        for reading in late:
            self._emit(self._snapshot(reading.tick, [reading], health=False))
        self._emit(self._snapshot(tick, now))

    def _last_tick(self) -> None:
        """Read every source once more, slow ones too, so that counters reach to the end."""
        tick = self._now()
        arrived = self._collect(set(), 0.0)
        idle = {reader for reader in self._readers if reader.asked is None}
        for reader in idle:
            reader.ask(tick)
        snapshot = self._snapshot(tick, arrived + self._collect(idle, LAST_TICK_SECONDS))
        self._emit(snapshot._replace(last=True))

    def _now(self) -> _Tick:
        tick = _Tick(self._clock.time(), self._clock.monotonic() - self._start.elapsed)
        offset = tick.time - self._start.time - tick.elapsed
        jump = offset - self._clock_offset
        if abs(jump) > CLOCK_JUMP_SECONDS:
            self._events.append(
                Event(
                    "clock_jump",
                    f"the wall clock jumped by {jump:+.1f} s: the machine slept, or its clock was set",
                    "warning",
                    {"seconds": round(jump, 3)},
                )
            )
        self._clock_offset = offset
        return tick

    def _collect(self, waited_for: set[_Reader], timeout: float) -> list[_Reading]:
        """Readings of these sources, as far as they come in time, and whatever else has arrived."""
        readings: list[_Reading] = []
        deadline = time.monotonic() + timeout
        while True:
            try:
                reading = self._done.get(bool(waited_for), max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return readings
            waited_for.discard(reading.reader)
            self._note_reading(reading)
            readings.append(reading)

    def _note_reading(self, reading: _Reading) -> None:
        reader = reading.reader
        source = reader.source
        reader.asked = None
        reader.read_seconds = reading.seconds
        if reader.missed_ticks:
            self._gap(source.name, reader.missed_ticks, f"a reading took {reading.seconds:.1f} s")
            reader.missed_ticks = 0
        if reading.error is None:
            if not reader.up:
                self._events.append(
                    Event("source_up", f"{source.name}: working again", "info", {"source": source.name})
                )
            reader.failures = 0
            reader.due = reading.tick.elapsed + (source.period or 0.0)
        else:
            if reader.failures == 0:
                self._source_down(source.name, reading.error)
            reader.due = reading.tick.elapsed + RETRY_SECONDS[min(reader.failures, len(RETRY_SECONDS) - 1)]
            reader.failures += 1
        reader.hung = False

    def _still_busy(self, reader: _Reader, tick: _Tick) -> None:
        assert reader.asked is not None
        busy = tick.elapsed - reader.asked.elapsed
        if reader.waited_for and busy > 0.99 * (reader.source.period or 0.0):
            reader.missed_ticks += 1
        if not reader.hung and busy > max(HUNG_AFTER_SECONDS, 3 * (reader.source.period or self.interval)):
            reader.hung = True
            self._source_down(reader.source.name, PulsetrainError(f"no answer for {busy:.0f} s"))

    def _source_down(self, name: str, error: Exception) -> None:
        log.debug("source %s failed", name, exc_info=error)
        self._events.append(Event("source_down", f"{name}: {reason_of(error)}", "warning", {"source": name}))

    def _gap(self, source: str, ticks: int, reason: str) -> None:
        self._events.append(
            Event(
                "gap",
                f"{source} missed {ticks} tick{'s' if ticks > 1 else ''}: {reason}",
                "info",
                {"source": source, "ticks": ticks, "seconds": round(ticks * self.interval, 3)},
            )
        )

    def _snapshot(self, tick: _Tick, readings: Iterable[_Reading], *, health: bool = True) -> Snapshot:
        merged: dict[Subject, Sample] = {}
        events = self._events
        self._events = []
        for reading in readings:
            for item in reading.items:
                if isinstance(item, Event):
                    events.append(item)
                elif item.subject in merged:
                    merged[item.subject].values.update(item.values)
                else:
                    merged[item.subject] = item
        if health:
            merged.setdefault(HOST, Sample(HOST, {})).values.update(self._health())
            events += self._supervisor.news()
        return Snapshot(tick.time, tick.elapsed, tuple(merged.values()), tuple(events))

    def _health(self) -> dict[str, Value]:
        """How the sources and all parts of this process are doing, and what that costs."""
        up: dict[str, float] = dict.fromkeys(self._opened.down(), 0) if self._opened else {}
        values: dict[str, Value] = {
            "source_up": up | {reader.source.name: int(reader.up) for reader in self._readers},
            "source_read_seconds": {
                reader.source.name: round(reader.read_seconds, 6)
                for reader in self._readers
                if reader.read_seconds is not None
            },
            "pulsetrain_cpu_seconds": round(time.process_time(), 3),
        }
        if troubled := [part for part in self._supervisor.health() if part.troubled]:
            values["part_up"] = {part.name: int(part.status != "down") for part in troubled}
            values["part_skipped_items"] = {part.name: part.skipped_items for part in troubled}
        return values

    def _emit(self, snapshot: Snapshot) -> None:
        for part, stage in self._stages:
            with part.attempt("a reading"):
                snapshot = stage(snapshot)
        for part, consumer in self._consumers:
            with part.attempt("a reading"):
                consumer(snapshot)

    def _supervised(self, function: Stage | Consumer) -> Part:
        """The part of a consumer, named after its class or function."""
        name = getattr(function, "__qualname__", type(function).__name__)
        return self._supervisor.part(name.rpartition(".")[2].lower())

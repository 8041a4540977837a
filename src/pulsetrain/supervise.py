"""Supervision: no part of ours dies or gets stuck unnoticed.

Whatever runs beside the training (the sampler's consumers, the writer, the node, a push target, the exporter) is a
*part*. A part works through items. An exception on one of them skips that item: it is counted, named in the log, and
the part works on. All parts of a process belong to one `Supervisor`, which says which of them are degraded or down.

A loop in a thread of its own:

    part = supervisor.part("node")
    worker = Worker(part, self._look_for_runs, every_seconds=2.0)
    worker.start()
    ...
    worker.stop(timeout_seconds=2.0)

Items in a loop or callback that exists already:

    for snapshot in arrived:
        with part.attempt("a reading"):  # an exception is logged and counted, and the loop continues
            self._make_lines(snapshot)

Put `attempt` around one item, after it was taken from its queue: then a bad one cannot come again and block the rest.
What does not work as a whole (a full disk, a server that refuses) is `part.fail(reason)`, until `part.recover()`.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Event, Label, Severity
from pulsetrain.training.masking import masked_message

log = logging.getLogger(__name__)

Status = Literal["ok", "degraded", "down"]
Item = tuple[str, float]
"""What a part works on, and since when."""
_SEVERITY: dict[Status, Severity] = {"ok": "info", "degraded": "warning", "down": "critical"}

DEGRADED_SECONDS = 300.0
"""A part stays degraded for so long after the last item it skipped."""
DOWN_AFTER_FAILURES = 5
"""A part that skipped this many items in a row is down."""
STUCK_AFTER_SECONDS = 60.0
"""A part that has worked on one item for so long is down, unless it asked for more patience."""
SILENT_SECONDS = (0.0, 60.0, 600.0, 3600.0)
"""Waits between log lines about the same failure."""


@dataclass(frozen=True)
class PartHealth:
    """How a part is doing, at the moment somebody asked."""

    name: str
    status: Status
    skipped_items: int
    """Since the start, also when all is well again."""
    reason: str
    """Of the last trouble; empty if there never was any."""
    seconds: float
    """For how long it has had this status."""

    @property
    def troubled(self) -> bool:
        """Whether anything ever went wrong."""
        return self.status != "ok" or self.skipped_items > 0

    def __str__(self) -> str:
        """One line for people: `writer: degraded, 3 items skipped: OSError: no space`."""
        skipped = f", {self.skipped_items} item{'s' if self.skipped_items > 1 else ''} skipped"
        return f"{self.name}: {self.status}{skipped if self.skipped_items else ''}{f': {self.reason}' * self.troubled}"


class Part:
    """One supervised part, made by `Supervisor.part`. One thread works on its items; any may ask how it is doing."""

    def __init__(self, name: str, stuck_after_seconds: float, clock: Callable[[], float]) -> None:
        self.name = name
        self._stuck_after_seconds = stuck_after_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._item: Item | None = None
        self._skipped_items = 0
        self.failures = 0
        """How often something was skipped or tried again."""
        self._failures_in_a_row = 0
        self._failed_at = -float("inf")
        self._reason = ""
        self._failing = False
        self._log_lines = _LogLines(name, clock)

    def attempt(self, what: str) -> "Attempt":
        """Work on one item, in a `with` statement. An exception from it does not get out: the item is skipped."""
        return Attempt(self, what)

    def skip(self, what: str, error: Exception, items: int = 1, *, logged: bool = False) -> None:
        """Count items that were left out, for a part that caught the exception itself, and may have logged it."""
        with self._lock:
            self._skipped_items += items
            self.failures += 1
            self._failures_in_a_row += 1
            self._failed_at = self._clock()
            self._reason = masked_message(f"{what}: {reason_of(error)}")
        if not logged:
            self._log_lines.skipped(what, error)

    def succeed(self) -> None:
        """An item went well. `attempt` does this itself."""
        self._failures_in_a_row = 0

    def fail(self, reason: str, *, logged: bool = False) -> None:
        """The part as a whole does not work, until it says `recover`. Logged once, unless the part has done that."""
        with self._lock:
            news = not self._failing
            self._failing, self._reason, self._failed_at = True, masked_message(reason), self._clock()
        if news and not logged:
            log.warning("%s is down: %s", self.name, reason)

    def recover(self) -> None:
        """The part as a whole works again."""
        self._failing = False

    def begin(self, what: str) -> Item | None:
        """Note that work on an item begins, and return what it is a piece of. `attempt` does this itself."""
        around, self._item = self._item, (what, self._clock())
        return around

    def end(self, around: Item | None) -> None:
        """Note that work on an item has ended, so that what it was a piece of makes progress."""
        self._item = around and (around[0], self._clock())

    def status(self) -> tuple[Status, str]:
        """How it is doing now, and the reason if not well."""
        if stuck := self.stuck():
            return "down", stuck
        now = self._clock()
        if self._failing or self._failures_in_a_row >= DOWN_AFTER_FAILURES:
            return "down", self._reason
        if self._failures_in_a_row or (self._skipped_items and now - self._failed_at < DEGRADED_SECONDS):
            return "degraded", self._reason
        return "ok", self._reason

    def stuck(self) -> str:
        """On what it makes no progress, and for how long; empty if it does."""
        item = self._item
        seconds = self._clock() - item[1] if item else 0.0
        return f"{item[0]}: no progress for {seconds:.0f} s" if item and seconds > self._stuck_after_seconds else ""

    @property
    def skipped_items(self) -> int:
        return self._skipped_items


class Attempt:
    """The `with` block of `Part.attempt`."""

    def __init__(self, part: Part, what: str) -> None:
        self._part = part
        self._what = what
        self._around: Item | None = None
        self._failures_before = 0
        self.failed = False
        """Whether the item was skipped; to be asked after the block."""

    def __enter__(self) -> "Attempt":
        self._failures_before = self._part.failures
        self._around = self._part.begin(self._what)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._part.end(self._around)
        if error is None:
            if self._part.failures == self._failures_before:  # of what it consists of, too
                self._part.succeed()
            return False
        if not isinstance(error, Exception):
            return False  # KeyboardInterrupt and its like are not about the item
        self.failed = True
        self._part.skip(self._what, error)
        return True


class Supervisor:
    """All parts of one process, or of one session in it. Whoever builds the parts makes one and hands it to each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parts: dict[str, Part] = {}
        self._known: dict[str, tuple[Status, float]] = {}
        self._lock = threading.Lock()

    def part(self, name: str, stuck_after_seconds: float = STUCK_AFTER_SECONDS) -> Part:
        """A new part. A second one of the same name gets a number: `push-2`."""
        with self._lock:
            unique, count = name, 1
            while unique in self._parts:
                count += 1
                unique = f"{name}-{count}"
            self._parts[unique] = part = Part(unique, stuck_after_seconds, self._clock)
            self._known[unique] = ("ok", self._clock())
        return part

    def health(self) -> list[PartHealth]:
        """How every part is doing now, in the order in which they were made."""
        with self._lock:
            return [self._look(part)[0] for part in self._parts.values()]

    def troubled(self) -> list[PartHealth]:
        """The parts that are degraded or down."""
        return [health for health in self.health() if health.status != "ok"]

    def news(self) -> list[Event]:
        """What has changed since the last call: an event for every part that has become worse, or well again."""
        events = []
        with self._lock:
            for part in self._parts.values():
                health, changed = self._look(part)
                if changed:
                    details: dict[str, Label] = {"part": part.name, "skipped_items": health.skipped_items}
                    events.append(Event(f"part_{health.status}", str(health), _SEVERITY[health.status], details))
                    self._known[part.name] = (health.status, self._clock())
                    if part.stuck():  # all other trouble the part has logged itself
                        log.warning("%s", health)
        return events

    def _look(self, part: Part) -> tuple[PartHealth, bool]:
        status, reason = part.status()
        known, since = self._known[part.name]
        seconds = self._clock() - since if status == known else 0.0
        return PartHealth(part.name, status, part.skipped_items, reason, seconds), status != known


class Worker:
    """A supervised loop in a daemon thread: calls `work` every so often, and when woken, until it is stopped."""

    def __init__(
        self,
        part: Part,
        work: Callable[[], float | None],
        *,
        every_seconds: float,
        finish: Callable[[], None] | None = None,
        what: str = "a round",
    ) -> None:
        """`work` may return how many seconds to wait this time; `finish` is called once, in the thread, at the end.

        `what` names a call of either, for whoever reads that it failed or is stuck.
        """
        self._what = what
        self._part = part
        self._work = work
        self._every_seconds = every_seconds
        self._finish = finish
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=part.name, daemon=True)

    def start(self) -> None:
        """The first call of `work` comes at once."""
        self._thread.start()

    def wake(self) -> None:
        """Have `work` called now, or once more if it is being called."""
        self._woken.set()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """End the loop and wait for it; False if it did not end in time, because a call hangs."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 - nobody else would ever hear of it
            self._part.fail(f"its thread ended: {reason_of(error)}")

    def _loop(self) -> None:
        while not self._stopping:
            pause = None
            with self._part.attempt(self._what):
                pause = self._work()
            self._woken.wait(self._every_seconds if pause is None else pause)
            self._woken.clear()
        if self._finish:
            with self._part.attempt(self._what):
                self._finish()


def reason_of(error: BaseException) -> str:
    """An exception in a few words: ours speak for themselves, others need their type."""
    return str(error) if isinstance(error, PulsetrainError) else f"{type(error).__name__}: {error}"


class _LogLines:
    """Names each kind of failure when it first occurs, and with increasing delay after that."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._told: dict[tuple[type, str], tuple[int, float, int]] = {}

    def skipped(self, what: str, error: Exception) -> None:
        """A kind of failure is its type and the line of code it came from: messages may differ each time."""
        kind = (type(error), _origin(error))
        lines, due, silent = self._told.get(kind, (0, 0.0, 0))
        now = self._clock()
        if lines and now < due:
            self._told[kind] = (lines, due, silent + 1)
            return
        lines += 1
        self._told[kind] = (lines, now + SILENT_SECONDS[min(lines, len(SILENT_SECONDS) - 1)], 0)
        again = f" (and {silent} more like it)" if silent else ""
        # With a traceback only where it helps: once, and not for what is simply wrong with the machine.
        trace = error if lines == 1 and not isinstance(error, PulsetrainError | OSError) else None
        log.warning("%s skipped %s: %s%s", self._name, what, reason_of(error), again, exc_info=trace)


def _origin(error: Exception) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""

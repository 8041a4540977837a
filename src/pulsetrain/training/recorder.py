"""Keeps what a training process reports, at next to no cost to it, in a file of its own.

A report is appended to memory. A background thread turns batches into JSON lines and writes them, twice a second
or when somebody hurries it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pulsetrain.training.encoder import Report
from pulsetrain.training.ending import before_end
from pulsetrain.training.liveness import RunEnded
from pulsetrain.training.report_queue import ReportQueue
from pulsetrain.training.report_writer import ReportWriter
from pulsetrain.training.threads import in_pool_worker, start_thread
from pulsetrain.training.values import GoneError, Pending, number
from pulsetrain.training.warn import warn

FLUSH_SECONDS = 0.5
END_SECONDS = 2.0
"""How long the end of a program waits for a disk or a device that does not answer."""
MOST_REPORTS = 50_000
"""Held in memory when the disk does not follow; beyond that, old detail is thinned."""
BATCH_REPORTS = 4096
THROUGH_SECONDS = 0.5
"""How long a report waits to be written in a worker that may be ended at any time."""
RETRY_SECONDS = 5.0
"""Between two tries of what did not work: to start a thread, or to write at once."""

_PLAIN = frozenset({float, int})
_TEXT_FIELDS = frozenset({"phase", "training"})


class Recorder:
    """Takes reports from any thread, and has them written in the background."""

    def __init__(self, folder: str, stamp: str, started: float, about: Mapping[str, Any] | None = None) -> None:
        """`started` is when the run did, on the monotonic clock, which all processes of a machine share."""
        self._new_writer = partial(ReportWriter, folder, stamp, started, dict(about or {}))
        self._noted: set[str] = set()
        self._copied: set[str] = set()
        """Names of values that the program takes away before they are read: they are copied first."""
        self._closed = False
        self._begin()
        before_end(self.close)
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Also in a forked child, which has its own file and thread, made when it first reports: most never do."""
        self.reports = ReportQueue(MOST_REPORTS)
        self._pid = os.getpid()
        self._skipped: dict[str, int] = {}
        """What was left out, and how often."""
        self._awaits = False
        """Whether any value was ever on its way when it was reported."""
        self._writer = self._new_writer()
        self._in_flight = 0
        """How many reports are being written, and how many are being reported as dropped."""
        self._batches = 0
        """How many were written."""
        self._trouble = ""
        """Why the last batch could not be written."""
        self._thread: threading.Thread | None = None
        self._flushing = threading.Lock()
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._flushed = threading.Event()
        self._attended = True
        """Whether a report needs more than to be appended: as long as there is no thread, and in workers of a pool."""
        self._next_try = 0.0

    def add(self, fields: dict[str, Any], now: Callable[[], float] = time.monotonic) -> None:
        """Take a report; the dictionary is ours from here on. Costs about a microsecond and never raises or waits."""
        if not _PLAIN.issuperset(map(type, fields.values())):
            fields = self._settled(fields)
        reports = self.reports
        reports.append((now(), fields))
        if self._attended or len(reports) > reports.most:
            self._attend()

    def add_text(self, at: float, text: str) -> None:
        """Take a report of this monotonic time that is written as its fields are in a line: `,"loss":0.5`."""
        reports = self.reports
        reports.append((at, text))
        if self._attended or len(reports) > reports.most:
            self._attend()

    def note(self, event: str, message: str, severity: str = "info", **details: Any) -> None:
        """Something worth telling beside the figures; it becomes an event of the run."""
        self.add({"event": event, "severity": severity, "message": message, **details})

    def note_once(self, event: str, message: str, severity: str = "info") -> None:
        if message not in self._noted:
            self._noted.add(message)
            self.note(event, message, severity)

    def skip(self, what: str, message: str) -> bool:
        """Count something that is left out. The first time it becomes an event of the run, and this is True."""
        count = self._skipped[what] = self._skipped.get(what, 0) + 1
        if count == 1:
            self.note("skipped", message, "warning")
        return count == 1

    def attend(self) -> None:
        """Have what is noted beside the reports written soon, even if there is no report."""
        if self._attended:
            self._attend()

    def hurry(self) -> None:
        """Have the background thread write soon what there is."""
        self._wake.set()

    def flush(self) -> None:
        """Write what there is, up to the first value that is still on its way."""
        self._flush(wait=False)

    def close(self) -> None:
        """Write everything, and take nothing more. What cannot be written within two seconds is counted and dropped."""
        if self._closed or self._pid != os.getpid():
            return
        self._note_totals()
        self._closed = True
        self._wake.set()
        thread = self._thread
        if thread is None:
            self._finish()
        elif thread is not threading.current_thread():
            self._wait_for(thread)
        unwritten = len(self.reports) + self._in_flight + self.reports.dropped
        if unwritten:
            reason = self._trouble or "the disk or a device does not answer"
            warn("pulsetrain: %d reports were not written: %s." % (unwritten, reason), stacklevel=2)

    def _wait_for(self, thread: threading.Thread) -> None:
        """Until it has written everything, or no batch for a while."""
        batches = -1
        while thread.is_alive() and batches != self._batches:
            batches = self._batches
            thread.join(END_SECONDS)

    @property
    def closed(self) -> bool:
        return self._closed

    # Values

    def _settled(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The same with plain numbers, or with values that are on their way. What is None or no number is left out."""
        if "event" in fields:
            return fields
        settled: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None:
                continue
            if type(value) in _PLAIN or (type(value) is str and name in _TEXT_FIELDS):
                settled[name] = value
                continue
            try:
                settled[name] = settled_value = number(value, own_copy=name in self._copied)
                self._awaits |= isinstance(settled_value, Pending)
            except Exception as error:  # the value's own code runs here, and nothing of it may reach the training loop
                kind = "%s.%s" % (type(value).__module__, type(value).__qualname__)
                self._leave_out(name, "%r is not a number but %s (%s); it is not recorded." % (name, kind, error))
        return settled

    def _resolve(self, fields: dict[str, Any], wait: bool) -> bool:
        """Put numbers in place of the values that were on their way; False when one still is."""
        for name, value in list(fields.items()):
            if not isinstance(value, Pending):
                continue
            try:
                if not (wait or value.ready()):
                    return False
                fields[name] = value.value()
            except GoneError as error:
                del fields[name]
                self._copied.add(name)
                self._leave_out(name, "%r is not recorded: %s. From now on it is copied first." % (name, error))
            except Exception as error:
                del fields[name]
                reason = "%s: %s" % (type(error).__name__, error)
                self._leave_out(name, "%r could not be read (%s); it is not recorded." % (name, reason))
        return True

    def _leave_out(self, name: str, message: str) -> None:
        """Count a value that is not recorded; of the first one under its name, the user and the run learn why."""
        if self.skip(name, message):
            warn("pulsetrain: " + message, stacklevel=5)

    def _note_totals(self) -> None:
        often = {what: count for what, count in self._skipped.items() if count > 1}
        if often:
            words = ", ".join("%s %d times" % item for item in often.items())
            self.note("skipped_total", "Not recorded: %s." % words, "warning", skipped=often)

    # The background

    def _attend(self) -> None:
        self.reports.thin()
        if self._closed:
            self.reports.clear()
        elif self._thread is None:
            self._start_thread()
        if self._thread is not None:
            self._attended = in_pool_worker()
            if self._attended:
                self._write_through()

    def _start_thread(self) -> None:
        now = time.monotonic()
        if now < self._next_try or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                self._thread = start_thread(self._run, "pulsetrain-recorder")
            if self._thread is None:
                self._next_try = now + RETRY_SECONDS
                self.note_once("no_thread", "Cannot start a thread: the training thread writes its own reports.")
                self._try_flush(wait=False)
        finally:
            self._starting.release()

    def _write_through(self) -> None:
        """Wait until everything is written, unless the disk is slow."""
        begin = now = time.monotonic()
        while (self.reports or self._in_flight) and self._next_try <= now:
            self._flushed.clear()
            self._wake.set()
            self._flushed.wait(THROUGH_SECONDS)
            now = time.monotonic()
            if now - begin > THROUGH_SECONDS:
                self._next_try = now + RETRY_SECONDS

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(FLUSH_SECONDS)
            self._wake.clear()
            self._try_flush(wait=False)
            self._flushed.set()
        self._finish()

    def _finish(self) -> None:
        self._try_flush(wait=True)
        self._writer.close()

    def _try_flush(self, wait: bool) -> None:
        try:
            self._flush(wait)
        except Exception as error:  # a fault of ours must not print tracebacks into the training's output
            self._trouble = "%s: %s" % (type(error).__name__, error)
            self.skip("flush", "Reports could not be written: %s" % self._trouble)

    def _flush(self, wait: bool) -> None:
        with self._flushing:
            while self._write_batch(wait):
                pass
            self._write_provenance()

    def _write_batch(self, wait: bool) -> bool:
        """Write a batch of reports; True when there may be more to write."""
        taken = self.reports.take(BATCH_REPORTS)
        self._in_flight = len(taken)
        unwritten: list[Report] = []
        try:
            ready = self._ready(taken, wait)
            unwritten = taken[ready:]
            self._write([report for report in taken[:ready] if report[1]])
            self._batches += 1
        except OSError as error:  # the disk is full or away: keep them for the next time
            self._trouble = str(error)
            unwritten = taken
        except RunEnded as run:
            unwritten = []
            self._abandon(run)
        except Exception:
            self.reports.drop(len(taken) - len(unwritten))
            raise
        finally:
            self.reports.put_back(unwritten)
            self._in_flight = 0
        return len(taken) == BATCH_REPORTS and not unwritten

    def _write_provenance(self) -> None:
        try:
            self._writer.write_provenance()
        except OSError as error:  # it is tried again with the next batch
            self._trouble = str(error)
        except RunEnded as run:
            self._abandon(run)

    def _abandon(self, run: RunEnded) -> None:
        """Take nothing more, and write nothing."""
        self._closed = self._attended = True
        self.reports.clear()
        self.reports.take_dropped()
        warn("pulsetrain: the run %s has ended: nothing more of this process is recorded." % run, stacklevel=1)

    def _ready(self, reports: list[Report], wait: bool) -> int:
        """How many there are before the first that holds a value still on its way."""
        if self._awaits:
            for place, (_, fields) in enumerate(reports):
                if (
                    type(fields) is dict
                    and not _PLAIN.issuperset(map(type, fields.values()))
                    and not self._resolve(fields, wait)
                ):
                    return place
        return len(reports)

    def _write(self, reports: list[Report]) -> None:
        dropped = self.reports.take_dropped()
        self._in_flight += dropped
        if dropped:
            reports.append((time.monotonic(), _dropped_note(dropped)))
        if not reports:
            return
        try:
            self._writer.write(reports, self.skip)
            self._trouble = ""
        except Exception:
            self.reports.drop(dropped)
            raise


def _dropped_note(count: int) -> dict[str, Any]:
    message = "%d reports were dropped: the disk could not keep up" % count
    return {"event": "reports_dropped", "severity": "warning", "message": message, "dropped_reports": count}

"""A run that somebody looks at: its readings, and, while it is in progress, what is added to them."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import RunFolder
from pulsetrain.sampler import Consumer
from pulsetrain.snapshot import Snapshot
from pulsetrain.views.live.feeds import Feed
from pulsetrain.views.live.machines import WatchedMachine, locked, machines_of
from pulsetrain.views.live.progress import RunProgress
from pulsetrain.views.web.columns import RunColumns
from pulsetrain.views.web.figures import event_document, progress_figures
from pulsetrain.views.web.streams import Streams
from pulsetrain.views.web.thinning import rounded

SEND_SECONDS = 0.5
"""Between two messages about a run, at least: a training may report a thousand steps a second."""
REOPEN_SECONDS = 2.0
"""Between two readings of the files because something new was seen, at least; each one doubles it."""
MOST_REOPEN_SECONDS = 60.0


class _Tee:
    """A feed whose snapshots another consumer gets first."""

    def __init__(self, feed: Feed, first: Consumer) -> None:
        self.title, self.live = feed.title, feed.live
        self._feed, self._first = feed, first

    def start(self, consumer: Consumer) -> None:
        def both(snapshot: Snapshot) -> None:
            self._first(snapshot)
            consumer(snapshot)

        self._feed.start(both)

    def stop(self) -> None:
        self._feed.stop()


class FollowedRun:
    """One run. Of one that has ended, the files are all there is."""

    def __init__(self, folder: RunFolder, streams: Streams) -> None:
        self.id = folder.path.name
        self.folder = folder
        self.run = folder.load()
        self.columns = RunColumns(folder)
        self.machines: list[WatchedMachine] = []
        self._streams = streams
        self._ended = False
        self._over: set[str] = set()
        """Hosts from which nothing more will come."""
        self._stopped = False
        self._sent_at = 0.0
        self._sent: dict[tuple[str, str], float] = {}
        self._events = 0
        self._sending = threading.Lock()
        self._reopen_at = time.monotonic() + REOPEN_SECONDS
        self._reopen_seconds = REOPEN_SECONDS

    @property
    def in_progress(self) -> bool:
        return self.run.status == "running" and not self._ended

    def start(self) -> None:
        """Follow the files of a run in progress, in threads of their own."""
        if self.run.status != "running":
            return
        self.columns.charts()  # from here on, what is new is noticed
        try:
            self.machines = machines_of(self.folder)
        except UsageError:  # it has begun just now, and names no host yet
            return
        for host, machine in zip(self.run.hosts, self.machines, strict=False):
            machine.feed = _Tee(machine.feed, partial(self._take, host))
            machine.changed = self._changed
            machine.start()

    def stop(self) -> None:
        self._stopped = True
        for machine in self.machines:
            machine.stop()
        self.columns.close()

    def is_current(self) -> bool:
        """Whether it still shows the run as it is; otherwise it is to be opened again."""
        if self.run.status != "running":
            return True
        return not self._ended and bool(self.machines)

    def progress(self) -> RunProgress | None:
        """How a run in progress is doing; None of one that has ended."""
        return RunProgress(self.machines) if self.in_progress and self.machines else None

    def figures(self) -> list[dict[str, str]]:
        """The same in figures for the head of the page."""
        with locked(self.machines):
            progress = self.progress()
            return progress_figures(progress) if progress else []

    @property
    def elapsed_seconds(self) -> float:
        """How long the run is, so far."""
        if self.run.seconds is not None:
            return self.run.seconds
        with locked(self.machines):
            elapsed = max((machine.history.live.elapsed for machine in self.machines), default=0.0)
        return elapsed or max(0.0, time.time() - self.run.start.timestamp())  # its files are being read

    def _take(self, host: str, snapshot: Snapshot) -> None:
        self.columns.take(host, snapshot)
        if snapshot.last:
            self._over.add(host)

    def _changed(self) -> None:
        """After each snapshot of a host, in the thread of its feed."""
        with self._sending:
            now = time.monotonic()
            ended = len(self._over) == len(self.machines)
            if self._stopped or (now < self._sent_at + SEND_SECONDS and not ended):
                return
            self._sent_at = now
            if ended:
                self._ended = True
                self._streams.publish(f"run:{self.id}", "ended", {"run": self.id})
                return
            if self.columns.outdated and now > self._reopen_at:
                self._reopen(now)
            if f"run:{self.id}" in self._streams.topics:
                self._streams.publish(f"run:{self.id}", "tick", self._message())

    def _reopen(self, now: float) -> None:
        """Read the files again: the run has shown something that they did not have."""
        before, self.columns = self.columns, RunColumns(self.folder)
        self.columns.charts()
        before.close()
        self._reopen_seconds = min(2 * self._reopen_seconds, MOST_REOPEN_SECONDS)
        self._reopen_at = now + self._reopen_seconds
        self._streams.publish(f"run:{self.id}", "charts", {"run": self.id})

    def _message(self) -> dict[str, Any]:
        """What is new since the last message."""
        charts = self.columns.charts()
        lines = self.columns.lines_read(charts)
        points: dict[str, list[dict[str, Any]]] = {}
        for chart, chart_lines in lines:
            found = []
            for line in chart_lines:
                since = self._sent.get((chart.key, line.label), -1.0)
                times, values = line.column.since(since, rate=chart.rate)
                if times.size:
                    self._sent[chart.key, line.label] = float(times[-1])
                found.append({"x": rounded(times), "last": rounded(values * chart.scale)})
            if any(one["x"] for one in found):
                points[chart.key] = found
        return {
            "run": self.id,
            "elapsed_seconds": self.elapsed_seconds,
            "figures": self.figures(),
            "points": points,
            "events": list(self._new_events()),
        }

    def _new_events(self) -> Iterator[dict[str, Any]]:
        start = self.run.start.timestamp()
        with locked(self.machines):
            events = [event for machine in self.machines for event in machine.events]
        for time_, machine, event in events[self._events :]:
            yield event_document(event.kind, event.message, event.severity, time_ - start, machine)
        self._events = len(events)

"""Where the snapshots of live views come from: this machine, or the files of a run. `remote.py` has other machines."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import Run, RunFolder, host_name
from pulsetrain.runs.follow import Follow
from pulsetrain.runs.outline import outline, recent
from pulsetrain.sampler import Consumer
from pulsetrain.snapshot import Event, Severity, Snapshot
from pulsetrain.supervise import reason_of

if TYPE_CHECKING:
    from pulsetrain.watching.session import Session

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""How often the files of a run are looked at."""
RETRY_SECONDS = 1.0
"""The same while they cannot be read."""


class Feed(Protocol):
    """Snapshots of one machine, in order of time."""

    title: str
    live: bool
    """False when it shows what is over."""

    def start(self, consumer: Consumer) -> None:
        """Give each snapshot to the consumer, from a thread of its own."""

    def stop(self) -> None:
        """Give no more."""


class LocalFeed:
    """This machine, read by ourselves."""

    live = True

    def __init__(self, session: "Session", title: str | None = None) -> None:
        self.title = title or host_name()
        self._session = session

    def start(self, consumer: Consumer) -> None:
        self._session.add(consumer)
        self._session.start()

    def stop(self) -> None:
        self._session.stop()


class ThreadedFeed:
    """A feed that makes its snapshots in a thread of its own, which may wait for a disk or a network."""

    title = ""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def start(self, consumer: Consumer) -> None:
        threading.Thread(target=self._run, args=(consumer,), name=f"feed-{self.title}", daemon=True).start()

    def stop(self) -> None:
        """Returns at once, whatever the thread is waiting for."""
        self._stop.set()

    def _run(self, consumer: Consumer) -> None:
        try:
            self._give(consumer)
        except Exception as error:  # else the view would show its last moment for ever, and nobody would know
            log.debug("the feed %s failed", self.title, exc_info=error)
            failed = _announcement("feed_failed", f"{self.title} cannot be shown: {reason_of(error)}", "critical")
            consumer(failed._replace(last=True))

    def _give(self, consumer: Consumer) -> None:
        for snapshot in self._snapshots():
            if self._stop.is_set():
                return
            consumer(snapshot)

    def _snapshots(self) -> Iterator[Snapshot]:
        raise NotImplementedError


class RunFeed(ThreadedFeed):
    """One host of a run, by its files: what it has recorded so far at once, and then what is added to them.

    Of a run that has ended, it is all of it.
    """

    def __init__(self, folder: RunFolder, host: str | None = None) -> None:
        """`host` is one of the run's; this machine, or else the first, when not said."""
        super().__init__()
        self._folder = folder
        run = folder.load()
        self._host = host or _host(run)
        self.live = run.status == "running"
        self.title = f"{run.name} on {self._host}"

    def _snapshots(self) -> Iterator[Snapshot]:
        newest: Snapshot | None = None
        reported = ""
        while not self._stop.is_set():
            try:
                for snapshot in self._from(newest):
                    reported = ""
                    if newest and snapshot.last and not (snapshot.samples or snapshot.events):
                        newest = newest._replace(samples=(), events=(), last=True)  # the end has no time of its own
                    else:
                        newest = snapshot
                    yield newest
                return
            except OSError as error:  # a shared folder may go away, and come back
                if reported != str(error):
                    reported = str(error)
                    elapsed = newest.elapsed if newest else 0.0
                    yield _announcement("run_unreadable", f"{self.title} cannot be read: {error}", "warning", elapsed)
                self._stop.wait(RETRY_SECONDS)

    def _from(self, newest: Snapshot | None) -> Iterator[Snapshot]:
        """What came after the last one that was shown; all, when none was."""
        if newest:
            start = math.nextafter(newest.elapsed, math.inf)
        else:
            start = recent(self._folder, self._host)
            yield from outline(self._folder, self._host, start)
        with contextlib.closing(Follow(self._folder, self._host, start)) as follow:
            yield from follow.read()
            while not (follow.ended or self._stop.is_set()):
                yield from follow.read()
                self._stop.wait(LOOK_SECONDS)


class ReplayFeed(ThreadedFeed):
    """One host of a run, as if it were happening: at the pace that it had, or faster."""

    live = False

    def __init__(self, folder: RunFolder, host: str | None = None, *, speed: float = 1.0, start: float = 0.0) -> None:
        super().__init__()
        self._folder = folder
        run = folder.load()
        self._host = host or _host(run)
        self._speed = speed
        self._start = start
        pace = "" if math.isinf(speed) else f", {speed:g}x"
        self.title = f"{run.name} on {self._host} (replay{pace})"

    def _give(self, consumer: Consumer) -> None:
        from pulsetrain.runs.database import Database
        from pulsetrain.runs.replay import Replay

        with contextlib.closing(Database([self._folder])) as database:
            Replay(database, self._host, speed=self._speed, start=self._start).run([consumer], self._stop)


def _announcement(kind: str, message: str, severity: Severity, elapsed: float = 0.0) -> Snapshot:
    """A snapshot with an event and no samples."""
    return Snapshot(time.time(), elapsed, (), (Event(kind, message, severity),))


def _host(run: Run) -> str:
    """The host of a run to show: this one, or else its first."""
    if not run.hosts:
        raise UsageError(f"{run.id} has no host: nothing to show.")
    return host_name() if host_name() in run.hosts else next(iter(run.hosts))

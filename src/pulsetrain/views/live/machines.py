"""The machines that a live view watches: each with its feed, its present, its past and its events."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pulsetrain.errors import UsageError
from pulsetrain.rules.alert import GRAVITY, note_alert
from pulsetrain.rules.finding import Verdict
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.folder import RunFolder, host_name
from pulsetrain.snapshot import Event, Snapshot
from pulsetrain.views.live.history import History
from pulsetrain.views.live.judging import RunVerdict
from pulsetrain.views.live.reading import RunReader
from pulsetrain.views.live.steady import SteadySteps

if TYPE_CHECKING:
    from pulsetrain.views.live.feeds import Feed

MOST_EVENTS = 200
"""So many of the latest are kept for each machine."""


class MachineEvent(NamedTuple):
    """An event, when it was, and on which machine."""

    time: float
    machine: str
    event: Event


class WatchedMachine:
    """One machine: where its snapshots come from, and what they have shown."""

    def __init__(
        self,
        feed: "Feed",
        folder: RunFolder | None = None,
        *,
        local: bool = False,
        steady: SteadySteps | None = None,
        judging: RunVerdict | None = None,
    ) -> None:
        """`folder` is the run that the feed is about, where it is one; `local` when its processes are here."""
        self.feed = feed
        self.folder = folder
        self.local = local
        self.steady = steady
        """The steps of the run, where its files are shown as they are now."""
        self.judging = judging
        """What judges the run; likewise, where somebody wants to see it."""
        self.readers: list[RunReader] = [reader for reader in (steady, judging) if reader]
        """What reads the files of the run beside the feed. Machines of one run share them."""
        self.run = folder.load() if folder else None
        self.history = History()
        self.events: deque[MachineEvent] = deque(maxlen=MOST_EVENTS)
        self.alerts: dict[str, MachineEvent] = {}
        """Those that fire now, by their keys."""
        self.lock = threading.Lock()
        """Held by the feed's thread while it writes, and by whoever reads."""
        self.snapshots = 0
        """How many have come."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each snapshot, by the feed's thread, and after each reading of the run's files, by another."""

    def start(self) -> None:
        self.feed.start(self._take)
        for reader in self.readers:
            reader.start(self._tell)

    def stop(self) -> None:
        self.feed.stop()
        for reader in self.readers:
            reader.stop()

    def _take(self, snapshot: Snapshot) -> None:
        with self.lock:
            self.history(snapshot)
            time = self.now or snapshot.time
            for event in snapshot.events:
                self.events.append(MachineEvent(time, self.title, event))
                note_alert(self.alerts, event, self.events[-1])
            self.snapshots += 1
        self._tell()

    def _tell(self) -> None:
        self.changed()

    def reset(self) -> None:
        """Forget the past."""
        with self.lock:
            self.history.reset()
            self.events.clear()

    def reload_run(self) -> None:
        """Read run.json again while the run is in progress: it may have ended."""
        if self.folder and self.run and self.run.status == "running":
            self.run = self.folder.load()
            if self.run.status != "running":
                for reader in self.readers:
                    reader.read_soon()

    @property
    def verdict(self) -> Verdict | None:
        """About its run, so far."""
        return self.judging.verdict if self.judging else None

    @property
    def title(self) -> str:
        return self.feed.title

    @property
    def now(self) -> float | None:
        """The time of its newest snapshot."""
        return self.history.span[1] if self.history.span else None


def machines_of(folder: RunFolder, judged_by: Thresholds | None = None) -> list[WatchedMachine]:
    """The machines of a run, by its files; with thresholds, the run is judged too."""
    from pulsetrain.views.live.feeds import RunFeed

    run = folder.load()
    if not run.hosts:
        raise UsageError(f"{run.id} has no host: nothing to show.")
    running, steady = run.status == "running", SteadySteps(folder)
    judging = RunVerdict(folder, judged_by) if judged_by else None
    return [
        WatchedMachine(
            RunFeed(folder, host),
            folder,
            local=running and host == host_name(),
            steady=steady,
            judging=judging,
        )
        for host in run.hosts
    ]


@contextmanager
def locked(machines: Iterable[WatchedMachine]) -> Iterator[None]:
    """Keep the feeds of all these machines from writing while they are read."""
    with ExitStack() as locks:
        for machine in machines:
            locks.enter_context(machine.lock)
        yield


def firing_alerts(machines: Sequence[WatchedMachine], moment: float | None) -> list[MachineEvent]:
    """The alerts that fire on these machines now, or fired at a moment of which the events are kept; gravest first."""
    found: list[MachineEvent] = []
    for machine in machines:
        found += (machine.alerts if moment is None else _fired_at(machine, moment)).values()
    return sorted(found, key=lambda one: (GRAVITY[one.event.severity], -one.time))


def _fired_at(machine: WatchedMachine, moment: float) -> dict[str, MachineEvent]:
    firing: dict[str, MachineEvent] = {}
    for one in machine.events:
        if one.time <= moment:
            note_alert(firing, one.event, one)
    return firing


def latest_events(machines: Sequence[WatchedMachine], moment: float) -> list[MachineEvent]:
    """What happened on these machines up to a moment, the latest first."""
    found = [event for machine in machines for event in machine.events if event.time <= moment]
    return sorted(found, key=lambda event: event.time, reverse=True)

"""What is on the screen: the machines that are watched, and what the user has chosen to see of them."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from pulsetrain.snapshot import Event, Snapshot, Subject
from pulsetrain.views.terminal.history import History

if TYPE_CHECKING:
    from pulsetrain.views.terminal.feeds import Feed

from pulsetrain.config import Thresholds
from pulsetrain.errors import UsageError
from pulsetrain.live import Live
from pulsetrain.runs.folder import RunFolder, host_name

WINDOWS = (60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, math.inf)
"""Stretches of time that charts can show, in seconds. The last is all there is."""
STEPS = (60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, *(3600.0 * hours for hours in (2, 4, 8, 12, 24)))
"""A window that is not full yet grows in these."""
MOST_EVENTS = 200
SCRUB_SHARE = 1 / 30
"""An arrow key moves by this share of the window."""

CURVE_SECONDS = 5.0
"""A curve is asked for again when it has moved by a point, and at least so often: most of a frame is curves."""
MOST_CURVES = 1000

Points = tuple[float | None, ...]
"""A curve: values at even distances, None where nothing is known."""
View = Literal["machine", "run", "runs"]


class Happened(NamedTuple):
    """An event, and when it was."""

    time: float
    event: Event


class Machine:
    """One machine on the screen: where its snapshots come from, and what they have shown."""

    def __init__(self, feed: "Feed", folder: RunFolder | None = None, *, local: bool = False) -> None:
        """`folder` is the run that the feed tells of, where it is one; `local` when its processes are here."""
        self.feed = feed
        self.folder = folder
        self.local = local
        self.run = folder.load() if folder else None
        self.history = History()
        self.events: deque[Happened] = deque(maxlen=MOST_EVENTS)
        self.lock = threading.Lock()
        """Held by the feed's thread while it writes, and by the one that draws."""
        self.snapshots = 0
        """How many have come."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each snapshot, by the feed's thread."""

    def start(self) -> None:
        self.feed.start(self._take)

    def stop(self) -> None:
        self.feed.stop()

    def _take(self, snapshot: Snapshot) -> None:
        with self.lock:
            self.history(snapshot)
            self.events.extend(Happened(self.now or snapshot.time, event) for event in snapshot.events)
            self.snapshots += 1
        self.changed()

    def reset(self) -> None:
        """Forget the past."""
        with self.lock:
            self.history.reset()
            self.events.clear()

    def look_again(self) -> None:
        """See whether its run has ended meanwhile."""
        if self.folder and self.run and self.run.status == "running":
            self.run = self.folder.load()

    @property
    def title(self) -> str:
        return self.feed.title

    @property
    def now(self) -> float | None:
        """The time of its newest snapshot."""
        return self.history.span[1] if self.history.span else None


def machines_of(folder: RunFolder) -> list[Machine]:
    """The machines of a run, by its files."""
    from pulsetrain.views.terminal.feeds import FollowedRun

    run = folder.load()
    if not run.hosts:
        raise UsageError(f"{run.id} names no host: there is nothing to show.")
    goes_on = run.status == "running"
    return [Machine(FollowedRun(folder, host), folder, local=goes_on and host == host_name()) for host in run.hosts]


@dataclass(frozen=True)
class Look:
    """What the user has chosen. Every key makes another one of it."""

    view: View = "machine"
    window: float = 300.0
    moment: float | None = None
    """The time that is looked at; None goes along with what comes."""
    pane: int = 1
    """The one that arrow keys go to."""
    alone: bool = False
    """Whether that pane has the screen to itself."""
    gpu: tuple[str, str] | None = None
    """The machine's title and the key of the GPU whose history is shown; None for all together."""
    process: tuple[str, str] | None = None
    """The same of the process under the cursor."""
    run: str | None = None
    """The id of the run under the cursor."""
    sort: str = "memory"
    descending: bool = True
    wanted: str = ""
    """What rows must contain to be shown."""
    tree: bool = False

    def wider(self, steps: int) -> "Look":
        """A longer window, or a shorter one."""
        at = WINDOWS.index(self.window) + steps
        return replace(self, window=WINDOWS[max(0, min(at, len(WINDOWS) - 1))])

    def sorted_by(self, column: str) -> "Look":
        """By another column; by the same one the other way round."""
        if column == self.sort:
            return replace(self, descending=not self.descending)
        return replace(self, sort=column, descending=column not in ("gpu", "pid", "user", "run", "command"))


@dataclass
class Scene:
    """All that a frame is drawn from."""

    machines: Sequence[Machine]
    look: Look = field(default_factory=Look)
    thresholds: Thresholds = field(default_factory=Thresholds)
    braille: bool = True
    """Whether the terminal can show it; else charts are ASCII."""
    gpus: frozenset[str] = frozenset()
    """Indices and UUIDs of those that are shown; none named, and all are."""
    missing: str = ""
    """Why there is no GPU, where there is none."""
    notice: str = ""
    """What was just done, told in the last line."""
    _curves: dict[tuple[object, ...], tuple[float, Points]] = field(default_factory=dict)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While it is looked at, no feed writes."""
        with ExitStack() as held:
            for machine in self.machines:
                held.enter_context(machine.lock)
            yield

    @property
    def now(self) -> float | None:
        """The time of the newest snapshot of all machines."""
        return max((machine.now for machine in self.machines if machine.now is not None), default=None)

    @property
    def moment(self) -> float | None:
        """The time that is shown."""
        return self.now if self.look.moment is None else self.look.moment

    @property
    def oldest(self) -> float | None:
        return min((span[0] for machine in self.machines if (span := machine.history.span)), default=None)

    @property
    def seconds(self) -> float:
        """How long a time charts show: the window, or a shorter one while there is not so much to show."""
        known = (self.now or 0.0) - (self.oldest or 0.0)
        return min(self.look.window, next((step for step in STEPS if step >= known), known))

    def live(self, machine: Machine) -> Live:
        """A machine at the moment that is shown."""
        return machine.history.at(self.look.moment)

    def shows(self, subject: Subject) -> bool:
        """Whether a GPU, or a process on it, is to be seen."""
        labels = subject.labels
        return not self.gpus or bool(self.gpus & {str(labels.get("gpu_index")), str(labels.get("uuid"))})

    def series(self, machine: Machine, table: str, key: str, field: str, points: int) -> Points:
        """A curve up to the moment that is shown."""
        end, seconds = self.moment or 0.0, self.seconds
        asked = (id(machine), table, key, field, points, seconds)
        tick = end // min(seconds / points, CURVE_SECONDS)
        known = self._curves.get(asked)
        if known is None or known[0] != tick:
            drawn = tuple(machine.history.series(table, key, field, end - seconds, end, points))
            known = self._curves[asked] = (tick, drawn)
            if len(self._curves) > MOST_CURVES:
                del self._curves[next(iter(self._curves))]
        return known[1]

    def forget_curves(self) -> None:
        """After the past has changed."""
        self._curves.clear()

    def scrub(self, steps: int) -> None:
        """Look further back, or forth again, and stay there."""
        if (now := self.now) is None or (oldest := self.oldest) is None:
            return
        moved = (self.moment or now) + steps * max(1.0, self.seconds * SCRUB_SHARE)
        self.look = replace(self.look, moment=max(oldest, min(moved, now)))

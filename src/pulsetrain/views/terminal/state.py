"""What is on the screen: the machines that are watched, and what the user has chosen to see of them."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Literal

from pulsetrain.live import Live
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.snapshot import Subject
from pulsetrain.views.live.history import Points
from pulsetrain.views.live.machines import WatchedMachine, locked

WINDOWS = (60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, math.inf)
"""Stretches of time that charts can show, in seconds. The last is all there is."""
GROWING_WINDOWS = (
    *(60.0 * minutes for minutes in (1, 2, 3, 5, 10, 15, 30)),
    *(3600.0 * hours for hours in (1, 2, 4, 8, 12, 24)),
)
"""A window that is not full yet grows in these."""
SCRUB_SHARE = 1 / 30
"""An arrow key moves by this share of the window."""

CURVE_SECONDS = 5.0
"""A curve is asked for again when it has moved by a point, and at least so often: most of a frame is curves."""
MOST_CURVES = 1000

View = Literal["machine", "run", "runs"]


@dataclass(frozen=True)
class ViewState:
    """What the user has chosen. Every key makes another one of it."""

    view: View = "machine"
    window: float = 300.0
    moment: float | None = None
    """The time that is looked at; None goes along with what comes."""
    pane: int = 1
    """The one that arrow keys go to."""
    maximized: bool = False
    """Whether that pane has the screen to itself."""
    gpu: tuple[str, str] | None = None
    """The machine's title and the key of the GPU whose history is shown; None for all together."""
    process: tuple[str, str] | None = None
    """The same of the process under the cursor."""
    run: str | None = None
    """The id of the run under the cursor."""
    sort: str = "memory"
    descending: bool = True
    filter_text: str = ""
    """What rows must contain to be shown."""
    tree: bool = False

    def wider(self, steps: int) -> "ViewState":
        """A longer window, or a shorter one."""
        at = WINDOWS.index(self.window) + steps
        return replace(self, window=WINDOWS[max(0, min(at, len(WINDOWS) - 1))])

    def sorted_by(self, column: str) -> "ViewState":
        """By another column; by the same one the other way round."""
        if column == self.sort:
            return replace(self, descending=not self.descending)
        return replace(self, sort=column, descending=column not in ("gpu", "pid", "user", "run", "command"))


@dataclass
class Scene:
    """All that a frame is drawn from."""

    machines: Sequence[WatchedMachine]
    state: ViewState = field(default_factory=ViewState)
    thresholds: Thresholds = DEFAULTS
    braille: bool = True
    """Whether the terminal can show it; else charts are ASCII."""
    gpus: frozenset[str] = frozenset()
    """Indices and UUIDs of those that are shown; none named, and all are."""
    missing: Callable[[], str] = str
    """Why there is no GPU, where there is none."""
    notice: str = ""
    """What was just done, for the last line."""
    _curves: dict[tuple[object, ...], tuple[float, Points]] = field(default_factory=dict)

    def locked(self) -> AbstractContextManager[None]:
        """Keep feeds from writing while the scene is drawn."""
        return locked(self.machines)

    @property
    def now(self) -> float | None:
        """The time of the newest snapshot of all machines."""
        return max((machine.now for machine in self.machines if machine.now is not None), default=None)

    @property
    def moment(self) -> float | None:
        """The time that is shown."""
        return self.now if self.state.moment is None else self.state.moment

    @property
    def oldest(self) -> float | None:
        return min((span[0] for machine in self.machines if (span := machine.history.span)), default=None)

    @property
    def seconds(self) -> float:
        """How long a time charts show: the window, or a shorter one while there is not so much to show."""
        known = (self.now or 0.0) - (self.oldest or 0.0)
        if known > 0 and math.isinf(self.state.window) and not any(machine.feed.live for machine in self.machines):
            return known  # a run that is over grows no more
        return min(self.state.window, next((step for step in GROWING_WINDOWS if step >= known), known))

    def live(self, machine: WatchedMachine) -> Live:
        """A machine at the moment that is shown."""
        return machine.history.at(self.state.moment)

    def shows(self, subject: Subject) -> bool:
        """Whether a GPU, or a process on it, is to be seen."""
        labels = subject.labels
        return not self.gpus or bool(self.gpus & {str(labels.get("gpu_index")), str(labels.get("uuid"))})

    def series(self, machine: WatchedMachine, table: str, key: str, field: str, points: int) -> Points:
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
        self.state = replace(self.state, moment=max(oldest, min(moved, now)))

"""What the parts of pulsetrain hand to each other: metrics, samples, events, snapshots. Imports nothing of ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Label = str | int | bool | None
Value = float | int | str | list[str] | dict[str, float] | None
Severity = Literal["info", "warning", "critical"]
"""The one scale of events, alerts, findings and log lines."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One declared metric. The catalog holds them all."""

    table: str
    """The kind of line it is in: gpu, mig, host, process, training, account."""
    field: str
    """Its name in that line."""
    name: str
    """Its Prometheus name."""
    kind: Literal["gauge", "counter", "amount", "text", "words"]
    """A counter only rises, save for a reset; an `amount` is what one report adds to a sum; `words` are a list."""
    unit: str
    help: str
    by: str | None = None
    """When set, the field holds an object: one value for each of these (device, core, source)."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The thing a sample is about: one GPU, the host, a process. Made once and shared by all its samples."""

    table: str
    key: str
    """Tells subjects of one table apart: a GPU's UUID, a process's pid. Empty for the host."""
    labels: Mapping[str, Label] = field(default_factory=dict, compare=False)
    """What each of its lines begins with."""

    def __hash__(self) -> int:
        return hash(self.key)  # asked for every sample of every tick: cheaper than a tuple of both


class Sample(NamedTuple):
    """What one subject showed at one reading; it becomes one line of a run file.

    Values go by the catalog's field names. What a device does not have is left out, or None: never 0.
    """

    subject: Subject
    values: dict[str, Value]


def severity_of(recorded: object) -> Severity:
    """The severity that a line names. Older versions wrote `error`; anything else unknown is `info`."""
    match recorded:
        case "critical" | "error":
            return "critical"
        case "warning":
            return "warning"
        case _:
            return "info"


class Event(NamedTuple):
    """Something that happened at a moment: a lost GPU, a gap, an XID error."""

    kind: str
    message: str
    severity: Severity = "info"
    details: Mapping[str, Label | float] = {}


class Snapshot(NamedTuple):
    """All that one tick brought."""

    time: float
    """Seconds since the epoch, UTC."""
    elapsed: float
    """Seconds since the sampler started, from a monotonic clock."""
    samples: tuple[Sample, ...]
    events: tuple[Event, ...] = ()
    last: bool = False
    """Whether no more will come."""

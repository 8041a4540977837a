"""What every kind of push target is built from, and what it has to be able to do."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from pulsetrain.outputs.points import Family
from pulsetrain.outputs.push.http import Client
from pulsetrain.outputs.push.spool import Spool
from pulsetrain.outputs.push.target import PushTarget
from pulsetrain.supervise import Part

BATCH_SECONDS = 5.0


class PushLink(NamedTuple):
    """One target, and what there is to reach it."""

    target: PushTarget
    client: Client
    labels: Mapping[str, str]
    """Of every series: the host, and the run."""
    spool: Spool
    """For what cannot be sent at once."""
    part: Part
    """Knows how the pushing is doing."""
    batch_seconds: float = BATCH_SECONDS
    training_name: Callable[[], str] = str
    """What `set_training` has last called the training; empty where nobody has."""


class Outlet(Protocol):
    """One way to send families, used by the pusher's thread alone."""

    def start(self) -> None:
        """Greet the server, before there is anything to send."""

    def add(self, seconds: float, families: Collection[Family], *, late: bool) -> None:
        """Take the families of this time; `late` when those of a later one have been taken."""

    def flush(self) -> None:
        """Send what is due, if the server may be asked."""

    def finish(self, seconds: float) -> None:
        """Send the rest; try no longer than this."""

    @property
    def left(self) -> str | None:
        """What could not be done, in words."""

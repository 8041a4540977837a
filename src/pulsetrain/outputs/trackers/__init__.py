"""Sending runs to experiment trackers. A new one is one new file and one line in `KINDS`."""

from typing import NamedTuple

from pulsetrain.errors import UsageError
from pulsetrain.extras import require


class TrackerKind(NamedTuple):
    """What is known of a tracker before it is spoken to."""

    example: str
    package: str
    """The module that speaks to it; the extra of pulsetrain that brings it has the name of the kind."""
    takes_files: bool = False
    """Whether it keeps the report of a run."""
    is_folder: bool = False
    """Whether its place is a folder of this machine."""


KINDS: dict[str, TrackerKind] = {
    "mlflow": TrackerKind("mlflow:http://HOST:5000", "mlflow", takes_files=True),
    "wandb": TrackerKind("wandb:PROJECT", "wandb", takes_files=True),
    "tensorboard": TrackerKind("tensorboard:FOLDER", "tensorboard", is_folder=True),
    "trackio": TrackerKind("trackio:PROJECT", "trackio"),
    "aim": TrackerKind("aim:FOLDER", "aim", is_folder=True),
}
"""What `--to` may begin with. Each kind is a module of this package with a function `open_tracker(place, memory)`."""
EXAMPLES = tuple(kind.example for kind in KINDS.values())


class TrackerTarget(NamedTuple):
    """A tracker, and the place in it that runs are sent to."""

    kind: str
    place: str

    @property
    def spec(self) -> str:
        return f"{self.kind}:{self.place}"


def is_tracker(to: str) -> bool:
    """Whether this is where a tracker is, and not a folder or a store."""
    return to.partition(":")[0] in KINDS and ":" in to


def parse_tracker(to: str) -> TrackerTarget:
    """The tracker that `--to` names. UsageError for one that cannot be used here."""
    kind, _, place = to.partition(":")
    if not place:
        raise UsageError(f"{kind}: needs a place.", hint=f"Write {KINDS[kind].example}.")
    if KINDS[kind].is_folder and (place.startswith("//") or "://" in place):
        raise UsageError(f"{to} is a server, but {kind}: takes a folder.", hint=f"Write {KINDS[kind].example}.")
    require(KINDS[kind].package, kind, f"{kind}:")
    return TrackerTarget(kind, place)

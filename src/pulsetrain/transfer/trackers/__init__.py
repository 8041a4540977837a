"""Old runs of experiment trackers, as ordinary runs. A new tracker is one new file and one line in `KINDS`."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from pulsetrain.errors import UsageError
from pulsetrain.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsetrain.transfer.trackers.old_run import OldRun


class ImportKind(NamedTuple):
    """How a tracker is written down, and what reads it."""

    example: str
    package: str


KINDS: dict[str, ImportKind] = {
    "tensorboard": ImportKind("tensorboard:FOLDER", "tensorboard"),
    "mlflow": ImportKind("mlflow:http://HOST:5000", "mlflow"),
    "wandb": ImportKind("wandb:FOLDER", "wandb"),
}
"""What may be imported. Each kind is a module of this package with a function `old_runs(place)`; the package is the
tracker's own, which reads its files, and the extra that brings it has the name of the kind.
"""
EXAMPLES = tuple(kind.example for kind in KINDS.values())


def open_old_runs(place: str) -> "Iterator[OldRun]":
    """The runs of a tracker. UsageError for a place that cannot be read here."""
    kind, _, where = place.partition(":")
    if kind not in KINDS or not where:
        raise UsageError(
            f"{place} is not a tracker that runs can be imported from.", hint=f"Use one of {', '.join(EXAMPLES)}."
        )
    require(KINDS[kind].package, kind, f"{kind}:")
    found: Iterator[OldRun] = import_module(f"{__name__}.{kind}").old_runs(where)
    return found

"""Where segments are kept between the machine that records a run and the one that looks at it."""

from importlib import import_module
from typing import NamedTuple, Protocol, runtime_checkable

from pulsetrain.errors import PulsetrainError, UsageError

COLLECTOR_PATH = "/collect/v1"
JOBS = "jobs"
"""Below it: which run a job has."""
COLLECTOR_VARIABLE = "PULSETRAIN_COLLECTOR_TOKEN"


class Store(Protocol):
    """Files in folders, written once. Paths have `/` between their parts.

    Each method may raise StoreError, for what may work later, and StoreRejected, for what somebody has to put right.
    """

    every_seconds: float
    """How often segments are cut for it."""

    def put(self, path: str, data: bytes) -> None:
        """Keep a file; under a path that is taken, the same bytes are there already."""

    def list(self, folder: str, after: str = "") -> list[str]:
        """Names in a folder, in any order; those up to `after` may be left out. Empty when there is no such folder."""

    def get(self, path: str) -> bytes:
        """What was put there; may be in part, while it is still on its way."""

    def close(self) -> None: ...


@runtime_checkable
class JobStore(Store, Protocol):
    """A store that knows which run the other hosts of a job have begun."""

    def join(self, job: str, host: str, run: str) -> str:
        """The run that this host is to write: that of the job, or `run`, if it is the first."""


class StoreError(PulsetrainError):
    """The store did not do what it was asked to. It may later."""

    def __init__(
        self, message: str, *, still: str | None = None, hint: str | None = None, wait_seconds: float = 0.0
    ) -> None:
        super().__init__(message, still=still, hint=hint)
        self.wait_seconds = wait_seconds
        """How long the store asks us to wait."""


class StoreRejected(StoreError):
    """The store does not let us in, or does not want this: somebody has to put it right."""


class UnknownStore(UsageError):
    """No store begins like this."""


class StoreKind(NamedTuple):
    """How a store is written down, and what it needs."""

    module: str
    example: str


KINDS = {
    "drive": StoreKind("drive", "drive:MyDrive/pulsetrain"),
    "gs": StoreKind("fsspec_store", "gs://BUCKET/FOLDER"),
    "s3": StoreKind("fsspec_store", "s3://BUCKET/FOLDER"),
    "ssh": StoreKind("fsspec_store", "ssh://USER@HOST/FOLDER"),
    "sftp": StoreKind("fsspec_store", "sftp://USER@HOST/FOLDER"),
    "http": StoreKind("collector", "http://127.0.0.1:8765"),
    "https": StoreKind("collector", "https://HOST:8765"),
}
"""By what is before the colon. Whatever has no colon is a folder."""
EXAMPLES = ("FOLDER", *(kind.example for name, kind in KINDS.items() if name not in ("sftp", "http")))


def open_store(url: str, *, to_read: bool = False) -> Store:
    """The store of a URL or a folder. UsageError for one that cannot be; nothing is sent or asked yet."""
    scheme, colon, _ = url.partition(":")
    if not url or url.startswith("-"):
        raise UsageError("the place is missing.", hint=f"Use one of {', '.join(EXAMPLES)}.")
    if not colon or "/" in scheme or len(scheme) == 1:  # C:\folder
        scheme, module = "", "folder"
    elif scheme in KINDS:
        module = KINDS[scheme].module
    else:
        raise UnknownStore(f"{scheme}: is not a supported place.", hint=f"Use one of {', '.join(EXAMPLES)}.")
    opened: Store = import_module(f"pulsetrain.transfer.{module}").open_store(url, to_read=to_read)
    return opened

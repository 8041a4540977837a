"""Where samples go beside the run folder, one file or folder each. A new one is one file and one line in `OUTPUTS`."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Snapshot
from pulsetrain.supervise import Supervisor

if TYPE_CHECKING:
    from pulsetrain.outputs.push.target import PushTarget
    from pulsetrain.runs.folder import Run


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where the user asked to have readings sent or served, beside the run folder."""

    names: tuple[str, ...] = ("native",)
    """Metric naming schemes: native, dcgm, nvidia_smi."""
    prometheus_port: int | None = None
    """Serve /metrics on this port; 0 takes any free one."""
    prometheus_address: str = "127.0.0.1"
    web_config: str | None = None
    """The file with TLS and passwords for what is served."""
    run_folders: Sequence[str] = ()
    """Folders whose runs /metrics shows beside the machine, whoever started them; patterns are allowed."""
    push: "Sequence[PushTarget]" = ()
    """Servers that get every reading."""


@dataclass(frozen=True)
class Origin:
    """Whose snapshots an output gets: a host, and the run that is recorded on it, if one is."""

    host: str
    run: "Run | None" = None
    folder: Path | None = None
    """The host's folder of the run, for what has to wait on disk."""
    supervisor: Supervisor = field(default_factory=Supervisor)
    """Of all that runs in this process; what an output does in a thread of its own is a part of it."""

    @property
    def labels(self) -> dict[str, str]:
        """Of every series."""
        return {"host": self.host} | ({"run": self.run.id} if self.run else {})


class Output(Protocol):
    """Takes snapshots, from `start` to `close`.

    It is called by the sampler's thread and must not block: what writes to a disk or a network has a thread of its own.
    """

    @property
    def notice(self) -> str | None:
        """One line for the user, such as where to find what is served."""

    def start(self, origin: Origin) -> None: ...

    def __call__(self, snapshot: Snapshot) -> None: ...

    def close(self) -> None:
        """No more snapshots will come: send what is left, for a few seconds, and log what could not be sent."""


OUTPUTS: dict[str, Callable[[OutputOptions], bool]] = {
    "prometheus": lambda options: options.prometheus_port is not None,
    "push": lambda options: bool(options.push),
    "kubeflow": lambda options: bool(os.environ.get("KUBEFLOW_TRAINER_SERVER_URL")),
}
"""Module below this package, and whether the user asked for it: only then is it imported.

Each has `open_output(options, interval_seconds)`, which raises a PulsetrainError for what cannot work.
"""


def open_outputs(options: OutputOptions, interval_seconds: float) -> list[Output]:
    """Take ports and check settings, for all that was asked for. `interval_seconds` are those between two ticks."""
    opened: list[Output] = []
    try:
        for name, is_wanted in OUTPUTS.items():
            if is_wanted(options):
                opened.append(import_module(f"{__name__}.{name}").open_output(options, interval_seconds))
    except PulsetrainError:
        for output in opened:
            output.close()
        raise
    return opened

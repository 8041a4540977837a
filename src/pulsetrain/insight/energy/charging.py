"""Whose processes were on the GPUs that a run watched, and which GPUs are charged to it therefore.

Reports read it from the lines of a run, the running account from snapshots. Imports nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pulsetrain.sources import PROCESS_SOURCES
from pulsetrain.sources.processes import OUTSIDE

Charge = Literal["all", "used"]
"""Charge all watched GPUs to a run, or those that its processes used."""


class GpuProcess(NamedTuple):
    """A process that was seen on a GPU."""

    pid: int
    parent_pid: int | None
    user: str
    command: str


@dataclass(frozen=True)
class GpuOccupants:
    """Who was on one GPU while a run watched it."""

    own: bool | None
    """Whether a process of the run was; None where that cannot be known."""
    others: tuple[str, ...]
    """Whose processes were there beside it: `alice (python train.py)`."""


class GpuUsers:
    """Gathers who was on which GPU, in any order of lines."""

    def __init__(self) -> None:
        self._jobs: dict[str, set[int]] = {}
        """The processes of the watched command, by host."""
        self._listing: set[str] = set()
        """Hosts whose driver lists processes."""
        self._seen: dict[tuple[str, str], set[GpuProcess]] = {}

    def note_host(self, host: str, line: Mapping[str, Any]) -> None:
        """A line of the table `host`: whether a command is watched there, and a driver lists processes."""
        if line.get("job_processes") is not None:
            self._jobs.setdefault(host, set())
        up = line.get("source_up")
        if up and any(up.get(source) for source in PROCESS_SOURCES):
            self._listing.add(host)

    def note_process(self, host: str, line: Mapping[str, Any]) -> None:
        """A line of the table `process`: of the watched command, or, with a UUID, on a GPU."""
        pid, uuid = line.get("pid"), line.get("uuid")
        if pid is None:
            return
        if uuid is None:
            self._jobs.setdefault(host, set()).add(pid)
            return
        self._listing.add(host)
        process = GpuProcess(pid, line.get("parent_pid"), line.get("user") or "", line.get("command") or "")
        self._seen.setdefault((host, uuid), set()).add(process)

    def use(self, host: str, uuid: str | None) -> GpuOccupants:
        """Who was on this GPU."""
        seen = self._seen.get((host, uuid or ""), set())
        job = self._jobs.get(host)
        if job is None:  # a machine is watched, not a command
            return GpuOccupants(None, ())
        others = {process for process in seen if process.pid not in job and process.parent_pid not in job}
        unknown = {process for process in others if process.command == OUTSIDE.command}
        if len(others) < len(seen):
            own: bool | None = True
        else:
            own = None if unknown or host not in self._listing else False
        return GpuOccupants(own, tuple(sorted({_who(process) for process in others - unknown})))

    def chosen(self, charge: Charge | None) -> Charge:
        """What the user chose; else, whether others have been on the GPUs decides."""
        if charge is None:
            return "used" if any(self.use(*gpu).others for gpu in self._seen) else "all"
        return charge


def _who(process: GpuProcess) -> str:
    return f"{process.user or 'another user'} ({process.command})"

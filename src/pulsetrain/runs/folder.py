"""A run is a folder: where it lies, what it is called, what `run.json` says of it, how it is found again.

<home>/runs/20261116-013054-resnet50-3f9c/
  run.json
  <host>/gpu_metrics_20261116_013054.jsonl ...
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from pulsetrain.errors import PulsetrainError, UsageError

RUN_JSON = "run.json"
HOST_JSON = "host.json"
JOIN_SECONDS = 20.0
"""How long a host waits for another one that begins the run of their job."""


class Account(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the user said about how energy becomes carbon and money."""

    carbon_region: str | None = None
    """`South England`, `DE`, `gcp:europe-west4`, `250`; docs/carbon.md."""
    price: str | None = None
    """`0.30 EUR/kWh`, `2.50 USD/GPUh`, `gcp:a2-highgpu-1g@europe-west4`; docs/cost.md."""
    pue: float | None = None
    """Power usage effectiveness of the building."""
    charge: Literal["all", "used"] | None = None
    """Energy of all GPUs that were watched, or of those alone that the command's processes used."""

    def over(self, other: "Account") -> "Account":
        """This one, and what it leaves open from the other."""
        chosen = {
            field: getattr(other, field) if getattr(self, field) is None else getattr(self, field)
            for field in self.__struct_fields__
        }
        return Account(**chosen)


class Run(msgspec.Struct, kw_only=True):
    """What `run.json` holds. Fields are only ever added, so that older folders stay readable."""

    id: str
    """Also the correlation id: it stands in every log line, metric label and event."""
    name: str
    command: list[str] = []
    directory: str = ""
    tags: dict[str, str] = {}
    start: datetime
    end: datetime | None = None
    status: str = "running"
    """running, finished (exit code 0), failed, interrupted (ended by a signal), or died (pulsetrain did)."""
    exit_code: int | None = None
    interval_seconds: float = 1.0
    simulated: bool = False
    hosts: dict[str, "Host"] = {}
    lost_samples: int = 0
    """Samples that could not be written, because the disk was full or away."""
    account: Account = msgspec.field(default_factory=Account)


class Host(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One machine of a run."""

    gpus: list[dict[str, Any]] = []
    pulsetrain: str = ""
    python: str = ""
    system: str = ""
    cpu_cores: int = 0
    memory_bytes: int = 0
    pid: int = 0
    """The watching process; with its start time, this tells whether a run still lives."""
    pid_start: float = 0.0
    started: float = 0.0
    """When elapsed seconds began, on the monotonic clock of this machine."""
    unavailable: dict[str, str] = {}
    """Sources that did not work here, and why."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def host_folder(self, host: str) -> Path:
        return self.path / host

    def load(self) -> Run:
        """Read run.json. A run that says it is running, but whose watching process is gone, died."""
        file = self.path / RUN_JSON
        try:
            run = msgspec.json.decode(file.read_bytes(), type=Run)
        except FileNotFoundError:
            raise UsageError(f"{self.path} is not a run: it has no {RUN_JSON}.") from None
        except msgspec.MsgspecError as error:
            raise PulsetrainError(
                f"{file} cannot be read: {error}.", hint="The other files of the run may be whole."
            ) from None
        for other in self.path.glob(f"*/{HOST_JSON}"):
            with contextlib.suppress(
                msgspec.MsgspecError, OSError
            ):  # a host that is being killed must not hide the run
                run.hosts[other.parent.name] = msgspec.json.decode(other.read_bytes(), type=Host)
        if run.status == "running" and not self._lives(run):
            run.status = "died"
        return run

    def save(self, run: Run) -> None:
        _write_json(self.path / RUN_JSON, run)

    def save_host(self, name: str, host: Host) -> None:
        """What a host adds to a run that another one has begun."""
        _write_json(self.host_folder(name) / HOST_JSON, host)

    def size_bytes(self) -> int:
        return sum(status.st_size for status in self._statuses("*"))

    def files(self, table: str) -> list[Path]:
        """The files of a table on all hosts, oldest first: JSON lines, and Parquet where a segment has been sealed."""
        stem = "events" if table == "events" else f"{table}_metrics_*"
        found: dict[Path, Path] = {}
        for suffix in (".jsonl", ".parquet"):  # in this order: a segment that is sealed meanwhile is not missed
            for file in self.path.glob(f"*/{stem}{suffix}"):
                if file.with_suffix("") not in found or is_whole(file):
                    found[file.with_suffix("")] = file
        return [found[stem] for stem in sorted(found, key=lambda stem: (stem.parent.name, stem.name))]

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def _statuses(self, pattern: str) -> Iterator[os.stat_result]:
        """Of all files; one that is sealed or replaced meanwhile is left out."""
        for file in self.path.rglob(pattern):
            with contextlib.suppress(FileNotFoundError):
                if file.is_file():
                    yield file.stat()

    def _lives(self, run: Run) -> bool:
        here = run.hosts.get(host_name())
        if here is None:  # watched from another machine: trust its files as long as they move
            newest = max((status.st_mtime for status in self._statuses("*.json*")), default=0.0)
            return datetime.now(UTC).timestamp() - newest < max(60.0, 10 * run.interval_seconds)
        try:
            return abs(float(psutil.Process(here.pid).create_time()) - here.pid_start) < 1.0
        except psutil.Error:
            return False


class Home:
    """The folder that holds all runs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def find(cls, directory: str | None = None) -> "Home":
        """`--dir`, else $PULSETRAIN_HOME/runs, else ~/.pulsetrain/runs."""
        if directory:
            return cls(Path(directory).expanduser())
        if home := os.environ.get("PULSETRAIN_HOME"):
            return cls(Path(home).expanduser() / "runs")
        try:
            return cls(Path.home() / ".pulsetrain" / "runs")
        except RuntimeError:
            raise UsageError(
                "there is no home directory to keep runs in.", hint="Set PULSETRAIN_HOME, or say --dir FOLDER."
            ) from None

    def create(self, name: str, start: datetime) -> RunFolder:
        """A new, empty run folder; two runs of the same second and name get different ones."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            while True:
                folder = self.path / f"{start:%Y%m%d-%H%M%S}-{slug(name)}-{secrets.token_hex(2)}"
                try:
                    folder.mkdir()
                    return RunFolder(folder)
                except FileExistsError:
                    if not folder.is_dir():
                        raise
        except OSError as error:
            raise self._unwritable(error) from None

    def open(
        self, name: str, start: datetime, job_id: str | None = None, one_of_many: bool = False
    ) -> tuple[RunFolder, bool]:
        """A new run, or, with a job id, the one that has been begun for this job. True when it is new.

        On a host that the run knows already, only a process that is `one_of_many` belongs to it: a job may also start
        several trainings beside each other.
        """
        if not job_id:
            return self.create(name, start), True
        claim = self.path / f".job-{slug(job_id)}"
        deadline = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                claim.mkdir()  # of several hosts and processes, one succeeds
                folder = self.create(f"{name}-{job_id}", start)
                (claim / folder.path.name).touch()
                return folder, True
            except FileExistsError:
                found = self._claimed(claim)
            except OSError as error:
                raise self._unwritable(error) from None
            about = found.load() if found else None
            if found and about and about.status == "running":
                if host_name() in about.hosts and not one_of_many:
                    return self.create(name, start), True
                return found, False
            if found or time.monotonic() > deadline:
                shutil.rmtree(claim, ignore_errors=True)  # left by a job that has ended, or died at birth
            time.sleep(0.1)

    def _claimed(self, claim: Path) -> RunFolder | None:
        """The run that has been made for a job; None while its maker is still at it."""
        with contextlib.suppress(FileNotFoundError):
            for entry in claim.iterdir():
                if (self.path / entry.name / RUN_JSON).is_file():
                    return RunFolder(self.path / entry.name)
        return None

    def _unwritable(self, error: OSError) -> PulsetrainError:
        return PulsetrainError(
            f"runs cannot be kept in {self.path}: {error.strerror}.",
            hint="Set PULSETRAIN_HOME to a folder you may write to, or say --dir FOLDER.",
        )

    def runs(self) -> Iterator[RunFolder]:
        """All runs, oldest first."""
        if self.path.is_dir():
            yield from (RunFolder(p) for p in sorted(self.path.iterdir()) if (p / RUN_JSON).is_file())

    def resolve(self, wanted: str) -> RunFolder:
        """A run by id, unique start of an id, name, path, or `last`."""
        if (Path(wanted) / RUN_JSON).is_file():
            return RunFolder(Path(wanted))
        runs = list(self.runs())
        if not runs:
            raise UsageError(f"there are no runs in {self.path}.", hint="Record one: pulsetrain run -- python train.py")
        if wanted == "last":
            second = runs[-1].path.name[: len("20261116-013054")]
            return max((run for run in runs if run.path.name.startswith(second)), key=lambda run: run.load().start)
        found = [run for run in runs if run.path.name == wanted] or [r for r in runs if r.path.name.startswith(wanted)]
        if not found:
            found = [run for run in runs if run.load().name == wanted][-1:]  # a name means its latest run
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(run.path.name for run in found[:5])
            raise UsageError(f"{len(found)} runs start with {wanted!r}: {ids}{', ...' if len(found) > 5 else ''}")
        raise UsageError(f"there is no run {wanted!r} in {self.path}.", hint="List them: pulsetrain runs")


def _write_json(path: Path, document: object) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    temporary.replace(path)


def is_whole(parquet: Path) -> bool:
    """Whether a Parquet file has its end. One that was copied or synced in part has not."""
    with parquet.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        return size >= 12 and file.read() == b"PAR1"


def slug(name: str) -> str:
    """A name that is safe in a file name."""
    return re.sub(r"[^a-zA-Z0-9._]+", "-", name).strip("-.")[:40] or "run"


def host_name() -> str:
    return slug(socket.gethostname())

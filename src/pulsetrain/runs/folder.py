"""A run is a folder: where it lies, what it is called, what `run.json` says of it, how it is found again.

<home>/runs/20261116-013054-resnet50-3f9c/
  run.json
  <host>/gpu_metrics_20261116_013054.jsonl ...
"""

import contextlib
import math
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from pulsetrain.catalog import TABLES
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.regular_files import is_regular, open_regular, read_description
from pulsetrain.runs import liveness
from pulsetrain.runs.description import Code, NotedFile, Place
from pulsetrain.untrusted import showable, showable_json

SCHEMA = 1
"""Version of the form of run.json, and of what commands print as JSON. Added fields do not change it."""
RUN_JSON = "run.json"
HOST_JSON = "host.json"
DIFF_FILE = "code.diff"
PACKAGES_FILE = "packages.txt"
PRIVATE_MODE = 0o700
SHARED_MODE = 0o2750
"""With the folder's group for all that is made in it."""
SURELY_DEAD = timedelta(days=1)
"""A run of another machine that nobody has written for so long is not written any more."""
JOIN_SECONDS = 20.0
"""How long a host waits for another one that begins the run of their job."""


class CountingOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the user said about how energy becomes carbon and money."""

    carbon_region: str | None = None
    """`South England`, `DE`, `gcp:europe-west4`, `250`; docs/carbon.md."""
    price: str | None = None
    """`0.30 EUR/kWh`, `2.50 USD/GPUh`, `gcp:a2-highgpu-1g@europe-west4`; docs/cost.md."""
    pue: float | None = None
    """Power usage effectiveness of the building."""
    charge: Literal["all", "used"] | None = None
    """Energy of all GPUs that were watched, or of those alone that the command's processes used."""

    def over(self, other: "CountingOptions") -> "CountingOptions":
        """This one, and what it leaves open from the other."""
        chosen = {
            field: getattr(other, field) if getattr(self, field) is None else getattr(self, field)
            for field in self.__struct_fields__
        }
        return CountingOptions(**chosen)


class Run(msgspec.Struct, kw_only=True):
    """What `run.json` holds. Fields are only ever added, so that older folders stay readable."""

    schema: int = SCHEMA
    id: str
    """Also the correlation id: it is in every log line, metric label and event."""
    name: str
    command: list[str] = []
    directory: str = ""
    user: str = ""
    """Who ran it, by the name of the account."""
    project: str = ""
    tags: dict[str, str] = {}
    config: dict[str, Any] = {}
    """The settings of the training: plain values, nested."""
    config_sources: list[str] = []
    """Who knew them: `pulsetrain.config`, `argparse`, ..."""
    private: bool = False
    """Whether command line, working folder, environment and code were not to be recorded."""
    code: Code | None = None
    """None where no git repository was seen."""
    versions: dict[str, str] = {}
    """Of Python, frameworks and libraries, as the training process has them."""
    packages: str = ""
    """The file in the run folder that lists what is installed in the training's environment."""
    training: dict[str, Any] = {}
    """What was seen of the training itself: precision, seeds, parameters of the model, batch size, ranks."""
    environment: dict[str, str] = {}
    """Variables of the environment that change how a training runs."""
    files: list[NotedFile] = []
    """Checkpoints and other files that the training wrote."""
    note: str = ""
    """What somebody wrote down about it: `pulsetrain runs note`."""
    start: datetime
    end: datetime | None = None
    """`seconds` after the start, whatever has become of the wall clock meanwhile."""
    seconds: float | None = None
    """How long it took, by the monotonic clock; None for a run in progress, or one whose end was not recorded."""
    status: str = "running"
    """running; finished (exit code 0); failed; interrupted (ended by a signal); detached (the watching ended before the
    process did); or died (pulsetrain did, or the program that called `init`)."""
    exit_code: int | None = None
    interval_seconds: float = 1.0
    simulated: bool = False
    hosts: dict[str, "Host"] = {}
    lost_samples: int = 0
    """Samples that could not be written, because the disk was full or away."""
    account: CountingOptions = msgspec.field(default_factory=CountingOptions)
    account_sources: dict[str, str] = {}
    """Who named `price` and `carbon_region`, where the user did not."""

    def __post_init__(self) -> None:
        if self.seconds is None and self.end is not None:  # of an older version
            self.seconds = max(0.0, (self.end - self.start).total_seconds())


class Launch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a launcher said about the job. None where it does not say it."""

    launcher: str = ""
    """torchrun, slurm, mpirun, ray, kubernetes; or two of them: `slurm + torchrun`."""
    job_id: str = ""
    """The same on all hosts of the job."""
    node_rank: int | None = None
    nodes: int | None = None
    world_size: int | None = None
    """Ranks on all hosts."""
    restarts: int | None = None
    """How often the launcher had started the job before."""


class HostAttempt(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One stretch in which a host was watched for a run."""

    start: datetime
    """By the clock of the host."""
    began: float = 0.0
    """Elapsed seconds of the host."""
    ended: float | None = None
    """None while it is in progress, and where its end was not recorded."""
    status: str = "running"
    """As that of a run, for the command of this host."""
    exit_code: int | None = None


class Host(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One machine of a run."""

    gpus: list[dict[str, Any]] = []
    pulsetrain: str = ""
    python: str = ""
    system: str = ""
    cpu_cores: int = 0
    cpu_model: str = ""
    memory_bytes: int = 0
    pid: int = 0
    """The watching process."""
    pid_start: float = 0.0
    boot_id: str = ""
    """The boot of the machine that it runs in: there, the lock on the run tells for sure whether it lives."""
    started: float = 0.0
    """When elapsed seconds began, on the monotonic clock of this machine."""
    launch: Launch | None = None
    """None where no launcher was seen."""
    place: Place | None = None
    """None until it is known."""
    attempts: list[HostAttempt] = []
    """In order of time. Empty in runs of older versions."""
    clock_error_seconds: float | None = None
    """How far the clock may be off, as the kernel says of a synchronized one; None where it is not, or does not say."""
    ahead_of_folder_seconds: float | None = None
    """By how much the clock is ahead of the one that stamps files in the run folder."""
    ahead_error_seconds: float | None = None
    """How far that may be off."""
    unavailable: dict[str, str] = {}
    """Sources that did not work here, and why."""
    troubled: list[str] = []
    """Parts of pulsetrain that left something out or failed here, a line each."""


class RunMayLive(UsageError):
    """What was asked for is done to runs that have ended, and this one may not have."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def __str__(self) -> str:
        return showable(str(self.path))

    @property
    def name(self) -> str:
        """The name of the folder, which is the run's id unless it was renamed. Fit to be shown."""
        return showable(self.path.name)

    def host_folder(self, host: str) -> Path:
        return self.path / host

    def load(self) -> Run:
        """Read run.json. A run that says it is running, but whose watching process is gone, died.

        All text in it is fit to be shown.
        """
        file = self.path / RUN_JSON
        try:
            run = showable_json(read_description(file), Run)
        except FileNotFoundError:
            raise UsageError(f"{self.path} is not a run: it has no {RUN_JSON}.") from None
        except OSError as error:
            raise PulsetrainError(f"{file} cannot be read: {error.strerror}.") from None
        except msgspec.MsgspecError as error:
            raise PulsetrainError(
                f"{file} cannot be read: {error}.", hint="The other files of the run may be intact."
            ) from None
        run.hosts = {name: host for name, host in run.hosts.items() if _is_host(name)}  # each is a folder in here
        for host in self._host_names():
            with contextlib.suppress(
                msgspec.MsgspecError, OSError
            ):  # most have none; a killed one must not hide the run
                run.hosts[host] = showable_json(read_description(self.path / host / HOST_JSON), Host)
        if run.status == "running" and not self._lives(run):
            run.status = "died"
        return run

    def save(self, run: Run) -> None:
        write_json(self.path / RUN_JSON, run)

    def save_host(self, name: str, host: Host) -> None:
        """What a host adds to a run that another one has begun."""
        write_json(self.host_folder(name) / HOST_JSON, host)

    def size_bytes(self) -> int:
        return sum(status.st_size for status in self._statuses("*"))

    def files(self, table: str) -> list[Path]:
        """The files of a table on all hosts, oldest first: JSON lines, and Parquet where a segment has been sealed."""
        stem = TABLES[table].files
        found: dict[Path, Path] = {}
        for suffix in (".jsonl", ".parquet"):  # in this order: a segment that is sealed meanwhile is not missed
            for file in self.path.glob(f"*/{stem}{suffix}"):
                if not _is_host(file.parent.name):
                    continue
                if is_regular(file) and (file.with_suffix("") not in found or is_whole(file)):
                    found[file.with_suffix("")] = file
        return [found[stem] for stem in sorted(found, key=lambda stem: (stem.parent.name, stem.name))]

    def remove(self) -> None:
        """The folder and all in it; of a link to a folder, the link."""
        try:
            if self.path.is_symlink():
                self.path.unlink()
            else:
                shutil.rmtree(self.path)
        except OSError as error:
            raise PulsetrainError(f"{self.path} cannot be removed: {error.strerror}.") from None

    def _host_names(self) -> list[str]:
        """The folders in here that can be a host's."""
        with (
            contextlib.suppress(OSError),
            os.scandir(self.path) as entries,
        ):  # a list of runs does this for each: no glob
            return sorted(entry.name for entry in entries if entry.is_dir() and _is_host(entry.name))
        return []

    def _statuses(self, pattern: str) -> Iterator[os.stat_result]:
        """Of all files; one that is sealed or replaced meanwhile, or is not ours to see, is left out."""
        for file in self.path.rglob(pattern):
            with contextlib.suppress(OSError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield status

    def last_moved(self) -> datetime:
        """When one of the files was last written."""
        newest = max((status.st_mtime for status in self._statuses("*.json*")), default=0.0)
        return datetime.fromtimestamp(newest, UTC)

    def may_live(self, run: Run) -> bool:
        """Whether somebody may still write this run: unless its end was recorded, or it is certain that nobody does."""
        if run.end is not None:
            return False
        if self._lock_told(run) is None:
            return run.status == "running" or datetime.now(UTC) - self.last_moved() < SURELY_DEAD
        return run.status == "running"

    def must_have_ended(self) -> None:
        """Refuse to change or remove a run that somebody may still write."""
        run = self.load()
        if run.status == "running":
            raise RunMayLive(f"{self.name} is still running.")
        if self.may_live(run):
            raise RunMayLive(
                f"{self.name} may still be running on another machine: it was written to less than a day ago.",
                hint="Wait, or delete its folder yourself if you are sure that it has ended.",
            )

    def _lives(self, run: Run) -> bool:
        told = self._lock_told(run)
        if told is not None:
            return told
        here = run.hosts.get(host_name())
        if here and here.pid and not here.boot_id:  # recorded by an older version
            return _is_process(here.pid, here.pid_start)
        # Watched from another machine: trust its files as long as they move.
        return (datetime.now(UTC) - self.last_moved()).total_seconds() < max(60.0, 10 * run.interval_seconds)

    def _lock_told(self, run: Run) -> bool | None:
        """Whether the locks of the run say that it lives; None when they cannot tell from here."""
        held = {name: liveness.is_held(self.host_folder(name)) for name in run.hosts}
        if any(held.values()):
            return True
        boot = liveness.boot_id()
        free = run.hosts and all(held[name] is False and host.boot_id == boot for name, host in run.hosts.items())
        return False if boot and free else None


def _loaded(folder: RunFolder) -> Run | None:
    """None when run.json is damaged: nobody can join such a run."""
    try:
        return folder.load()
    except PulsetrainError:
        return None


def _is_process(pid: int, started: float) -> bool:
    try:
        return abs(float(psutil.Process(pid).create_time()) - started) < 1.0
    except psutil.Error:
        return False


class Home:
    """The folder that holds all runs."""

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        """New runs are for their owner alone, or, when `shared`, for the owner's group to read as well."""
        self.path = path
        self._mode = SHARED_MODE if shared else PRIVATE_MODE

    @classmethod
    def find(cls, directory: str | None = None, *, shared: bool = False) -> "Home":
        """`--dir`, else $PULSETRAIN_HOME/runs, else ~/.pulsetrain/runs."""
        if directory:
            return cls(Path(directory).expanduser(), shared=shared)
        if home := os.environ.get("PULSETRAIN_HOME"):
            return cls(Path(home).expanduser() / "runs", shared=shared)
        try:
            return cls(Path.home() / ".pulsetrain" / "runs", shared=shared)
        except RuntimeError:
            raise UsageError(
                "there is no home directory to keep runs in.", hint="Set PULSETRAIN_HOME, or use --dir FOLDER."
            ) from None

    def create(self, name: str, start: datetime) -> RunFolder:
        """A new, empty run folder; two runs of the same second and name get different ones."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            while True:
                folder = self.path / f"{start:%Y%m%d-%H%M%S}-{slug(name)}-{secrets.token_hex(2)}"
                try:
                    folder.mkdir(PRIVATE_MODE)
                    folder.chmod(self._mode)
                    return RunFolder(folder)
                except FileExistsError:
                    if not folder.is_dir():
                        raise
        except OSError as error:
            raise self._unwritable(error) from None

    def open(
        self, name: str, start: datetime, job_id: str | None = None, one_of_many: bool = False, restarts: int = 0
    ) -> tuple[RunFolder, bool]:
        """A new run, or, with a job id, the one that has been begun for this job. True for who is to write run.json.

        On a host that the run knows already, only a process that is `one_of_many` belongs to it: a job may also start
        several trainings beside each other. A launcher that counts its `restarts` continues the run of the job,
        even if that has ended: the first process of each restart opens it again.
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
            about = _loaded(found) if found else None
            if found and about and restarts and _is_first(claim / f".restart-{restarts}"):
                return found, True
            if found and about and about.status == "running":
                if restarts:
                    return found, False
                if host_name() in about.hosts and not one_of_many:
                    return self.create(name, start), True
                return found, False
            if (found and not restarts) or time.monotonic() > deadline:
                shutil.rmtree(claim, ignore_errors=True)  # left by a job that has ended, or died at birth
            time.sleep(0.1)

    def rename(self, folder: RunFolder, id: str, job_id: str) -> RunFolder:
        """Give a run of a job that has just been made another id: others have begun it elsewhere. Raises OSError."""
        renamed = self.path / id
        renamed.mkdir(PRIVATE_MODE)  # never in place of a run that is here already
        renamed.chmod(self._mode)
        claim = self.path / f".job-{slug(job_id)}"
        (claim / id).touch()
        (claim / folder.path.name).unlink(missing_ok=True)
        folder.path.rmdir()
        return RunFolder(renamed)

    def _claimed(self, claim: Path) -> RunFolder | None:
        """The run that has been made for a job; None while its maker is still at it."""
        with contextlib.suppress(FileNotFoundError):
            for entry in claim.iterdir():
                if is_regular(self.path / entry.name / RUN_JSON):
                    return RunFolder(self.path / entry.name)
        return None

    def _unwritable(self, error: OSError) -> PulsetrainError:
        return PulsetrainError(
            f"runs cannot be kept in {self.path}: {error.strerror}.",
            hint="Set PULSETRAIN_HOME to a folder you can write to, or use --dir FOLDER.",
        )

    def runs(self) -> Iterator[RunFolder]:
        """All runs that may be read, oldest first.

        Folders are named by the second in which a run began; run.json is more exact.
        """
        for _, of_one_second in groupby(self.folders(), lambda folder: folder.path.name[: len("20261116-013054")]):
            several = list(of_one_second)
            yield from several if len(several) == 1 else sorted(several, key=_start)

    def folders(self) -> Iterator[RunFolder]:
        """The same by their names alone: no run.json is read."""
        if self.path.is_dir():
            for path in sorted(self.path.iterdir(), key=str):
                if is_regular(path / RUN_JSON):
                    yield RunFolder(path)

    def resolve(self, wanted: str) -> RunFolder:
        """A run by id, unique start of an id, name, path, or `last`."""
        if is_regular(Path(wanted) / RUN_JSON):
            return RunFolder(Path(wanted))
        runs = list(self.runs())
        if not runs:
            raise UsageError(f"there are no runs in {self.path}.", hint="Record one: pulsetrain run -- python train.py")
        if wanted == "last":
            return runs[-1]
        found = [run for run in runs if run.path.name == wanted] or [r for r in runs if r.path.name.startswith(wanted)]
        if not found:
            named = [run for run in runs if (about := _loaded(run)) and about.name == showable(wanted)]
            found = named[-1:]  # a name means its latest run
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(run.name for run in found[:5])
            raise UsageError(f"{len(found)} runs start with {wanted!r}: {ids}{', ...' if len(found) > 5 else ''}")
        raise UsageError(f"there is no run {wanted!r} in {self.path}.", hint="List them: pulsetrain runs")


def _start(folder: RunFolder) -> float:
    """When a run began, in seconds since the epoch; one whose run.json is damaged comes before all others."""
    about = _loaded(folder)
    return about.start.timestamp() if about else -math.inf


def _is_first(mark: Path) -> bool:
    """Whether this process is the first to leave this mark."""
    try:
        mark.mkdir()
    except OSError:
        return False
    return True


def write_json(path: Path, document: object) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    temporary.replace(path)


def is_whole(parquet: Path) -> bool:
    """Whether a Parquet file has its end. One that was copied or synced in part has not."""
    with open_regular(parquet) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        return size >= 12 and file.read() == b"PAR1"


def table_of(path: Path) -> str | None:
    """The table whose lines a file of a host's folder holds; None for a file that is none of ours."""
    return next((table.name for table in TABLES.values() if fnmatchcase(path.stem, table.files)), None)


def slug(name: str) -> str:
    """A name that is safe in a file name."""
    return re.sub(r"[^a-zA-Z0-9._]+", "-", name).strip("-.")[:40] or "run"


def _is_host(folder: str) -> bool:
    """Whether a folder of a run can be a host's: all our names of hosts are safe ones."""
    return folder == slug(folder)


def host_name() -> str:
    """The name of this machine. A pod has one of its own: PULSETRAIN_HOST says that of its node."""
    return slug(os.environ.get("PULSETRAIN_HOST") or socket.gethostname())

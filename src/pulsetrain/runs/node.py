"""All runs that go on on this machine, whoever started them: followed in their folders, as they are written.

A thread of its own reads them, because a home may lie on a disk that hangs.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pulsetrain.catalog import TABLES
from pulsetrain.errors import PulsetrainError
from pulsetrain.regular_files import is_regular
from pulsetrain.runs.codec import Line, event_of, sample_of
from pulsetrain.runs.folder import RUN_JSON, Home, Host, Run, RunFolder, host_name
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.reports import TrainingReports
from pulsetrain.snapshot import Sample, Snapshot, Subject
from pulsetrain.supervise import Supervisor, Worker

log = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0
LOOK_SECONDS = 5.0
"""How often folders are looked through for new runs."""
MOST_READINGS = 64
"""Of one run at a time: a run that is written faster than it can be read must not keep us from the others."""
RUN_VARIABLE = b"PULSETRAIN_RUN_ID="

_END = Snapshot(0.0, 0.0, (), last=True)

Follower = Callable[[Run, Snapshot], None]
"""Gets what was seen of a run, and at its end a snapshot that says so."""


def default_folders(directory: str | None) -> list[str]:
    """Where runs of this machine are kept: in `directory`, or else this user's; for root also those of all users."""
    everybody = ["/home/*/.pulsetrain/runs"] if os.geteuid() == 0 else []
    return [str(Home.find(directory).path), *everybody]


class Node:
    """Follows every run of this machine, from the moment it appears to its end."""

    def __init__(
        self,
        folders: Sequence[str],
        follower: Follower,
        *,
        but: str | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`folders` hold runs, and may be patterns (`/home/*/.pulsetrain/runs`); the run `but` is left out."""
        self._folders = folders
        self._follower = follower
        self._followed: dict[Path, _Followed] = {}
        self._settled: set[Path] = set()
        """Runs that have ended, or are none of ours: not looked at again."""
        self._but = but
        self._complained: set[str] = set()
        self._part = (supervisor or Supervisor()).part("node")
        self._pids: frozenset[int] = frozenset()
        self._owners: dict[int, str] = {}
        self._looked = float("-inf")
        self._worker = Worker(self._part, self.look, every_seconds=PERIOD_SECONDS)

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        if self._worker.stop(PERIOD_SECONDS):  # else a disk hangs
            for followed in self._followed.values():
                followed.close()

    def attributed(self, snapshot: Snapshot) -> Snapshot:
        """The same, in which processes on GPUs say to which run they belong, as far as is known by now."""
        processes = [sample for sample in snapshot.samples if _on_gpu(sample.subject)]
        if not processes:
            return snapshot
        self._pids = frozenset(int(sample.subject.labels["pid"] or 0) for sample in processes)
        owners = self._owners
        samples = (
            Sample(_owned(sample.subject, owners), sample.values) if _on_gpu(sample.subject) else sample
            for sample in snapshot.samples
        )
        return snapshot._replace(samples=tuple(samples))

    def look(self) -> None:
        """Read all that is new."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            self._find()
        for path, followed in list(self._followed.items()):
            snapshots = [_END]  # after a failure it may come back: then it is read from its beginning
            with self._part.attempt(str(path)):
                snapshots = list(followed.read())
            for snapshot in snapshots:
                self._follower(followed.run, snapshot)
            if snapshots[-1].last:
                self._followed.pop(path).close()
        self._owners = self._find_owners()

    def _find(self) -> None:
        for folder in self._folders:
            for home in _matching(folder):
                try:
                    with os.scandir(home) as entries:
                        paths = [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
                except FileNotFoundError:
                    continue  # it comes with the first run
                except OSError as error:
                    self._complain(str(home), error)
                    continue
                for path in paths:
                    if path not in self._settled and path not in self._followed:
                        with self._part.attempt(str(path)):
                            self._consider(path)

    def _consider(self, path: Path) -> None:
        try:
            if not os.path.lexists(path / RUN_JSON):
                return  # it is just being made
            _check_place(path)
            run = RunFolder(path).load()
        except (OSError, PulsetrainError) as error:
            self._complain(str(path.parent), error)
            return
        if run.status != "running" or run.id == self._but:
            self._settled.add(path)
        elif host_name() in run.hosts:
            self._followed[path] = _Followed(path, run.hosts[host_name()])

    def _complain(self, where: str, error: Exception) -> None:
        """Once."""
        if where not in self._complained:
            self._complained.add(where)
            reason = error.strerror if isinstance(error, OSError) else str(error)
            log.warning("runs in %s cannot be followed: %s", where, reason)

    def _find_owners(self) -> dict[int, str]:
        """The runs of the processes on GPUs: by their environment, where we may read it, or by the run's own list."""
        listed = {pid: followed.run.id for followed in self._followed.values() for pid in followed.pids}
        owners = ((pid, _run_in_environment(pid) or listed.get(pid)) for pid in self._pids)
        return {pid: run for pid, run in owners if run is not None}


class _Followed:
    """One run: its training files, its account, its events and its processes."""

    def __init__(self, path: Path, host: Host) -> None:
        self._folder = RunFolder(path)
        self.run = self._folder.load()
        self._started = host.started
        here = self._folder.host_folder(host_name())
        self._training = TrainingReports(here)
        self._account = _Newest(here, "account")
        self._events = _Newest(here, "events")
        self._processes = _Newest(here, "process")
        self.pids: set[int] = set()

    def read(self) -> Iterator[Snapshot]:
        """What is new; all of it on the first reading."""
        self.run = self._folder.load()
        if self.run.status != "running":
            yield _END
            return
        elapsed = time.monotonic() - self._started
        for _ in range(MOST_READINGS):
            reports = tuple(item for item in self._training.read() if isinstance(item, Sample))
            if not reports:
                break
            # At the time of the report, so that the age of the data is right from the start.
            newest = min(elapsed, self._training.newest_seconds)
            yield Snapshot(time.time() - elapsed + newest, newest, reports)
            if self._training.caught_up:
                break
        self._note_processes()
        events = tuple(event_of(line) for line in self._events.lines())
        yield Snapshot(time.time(), elapsed, tuple(self._account_sample()), events)

    def close(self) -> None:
        self._training.close()
        for file in (self._account, self._events, self._processes):
            file.close()

    def _account_sample(self) -> Iterator[Sample]:
        newest: Line = {}
        for line in self._account.lines():  # most of them have energy alone
            newest |= line
        if newest:
            yield sample_of("account", newest)

    def _note_processes(self) -> None:
        lines = [line for line in self._processes.lines() if "gpu_index" not in line]
        if lines:
            latest = lines[-1].get("timestamp")
            self.pids = {line["pid"] for line in lines if line.get("timestamp") == latest and "pid" in line}


class _Newest:
    """The newest file of a table, followed; when another one is begun, that one."""

    def __init__(self, folder: Path, table: str) -> None:
        self._folder = folder
        self._pattern = f"{TABLES[table].files}.jsonl"
        self._path: Path | None = None
        self._file: LineFile | None = None

    def lines(self) -> Iterator[Line]:
        """What has come since the last call."""
        if self._file:
            yield from self._file.all_lines()
        newest = max(filter(is_regular, self._folder.glob(self._pattern)), default=None)
        if newest is not None and newest != self._path:
            with contextlib.suppress(FileNotFoundError):  # sealed meanwhile
                self.close()
                self._path, self._file = newest, LineFile(newest)
                yield from self._file.all_lines()

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None


def _check_place(path: Path) -> None:
    """No links of others are followed: they could lead to what their makers may not read, and an agent may."""
    for place in (path, path / host_name()):
        if place.is_symlink() and place.lstat().st_uid != os.geteuid():
            raise PulsetrainError(f"{place} is another user's symbolic link.")


def _matching(folder: str) -> list[Path]:
    """The folders that a pattern means; one that matches nothing is meant literally."""
    path = Path(folder).expanduser().absolute()
    return list(Path("/").glob(str(path.relative_to("/")))) or [path]


def _on_gpu(subject: Subject) -> bool:
    return subject.table == "process" and "gpu_index" in subject.labels


def _owned(subject: Subject, owners: dict[int, str]) -> Subject:
    run = owners.get(int(subject.labels["pid"] or 0))
    return Subject(subject.table, subject.key, {**subject.labels, "run": run}) if run else subject


def _run_in_environment(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return None
    found = next((variable for variable in variables if variable.startswith(RUN_VARIABLE)), None)
    return found.removeprefix(RUN_VARIABLE).decode(errors="replace") if found else None

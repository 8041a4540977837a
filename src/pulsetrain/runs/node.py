"""All runs that go on on this machine, whoever started them: followed in their folders, as they are written.

A thread of its own reads them, because a home may lie on a disk that hangs.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pulsetrain.catalog import METRICS
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import RUN_JSON, Home, Host, Run, RunFolder, host_name
from pulsetrain.runs.follow import event_of
from pulsetrain.snapshot import Sample, Snapshot, Subject
from pulsetrain.sources.training import Tail, Training

log = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0
LOOK_SECONDS = 5.0
"""How often folders are looked through for new runs."""
RUN_VARIABLE = b"PULSETRAIN_RUN_ID="
ACCOUNT = Subject("account", "")
_ACCOUNT_FIELDS = frozenset(metric.field for metric in METRICS if metric.table == "account")

_END = Snapshot(0.0, 0.0, (), last=True)

Follower = Callable[[Run, Snapshot], None]
"""Gets what was seen of a run, and at its end a snapshot that says so."""


def default_folders(directory: str | None) -> list[str]:
    """Where runs of this machine are kept: in `directory`, or else this user's; for root also those of all users."""
    everybody = ["/home/*/.pulsetrain/runs"] if os.geteuid() == 0 else []
    return [str(Home.find(directory).path), *everybody]


class Node:
    """Follows every run of this machine, from the moment it appears to its end."""

    def __init__(self, folders: Sequence[str], follower: Follower, *, but: str | None = None) -> None:
        """`folders` hold runs, and may be patterns (`/home/*/.pulsetrain/runs`); the run `but` is left out."""
        self._folders = folders
        self._follower = follower
        self._followed: dict[Path, _Followed] = {}
        self._settled: set[Path] = set()
        """Runs that have ended, or are none of ours: not looked at again."""
        self._but = but
        self._complained: set[str] = set()
        self._pids: frozenset[int] = frozenset()
        self._owners: dict[int, str] = {}
        self._looked = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(PERIOD_SECONDS)
        if not self._thread.is_alive():  # else a disk hangs
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

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            self.look()

    def look(self) -> None:
        """Read all that is new."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            self._find()
        for path, followed in list(self._followed.items()):
            try:
                snapshots = list(followed.read())
            except (OSError, PulsetrainError) as error:  # it may come back: then it is read anew
                self._complain(str(path), error)
                snapshots = [_END]
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
                        self._consider(path)

    def _consider(self, path: Path) -> None:
        try:
            if not (path / RUN_JSON).exists():
                return  # it is just being made
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
        self._training = Training(here)
        self._account = _Newest(here, "account_metrics_*.jsonl")
        self._events = _Newest(here, "events.jsonl")
        self._processes = _Newest(here, "process_metrics_*.jsonl")
        self.pids: set[int] = set()

    def read(self) -> Iterator[Snapshot]:
        """What is new; all of it on the first reading."""
        self.run = self._folder.load()
        if self.run.status != "running":
            yield _END
            return
        elapsed = time.monotonic() - self._started
        while reports := tuple(item for item in self._training.read() if isinstance(item, Sample)):
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
        lines = list(self._account.lines())
        if lines:
            yield Sample(ACCOUNT, {field: value for field, value in lines[-1].items() if field in _ACCOUNT_FIELDS})

    def _note_processes(self) -> None:
        lines = [line for line in self._processes.lines() if "gpu_index" not in line]
        if lines:
            latest = lines[-1].get("timestamp")
            self.pids = {line["pid"] for line in lines if line.get("timestamp") == latest and "pid" in line}


class _Newest:
    """The newest of the files of a name, followed; when another one is begun, that one."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._path: Path | None = None
        self._tail: Tail | None = None

    def lines(self) -> Iterator[dict[str, Any]]:
        yield from self._rest()
        newest = max(self._folder.glob(self._pattern), default=None)
        if newest is not None and newest != self._path:
            with contextlib.suppress(FileNotFoundError):  # sealed meanwhile
                self.close()
                self._path, self._tail = newest, Tail(newest)
            yield from self._rest()

    def _rest(self) -> Iterator[dict[str, Any]]:
        if self._tail:
            yield from self._tail.lines()
            while not self._tail.at_end:
                yield from self._tail.lines()

    def close(self) -> None:
        if self._tail:
            self._tail.close()
            self._tail = None


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

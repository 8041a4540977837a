"""A run folder being written, from its claim to its end."""

import logging
import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from pulsetrain import __version__
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs import liveness
from pulsetrain.runs.folder import (
    JOIN_SECONDS,
    RUN_JSON,
    CountingOptions,
    Home,
    Host,
    HostAttempt,
    Launch,
    Run,
    RunFolder,
    host_name,
)
from pulsetrain.runs.reports import TrainingReports
from pulsetrain.runs.sealing import Sealer
from pulsetrain.runs.writer import Writer
from pulsetrain.snapshot import Sample, Snapshot, Subject
from pulsetrain.sources import Source
from pulsetrain.sources.gpus import known_boards
from pulsetrain.sources.opening import Opened
from pulsetrain.supervise import Supervisor
from pulsetrain.training import ranks
from pulsetrain.training.masking import masked, masked_command, masked_document, masked_value, storable
from pulsetrain.transfer.store import JobStore, StoreError, open_store
from pulsetrain.watching import clocks
from pulsetrain.watching.describing import RunDescription
from pulsetrain.watching.destinations import store_of
from pulsetrain.watching.options import WatchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsetrain.insight.prices import Price
    from pulsetrain.insight.running_account import RunningAccount
    from pulsetrain.intensity import IntensityUpdater

log = logging.getLogger(__name__)

GPU_LIMITS = ("power_limit_watts", "power_limit_max_watts", "clock_sm_max_hertz", "clock_memory_max_hertz")
"""What run.json says of each GPU, beside what it is."""


class RunClaim(NamedTuple):
    """A run folder that this process may write into."""

    folder: RunFolder
    name: str
    command: tuple[str, ...]
    is_new: bool
    """False when another host or rank has begun the run, or an earlier attempt of the job."""
    writes_run: bool = True
    """Whether this process writes run.json: it has begun the run, or opened it again for a further attempt."""
    launch: Launch | None = None
    is_sent_by_another: bool = False
    """Whether another host sends run.json to the collector, and this one what it adds to the run."""
    lock: int | None = None
    """That of the host's folder, where it is held already."""
    watcher: Host | None = None
    """What the run says of this host, when another rank's process watches the host."""

    def give_up(self) -> None:
        """Leave nothing of a run that never began."""
        if self.is_new:
            self.folder.remove()


def claim_run(options: WatchOptions, command: Sequence[str] = (), launch: Launch | None = None) -> RunClaim:
    """A new run folder; or, with a job id, the one that another host or rank has begun for the same job."""
    name = storable(masked(options.name or name_of(() if options.private else command)))
    home = Home.find(options.directory, shared=options.shared)
    job_id, restarts = (launch.job_id or None, launch.restarts or 0) if launch else (None, 0)
    folder, writes_run = home.open(name, datetime.now(UTC), job_id, ranks.one_of_many(), restarts)
    is_new = not (folder.path / RUN_JSON).exists()
    claim = RunClaim(folder, name, tuple(command), is_new, writes_run, launch)
    if is_new and job_id and (store := store_of(options.to)):
        return _joined_elsewhere(claim, home, job_id, store)
    return claim if is_new else _joined(claim)


def _joined_elsewhere(claim: RunClaim, home: Home, job_id: str, to: str) -> RunClaim:
    """The same run under the id that another host of the job has given it, where the collector knows of one."""
    try:
        store = open_store(to)
    except PulsetrainError:
        claim.give_up()
        raise
    try:
        if not isinstance(store, JobStore):
            return claim
        begun = store.join(job_id, host_name(), claim.folder.path.name)
        if begun == claim.folder.path.name:
            return claim
        return claim._replace(folder=home.rename(claim.folder, begun, job_id), is_sent_by_another=True)
    except StoreError as error:
        log.warning("could not find out whether other hosts have started the run of this job: %s", error.message)
    except OSError as error:
        log.warning("could not join the run that other hosts have started: %s", error.strerror)
    finally:
        store.close()
    return claim


def _joined(claim: RunClaim) -> RunClaim:
    """Of the processes that join a run on one host, the first to get the lock watches the host."""
    host_folder = claim.folder.host_folder(host_name())
    try:
        host_folder.mkdir(exist_ok=True)
        lock = liveness.take(host_folder)
    except BlockingIOError:
        return claim._replace(writes_run=False, watcher=_watcher(claim.folder))
    except OSError as error:
        raise PulsetrainError(
            f"this host cannot join the run in {claim.folder.path}: {error.strerror}.",
            hint="All hosts of a job must be able to write to its folder. Choose another folder: --dir FOLDER.",
        ) from None
    if lock is None and not claim.writes_run:  # a file system without locks: trust what is written
        return claim._replace(watcher=claim.folder.load().hosts.get(host_name()))
    return claim._replace(lock=lock)


def _watcher(folder: RunFolder) -> Host:
    """What the process that watches this host says of it; it may have begun just now."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        found = folder.load().hosts.get(host_name())
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise PulsetrainError(
                f"another process has claimed {host_name()} for the run in {folder.path}, but has recorded nothing.",
                hint="Restart the job, or give it another --run-id.",
            )
        time.sleep(0.1)


def name_of(command: Sequence[str]) -> str:
    """`resnet50` for `python resnet50.py --lr 0.1`."""
    words = [Path(word) for word in command if not word.startswith("-")]
    if not words:
        return "run"
    interpreter = words[0].name.startswith(("python", "torchrun", "accelerate", "bash", "sh"))
    scripts = [word for word in words[1:] if word.suffix in (".py", ".sh", ".ipynb")] if interpreter else []
    if scripts:
        return scripts[0].stem
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1].rpartition(".")[2] or words[0].name
    return words[0].name


class RunRecording:
    """Writes a run: `run.json`, and every snapshot that it is called with, until `finish`."""

    def __init__(self, claim: RunClaim, options: WatchOptions, opened: Opened, supervisor: Supervisor) -> None:
        """Begins the run: `run.json` is there from now on, and elapsed time counts from now."""
        self.start = datetime.now(UTC)
        before = None if claim.is_new else claim.folder.load()
        known = before.hosts.get(host_name()) if before else None
        self.started = _elapsed_began(self.start, known)
        self.folder = claim.folder
        self._adds_to_run = not claim.is_new or claim.is_sent_by_another
        self._shares_folder = not claim.is_sent_by_another
        self._writes_run = claim.writes_run
        self.host = _this_host(self.started)
        self.host.launch = claim.launch
        self.host.attempts = [*(known.attempts if known else []), self._attempt()]
        self._opened = opened
        self._supervisor = supervisor
        self._noted_changes = opened.changes
        self._note_unavailable()
        self._gpus: dict[Subject, None] = {}
        self._limits: dict[Subject, dict[str, Any]] = {}
        """Of power and clocks, as they were first seen."""
        self.run = (
            _reopened(before)
            if before and claim.writes_run
            else Run(
                id=self.folder.path.name,
                name=claim.name,
                command=[] if options.private else [storable(word) for word in masked_command(claim.command)],
                directory="" if options.private else _working_directory(),
                private=options.private,
                user=_user(),
                project=storable(masked(options.project)),
                config=masked_document(options.config),
                tags={storable(key): storable(masked_value(key, value)) for key, value in options.tags.items()},
                start=self.start,
                interval_seconds=options.interval_seconds,
                account=options.account,
                hosts={host_name(): self.host},
            )
        )
        self.host_folder = self.folder.host_folder(host_name())
        sealer = Sealer(self.host_folder, supervisor)
        self._writer = Writer(self.host_folder, self.start, closed=sealer.add, supervisor=supervisor)
        self.training = TrainingReports(self.host_folder, closed=sealer.add)
        """The source that follows what the training processes of this host write."""
        self._description = RunDescription(
            self.folder.path,
            self.run,
            self.host,
            command=claim.command,
            writes_run=claim.writes_run,
            private=options.private,
            supervisor=supervisor,
            changed=lambda: self._writer.defer(self._save),
            accounted=self._note_account,
        )
        self._saving = threading.Lock()
        self.hangs = False
        """Whether the disk hung in the end: then reading from it would hang as well."""
        self.end_is_lost = False
        """Whether how the run ended could not be written."""
        try:
            self._lock = liveness.hold(self.host_folder) if claim.lock is None else claim.lock
            self._note_clock()
            self._save()
        except OSError as error:
            self._writer.close()
            raise PulsetrainError(
                f"the run cannot be written to {self.folder.path}: {error.strerror}.",
                hint="Free some space, or choose another folder: --dir FOLDER.",
            ) from None
        self._carbon = _carbon(self.folder, options.account, self.start, supervisor)
        self.account = _running_account(options, self.started, lambda: self._carbon)
        self._description.start()

    def __call__(self, snapshot: Snapshot) -> None:
        self._writer(_without_commands(snapshot) if self.run.private else snapshot)
        self._note_gpus(snapshot)
        if self._opened.changes != self._noted_changes:
            self._noted_changes = self._opened.changes
            self._note_unavailable()
            self._writer.defer(self._save)
        if any(event.kind.startswith("part_") for event in snapshot.events):
            self._note_troubled()
            self._writer.defer(self._save)

    def finish(self, status: str, exit_code: int | None) -> None:
        """Write what is left, and how the run ended. A disk that hangs is given up after a few seconds."""
        self._description.stop()
        if self._carbon:
            self._carbon.stop()
        if not self._writer.close(last=lambda: self.note_end(status, exit_code)):
            self.hangs = True
            unwritten = f"{self._writer.lost_samples:,} samples and the end of the run"
            log.warning("%s does not respond: %s could not be written.", self.folder.path, unwritten)
        elif self._lock is not None:
            os.close(self._lock)

    def note_end(self, status: str, exit_code: int | None) -> None:
        """Write into run.json how the run ended."""
        self._note_unavailable()
        self._note_troubled()
        self._end_attempt(status, exit_code)
        since_start = (self.host.attempts[0].start - self.run.start).total_seconds()  # 0 on the host that began it
        self.run.seconds = round(time.monotonic() - self.started + since_start, 3)
        self.run.end = self.run.start + timedelta(seconds=self.run.seconds)
        self.run.status = status
        self.run.exit_code = exit_code
        self.run.lost_samples += self._writer.lost_samples
        try:
            self._save()
        except OSError as error:
            self.end_is_lost = True
            log.warning("the end of the run could not be written to %s: %s", self.folder.path, error.strerror)

    @property
    def sources(self) -> list[Source]:
        """What is read for this run alone."""
        return [self.training, *self._description.sources]

    @property
    def writes_run(self) -> bool:
        """Whether the run as a whole ends with the command of this host."""
        return self._writes_run

    def _attempt(self) -> HostAttempt:
        return HostAttempt(start=self.start, began=round(time.monotonic() - self.started, 3))

    def _end_attempt(self, status: str, exit_code: int | None) -> None:
        attempt = self.host.attempts[-1]
        attempt.ended = round(time.monotonic() - self.started, 3)
        attempt.status, attempt.exit_code = status, exit_code

    def _note_clock(self) -> None:
        self.host.clock_error_seconds = clocks.kernel_clock_error()
        if self._shares_folder and (ahead := clocks.ahead_of_folder(self.host_folder)):
            self.host.ahead_of_folder_seconds = round(ahead.seconds, 6)
            self.host.ahead_error_seconds = round(ahead.error, 6)

    def _note_unavailable(self) -> None:
        self.host.unavailable = {name: error.message for name, error in self._opened.unavailable.items()}

    def _note_troubled(self) -> None:
        self.host.troubled = [str(part) for part in self._supervisor.health() if part.troubled]

    def _note_gpus(self, snapshot: Snapshot) -> None:
        """Boards may come late: their driver was slow, or they did not answer at the start."""
        seen = [sample.subject for sample in snapshot.samples if sample.subject.table == "gpu"]
        limits = {sample.subject: _limits(sample) for sample in snapshot.samples if sample.subject.table == "gpu"}
        news = {gpu: found for gpu, found in limits.items() if found and gpu not in self._limits}
        if news or any(gpu not in self._gpus for gpu in seen):
            self._gpus |= dict.fromkeys(seen)
            self._limits |= news
            self.host.gpus = [{**gpu.labels, **self._limits.get(gpu, {})} for gpu in known_boards(self._gpus)]
            self.run.simulated = any(gpu.get("simulated") for gpu in self.host.gpus)
            self._description.boards_known()
            self._writer.defer(self._save)

    def _note_account(self, found: CountingOptions) -> None:
        """A price or a region that the place of the machine says."""
        if found.carbon_region and not self._carbon:
            self._carbon = _carbon(self.folder, found, self.start, self._supervisor)
        if found.price:
            self.account.set_price(_parsed(found.price))

    def _save(self) -> None:
        """Write run.json, or, into a run that another host has begun, what this host adds to it."""
        with self._saving:
            if self._writes_run:
                self.run.hosts[host_name()] = self.host
                self.folder.save(self.run)
            if self._adds_to_run:
                self.folder.save_host(host_name(), self.host)


def _elapsed_began(start: datetime, known: Host | None) -> float:
    """When elapsed seconds began on the monotonic clock: now, or, on a host that was watched before, then."""
    now = time.monotonic()
    if known is None or not known.attempts:
        return now
    if known.boot_id and known.boot_id == liveness.boot_id():
        return known.started
    return now - max(0.0, (start - known.attempts[0].start).total_seconds())  # rebooted: its clock is all there is


def _reopened(run: Run) -> Run:
    """A run that continues with a further attempt."""
    run.status, run.exit_code, run.end, run.seconds = "running", None, None, None
    return run


def _carbon(
    folder: RunFolder, account: CountingOptions, start: datetime, supervisor: Supervisor
) -> "IntensityUpdater | None":
    """The carbon intensities of the run, looked up beside it."""
    if not account.carbon_region:
        return None
    from pulsetrain import intensity

    provider = intensity.find(account.carbon_region)
    updater = intensity.IntensityUpdater(folder.path, provider, start, supervisor=supervisor)
    updater.start()
    return updater


def _without_commands(snapshot: Snapshot) -> Snapshot:
    """The same without the command lines of processes."""
    samples = (
        sample._replace(subject=replace(sample.subject, labels={**sample.subject.labels, "command": ""}))
        if "command" in sample.subject.labels
        else sample
        for sample in snapshot.samples
    )
    return snapshot._replace(samples=tuple(samples))


def _limits(sample: Sample) -> dict[str, Any]:
    return {name: sample.values[name] for name in GPU_LIMITS if sample.values.get(name) is not None}


def _parsed(price: str) -> "Price":
    from pulsetrain.insight.prices import load_prices, parse_price

    return parse_price(price, load_prices())


def _running_account(
    options: WatchOptions, started: float, carbon: "Callable[[], IntensityUpdater | None]"
) -> "RunningAccount":
    from pulsetrain.insight.running_account import RunningAccount

    account = options.account
    return RunningAccount(
        price=_parsed(account.price) if account.price else None,
        pue=account.pue or 1.0,
        charge=account.charge,
        idle_percent=options.thresholds.idle_percent,
        started=started,
        interval_seconds=options.interval_seconds,
        record=lambda: found.latest if (found := carbon()) else None,
    )


def _user() -> str:
    """The name of the account; its number where it has none, as in some containers."""
    try:
        return storable(psutil.Process().username())
    except (KeyError, psutil.Error):
        return ""


def _working_directory() -> str:
    """Empty when somebody has removed it."""
    try:
        return storable(str(Path.cwd()))
    except FileNotFoundError:
        return ""


def _this_host(started: float) -> Host:
    me = psutil.Process()
    return Host(
        pulsetrain=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        cpu_cores=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        pid=me.pid,
        pid_start=me.create_time(),
        boot_id=liveness.boot_id(),
        started=started,
    )

"""One run of a benchmark: watched, stopped when it takes too long or somebody asks, and read."""

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from pulsetrain.bench.declaration import Benchmark, score_pattern
from pulsetrain.bench.output import OutputEcho, OutputLog
from pulsetrain.bench.results import RepeatResult, RepeatStatus, energy_source, figures_of
from pulsetrain.bench.suite import Turn
from pulsetrain.bench.workload import GRACE_SECONDS, TIMEOUT_EXIT_CODE, Workload, WorkloadExit
from pulsetrain.errors import PulsetrainError
from pulsetrain.insight.report import Report, make_report
from pulsetrain.runs.folder import RunFolder
from pulsetrain.sampler import Consumer
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import claim_run
from pulsetrain.watching.session import Session

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
OUTPUT_FILE = "output.log"
Open = Callable[[Benchmark, OutputLog], Workload]


@dataclass
class StopRequest:
    """Set by signals: the first asks for an orderly end, the second for one at once."""

    count: int = 0
    event: threading.Event = field(default_factory=threading.Event)

    def add(self) -> None:
        self.count += 1
        self.event.set()

    @property
    def wanted(self) -> bool:
        return self.count > 0

    @property
    def urgent(self) -> bool:
        return self.count > 1


@dataclass
class RepeatInProgress:
    """What can be seen of a run while it is in progress."""

    turn: Turn
    output: OutputLog
    session: Session
    started: float
    """On the monotonic clock; when the command or container itself did."""


@dataclass(frozen=True)
class Repeated:
    """A run that is over: its result, and the record it comes from, where that could be read."""

    result: RepeatResult
    folder: RunFolder
    report: Report | None


@dataclass(frozen=True)
class Handling:
    """How runs are done, the same for all of them."""

    watching: WatchOptions
    stop: StopRequest
    open: Open
    began: Callable[[RepeatInProgress], None] = lambda progress: None
    consumer: Consumer | None = None
    """Gets each snapshot."""
    echo: OutputEcho | None = None


def run_once(turn: Turn, folder: Path, handling: Handling) -> Repeated:
    """Run a benchmark once; what it prints and leaves goes into `folder`."""
    benchmark = turn.benchmark
    _make_empty(folder)
    output = OutputLog(folder / OUTPUT_FILE, score_pattern(benchmark.score), handling.echo)
    try:
        workload = handling.open(benchmark, output)
    except BaseException:
        output.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    with contextlib.closing(workload):
        session = _session(turn, workload, handling)
        recording = session.recording
        assert recording
        try:
            workload.prepare(recording)
        except BaseException:
            session.close()
            recording.finish("failed", None)
            recording.folder.remove()  # nothing was measured
            raise
        ended, status = _measure(turn, workload, session, output, handling)
        with _noted(workload, "its results could not be saved"):
            workload.keep(folder)
    report = None
    with _noted(workload, "its run folder could not be read"):
        report = make_report(recording.folder)
    result = _result(turn, workload, ended, status, report, recording.folder)
    result.output_bytes = output.bytes
    if output.score is not None:
        result.figures["score"] = output.score
    elif benchmark.score and status == "finished":
        result.notes.append(f"no score: nothing in its output matches {benchmark.score!r}")
    _keep_lines(recording.folder, folder)
    return Repeated(result, recording.folder, report)


def _session(turn: Turn, workload: Workload, handling: Handling) -> Session:
    benchmark = turn.benchmark
    tags = {**handling.watching.tags, "benchmark": benchmark.name, "repeat": turn.folder}
    options = replace(handling.watching, name=handling.watching.name or benchmark.name, tags=tags)
    session = Session(options, [workload.source])
    try:
        claim = claim_run(options, benchmark.command if not benchmark.image else (benchmark.image, *benchmark.command))
    except PulsetrainError:
        session.close()
        raise
    session.open(claim)
    if handling.consumer:
        session.add(handling.consumer)
    return session


def _measure(
    turn: Turn, workload: Workload, session: Session, output: OutputLog, handling: Handling
) -> tuple[WorkloadExit, RepeatStatus]:
    progress = RepeatInProgress(turn, output, session, time.monotonic())
    handling.began(progress)  # before the first tick, which views should not miss
    session.start()
    try:
        workload.start()
        progress.started = time.monotonic()
        ended, status = _await(workload, turn.benchmark.timeout, handling.stop)
    except PulsetrainError as error:
        session.stop()
        session.finish("failed", error.exit_code)
        raise
    workload.ended()
    session.stop()
    session.finish({"timed out": "failed"}.get(status, status), ended.exit_code)
    return ended, status


def _await(workload: Workload, timeout: float | None, stop: StopRequest) -> tuple[WorkloadExit, RepeatStatus]:
    """Wait for its end; ask it to end when time is up or somebody wants it, and kill it when it does not."""
    begun = time.monotonic()
    asked: float | None = None
    status: RepeatStatus = "finished"
    while True:
        ended = workload.wait(LOOK_SECONDS)
        if ended:
            break
        now = time.monotonic()
        if asked is None and (stop.wanted or (timeout is not None and now - begun > timeout)):
            status = "interrupted" if stop.wanted else "timed out"
            asked = now
            workload.stop()
        elif asked is not None and (stop.urgent or now - asked > GRACE_SECONDS):
            workload.kill()
    if status == "timed out":
        return ended._replace(exit_code=TIMEOUT_EXIT_CODE, reason=f"stopped after {timeout:g} s"), status
    if status == "interrupted":
        return ended._replace(reason="stopped by a signal"), status
    if ended.exit_code or ended.reason:
        return ended, "failed"
    return ended, "finished"


@contextlib.contextmanager
def _noted(workload: Workload, what: str) -> Iterator[None]:
    """A run that is over and measured is worth more than what fails after it."""
    try:
        yield
    except (PulsetrainError, OSError) as error:
        workload.notes.append(f"{what}: {error}")
        log.warning("%s: %s", what, error)


def _result(
    turn: Turn,
    workload: Workload,
    ended: WorkloadExit,
    status: RepeatStatus,
    report: Report | None,
    folder: RunFolder,
) -> RepeatResult:
    reason = ended.reason or (f"exit code {ended.exit_code}" if status == "failed" else "")
    return RepeatResult(
        number=turn.number,
        warm_up=turn.warm_up,
        folder=turn.folder,
        run=folder.path.name,
        path=str(folder.path),
        status=status,
        exit_code=ended.exit_code,
        reason=reason,
        start=ended.start.astimezone(UTC),
        end=ended.end.astimezone(UTC),
        figures={"seconds": round(ended.seconds, 6), **(figures_of(folder, report) if report else {})},
        energy_source=energy_source(report) if report else "",
        stages=workload.stages,
        image_id=workload.image_id,
        image_digest=workload.image_digest,
        notes=workload.notes,
    )


def _make_empty(folder: Path) -> None:
    """Remove what an earlier benchmark left in a folder that it made."""
    try:
        if folder.is_dir() and (folder / OUTPUT_FILE).exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PulsetrainError(
            f"results cannot be saved in {folder}: {error.strerror}.", hint="Choose another folder: --results DIR"
        ) from None


def _keep_lines(run: RunFolder, folder: Path) -> None:
    """The lines of the run beside its results, for scripts that look there."""
    for file in (*run.path.glob("*/*_metrics_*"), *run.path.glob("*/events.jsonl"), run.path / "run.json"):
        if file.is_file() and not file.is_symlink():
            shutil.copyfile(file, folder / file.name)

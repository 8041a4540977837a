"""Watching, as `run`, `watch` and `demo` do it: sources, sampler, and a run folder when asked to record."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from pulsetrain import __version__
from pulsetrain.cli import logs
from pulsetrain.insight.summary import Summary, Totals
from pulsetrain.runs.folder import Host, Run, RunFolder, host_name
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Consumer, Sampler
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources import Opened, Source
from pulsetrain.sources.training import Training


class Recording:
    """A run folder being written: a consumer of snapshots."""

    def __init__(
        self,
        folder: RunFolder,
        run_name: str,
        command: Sequence[str],
        interval: float,
        tags: dict[str, str],
        *,
        new: bool = True,
    ) -> None:
        """`new` unless another host has begun this run."""
        self.start = datetime.now(UTC)
        self.started = time.monotonic()
        self.folder = folder
        self._new = new
        self.host = _this_host(self.started)
        self.run = Run(
            id=self.folder.path.name,
            name=run_name,
            command=list(command),
            directory=str(Path.cwd()),
            tags=tags,
            start=self.start,
            interval_seconds=interval,
            hosts={host_name(): self.host},
        )
        self.host_folder = self.folder.host_folder(host_name())
        self._writer = Writer(self.host_folder, self.start)
        self.training = Training(self.host_folder)
        self.totals = Totals(host_name(), self.training.steps)
        self._save()

    def __call__(self, snapshot: Snapshot) -> None:
        self._writer(snapshot)
        self.totals(snapshot)
        if not self.host.gpus:
            self._note_gpus(snapshot)

    def finish(self, status: str, exit_code: int | None) -> Summary:
        self._writer.close()
        self.run.end = datetime.now(UTC)
        self.run.status = status
        self.run.exit_code = exit_code
        self.run.lost_samples = self._writer.lost_samples
        try:
            self._save()
        except OSError as error:
            logs.log.warning("the end of the run could not be written to %s: %s", self.folder.path, error.strerror)
        return self.totals.result()

    def _note_gpus(self, snapshot: Snapshot) -> None:
        labels = [sample.subject.labels for sample in snapshot.samples if sample.subject.table == "gpu"]
        if labels:
            self.host.gpus = [dict(label) for label in labels]
            self.run.simulated = any(label.get("simulated") for label in labels)
            self._save()

    def _save(self) -> None:
        """Write run.json, or, into a run that another host has begun, what this host adds to it."""
        if self._new:
            self.folder.save(self.run)
        else:
            self.folder.save_host(host_name(), self.host)


class Session:
    """Sources and their sampler, with an optional recording."""

    def __init__(self, opened: Opened, extra: Sequence[Source], interval: float, recording: Recording | None) -> None:
        self.recording = recording
        consumers: list[Consumer] = []
        if recording:
            recording.host.unavailable = {name: error.message for name, error in opened.unavailable.items()}
            consumers.append(recording)
        self._consumers = consumers
        self._sources = [*opened.sources, *extra, *([recording.training] if recording else [])]
        self._interval = interval
        self._sampler: Sampler | None = None

    def add(self, consumer: Consumer) -> None:
        """Give snapshots to a view as well; before `start`."""
        self._consumers.append(consumer)

    def start(self) -> None:
        started = self.recording.started if self.recording else None
        self._sampler = Sampler(self._sources, self._interval, self._consumers, started=started)
        self._sampler.start()

    def stop(self) -> None:
        if self._sampler:
            self._sampler.stop()


def warn_of_broken(opened: Opened) -> None:
    """Say what the machine has and we cannot use. What it simply does not have is no news."""
    for error in opened.unavailable.values():
        if error.broken:
            logs.log.warning("%s", error)


def why_no_gpu(opened: Opened) -> str:
    """The lines of a table without GPUs."""
    broken = [str(error) for error in opened.unavailable.values() if error.broken]
    return "\n".join(broken) or "none found (pulsetrain doctor tells more)"


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
        started=started,
    )


def default_name(command: Sequence[str]) -> str:
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


def to_terminal(lines: Sequence[str]) -> None:
    """Our own words go to standard error: standard output belongs to the command."""
    print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201 - the one place that prints

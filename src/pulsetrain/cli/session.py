"""Watching, as `run`, `watch` and `demo` do it: sources, sampler, and a run folder when asked to record."""

import os
import platform
import sys
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pulsetrain import __version__
from pulsetrain.cli import logs
from pulsetrain.runs.folder import Account, Host, Run, RunFolder, host_name
from pulsetrain.runs.sealing import Sealer
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Consumer, Sampler
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources import Opened, Source
from pulsetrain.sources.training import Training

if TYPE_CHECKING:
    from pulsetrain.cli.pushing import Pushing
    from pulsetrain.insight.ledger import Ledger
    from pulsetrain.intensity import Recorder
    from pulsetrain.outputs.prometheus import Exporter
    from pulsetrain.outputs.push.target import Target
    from pulsetrain.runs.node import Node


SWITCH_SECONDS = 0.0005
"""A thread that computes lets others go on after so long: a scrape does not wait for a reading to be worked through."""


class Recording:
    """A run folder being written: a consumer of snapshots."""

    def __init__(
        self,
        folder: RunFolder,
        run_name: str,
        command: Sequence[str],
        interval: float,
        tags: dict[str, str],
        account: Account,
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
            account=account,
            hosts={host_name(): self.host},
        )
        self.host_folder = self.folder.host_folder(host_name())
        sealer = Sealer(self.host_folder)
        self._writer = Writer(self.host_folder, self.start, closed=sealer.add)
        self.training = Training(self.host_folder, closed=sealer.add)
        self._save()
        self._carbon = _carbon(self.folder, account, self.start)
        self.ledger = _ledger(account, self._carbon)

    def __call__(self, snapshot: Snapshot) -> None:
        self._writer(snapshot)
        if not self.host.gpus:
            self._note_gpus(snapshot)

    def finish(self, status: str, exit_code: int | None) -> None:
        self._writer.close()
        if self._carbon:
            self._carbon.stop()
        self.run.end = datetime.now(UTC)
        self.run.status = status
        self.run.exit_code = exit_code
        self.run.lost_samples = self._writer.lost_samples
        try:
            self._save()
        except OSError as error:
            logs.log.warning("the end of the run could not be written to %s: %s", self.folder.path, error.strerror)

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
        self._pushing: Pushing | None = None
        self._exporter: Exporter | None = None
        self._node: Node | None = None

    def add(self, consumer: Consumer) -> None:
        """Give snapshots to a view as well; before `start`."""
        self._consumers.append(consumer)

    def export(self, exporter: "Exporter | None", *, quiet: bool, node: "Node | None" = None) -> None:
        """Let Prometheus see what is read, and say where; before `start`."""
        if exporter is None:
            return
        from pulsetrain.outputs.families import facts_of

        run = self.recording.run if self.recording else None
        exporter.start({"host": host_name()} | ({"run": run.id} if run else {}), facts_of(run) if run else None)
        self._exporter, self._node = exporter, node
        self._consumers.append(exporter if node is None else lambda snapshot: exporter(node.attributed(snapshot)))
        sys.setswitchinterval(SWITCH_SECONDS)
        if not quiet:
            to_terminal([f"metrics for Prometheus at {exporter.url}/metrics"])

    def push(self, targets: "Sequence[Target]", names: Collection[str]) -> None:
        """Send what is read to servers as well; before `start`."""
        if targets:
            from pulsetrain.cli.pushing import Pushing

            self._pushing = Pushing(targets, names, self.recording)
            self._consumers += self._pushing.consumers

    def start(self) -> None:
        started = self.recording.started if self.recording else None
        stage = self.recording.ledger if self.recording else None
        self._sampler = Sampler(self._sources, self._interval, self._consumers, started=started, stage=stage)
        self._sampler.start()
        if self._node:
            self._node.start()

    def stop(self) -> None:
        if self._sampler:
            self._sampler.stop()
        if self._node:
            self._node.stop()
        if self._exporter:
            self._exporter.close()

    def send_rest(self) -> None:
        """Send to servers what is left, for a few seconds; after the end of the run has been written."""
        if self._pushing:
            self._pushing.stop()


def end_lines(recording: Recording) -> list[str]:
    """The short report at the end of a run. It reads the run's files; if that fails, the run itself went well."""
    from pulsetrain.insight.report import make_report
    from pulsetrain.views.summary import summary_lines
    from pulsetrain.views.text import Style

    try:
        return summary_lines(make_report(recording.folder), Style(sys.stderr))
    except Exception as error:  # noqa: BLE001 - the command's exit code matters more than our report
        logs.log.debug("the report failed", exc_info=error)
        return [f"recorded in {recording.folder.path}, but the report of it failed: {error}"]


def warn_of_broken(opened: Opened) -> None:
    """Say what the machine has and we cannot use. What it simply does not have is no news."""
    for error in opened.unavailable.values():
        if error.broken:
            logs.log.warning("%s", error)


def why_no_gpu(opened: Opened) -> str:
    """The lines of a table without GPUs."""
    broken = [str(error) for error in opened.unavailable.values() if error.broken]
    return "\n".join(broken) or "none found (pulsetrain doctor tells more)"


def _carbon(folder: RunFolder, account: Account, start: datetime) -> "Recorder | None":
    """The carbon intensities of the run, looked up beside it."""
    if not account.carbon_region:
        return None
    from pulsetrain import intensity

    recorder = intensity.Recorder(folder.path, intensity.find(account.carbon_region), start)
    recorder.start()
    return recorder


def _ledger(account: Account, carbon: "Recorder | None") -> "Ledger":
    from pulsetrain.insight.ledger import Ledger
    from pulsetrain.insight.prices import load_prices, parse_price

    price = parse_price(account.price, load_prices()) if account.price else None
    return Ledger(price=price, pue=account.pue or 1.0, record=lambda: carbon.record if carbon else None)


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

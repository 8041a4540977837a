"""The digest of a run: what lists and fleet reports need of it, kept as one small file at its end.

A list of thousands of runs reads these and no series. A run in progress has none, and one that died gets its digest
when somebody asks for it.
"""

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.regular_files import read_description
from pulsetrain.runs.folder import Run, RunFolder, write_json
from pulsetrain.untrusted import showable_json

if TYPE_CHECKING:
    from pulsetrain.insight.report import Report

DIGEST_JSON = "digest.json"


class HostUse(msgspec.Struct, kw_only=True):
    """What a run held and used on one host."""

    gpus: int
    """Those that it is charged for."""
    gpu_seconds: float
    gpu_idle_seconds: float | None = None
    """Held and idle; None where no utilization is known."""
    joules: float | None = None
    """Of all charged devices, times PUE."""


class RunDigest(msgspec.Struct, kw_only=True):
    """A run in few figures. What was never seen is None."""

    size_bytes: int = 0
    steps: int = 0
    loss: float | None = None
    """The last one."""
    loss_best: float | None = None
    loss_shape: list[float] = []
    """Its course in few values, each a mean."""
    step_seconds: float | None = None
    """The median."""
    logged: dict[str, float] = {}
    """The last value of each name of the program's own."""
    best: dict[str, float] = {}
    """The best value, where the name tells whether lower or higher is better."""
    utilization_percent: float | None = None
    """Mean over the GPUs."""
    joules: float | None = None
    grams: float | None = None
    cost: float | None = None
    currency: str = ""
    goodput: float | None = None
    verdict: str = ""
    """The headline."""
    finding: str = ""
    """The rule of the main finding."""
    hosts: dict[str, HostUse] = {}


def digest_of(report: "Report", size_bytes: int) -> RunDigest:
    """The digest of a run with this report."""
    summary, training = report.summary, report.summary.training
    busy = [gpu.utilization_percent_mean for gpu in summary.gpus if gpu.utilization_percent_mean is not None]
    return RunDigest(
        size_bytes=size_bytes,
        steps=training.steps if training else 0,
        loss=training.loss_last if training else None,
        loss_best=report.loss.best if report.loss else None,
        loss_shape=report.loss.shape if report.loss else [],
        step_seconds=training.step_seconds_p50 if training else None,
        logged={metric.name: metric.last for metric in report.own_metrics},
        best={metric.name: metric.best for metric in report.own_metrics if metric.best is not None},
        utilization_percent=sum(busy) / len(busy) if busy else None,
        joules=report.energy.total.joules if report.energy.total else None,
        grams=report.carbon.grams if report.carbon else None,
        cost=report.cost.amount if report.cost else None,
        currency=report.cost.currency if report.cost else "",
        goodput=report.ledger.goodput if report.ledger else None,
        verdict=report.verdict.headline if report.verdict else "",
        finding=report.verdict.main.rule if report.verdict and report.verdict.main else "",
        hosts={host: _use(report, host) for host in sorted(report.run.hosts)},
    )


def load_digest(folder: RunFolder, run: Run) -> RunDigest | None:
    """None while a run is in progress, and where there is none that can be read."""
    if run.status == "running":
        return None
    file = folder.path / DIGEST_JSON
    try:
        made = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        if len(run.hosts) > 1 and made < folder.last_moved():
            return None  # another host has written since
        return showable_json(read_description(file), RunDigest)
    except (OSError, msgspec.MsgspecError):
        return None


def keep_digest(folder: RunFolder, report: "Report") -> RunDigest:
    """Make the digest of a run, and keep it if that has ended and the folder is ours to write."""
    digest = digest_of(report, folder.size_bytes())
    if report.run.status != "running":
        with contextlib.suppress(OSError):
            write_json(folder.path / DIGEST_JSON, digest)
    return digest


def whole_digest(folder: RunFolder, run: Run) -> RunDigest | None:
    """The digest of any run, made now if there is none; None for a run that cannot be read."""
    from pulsetrain.insight.report import make_report

    try:
        return load_digest(folder, run) or keep_digest(folder, make_report(folder))
    except PulsetrainError:
        return None


def _use(report: "Report", host: str) -> HostUse:
    devices = [device for device in report.energy.devices if device.host == host and device.charged]
    boards = {device.gpu_index for device in devices if device.device == "gpu"}
    gpus = [gpu for gpu in report.summary.gpus if gpu.host == host and gpu.gpu_index in boards]
    idle = [gpu.idle_share for gpu in gpus if gpu.idle_share is not None]
    joules = [device.total.joules for device in devices if device.total]
    return HostUse(
        gpus=len(gpus),
        gpu_seconds=len(gpus) * report.seconds,
        gpu_idle_seconds=sum(idle) * report.seconds if idle else None,
        joules=report.energy.pue * sum(joules) if joules else None,
    )

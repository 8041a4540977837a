"""What watching itself costs, measured on an idle machine: stretches with and without it, in turn."""

import os
import statistics
import threading
import time
from dataclasses import dataclass, field

import msgspec
import psutil

from pulsetrain.snapshot import Sample, Snapshot
from pulsetrain.sources import Source
from pulsetrain.sources.opening import open_sources
from pulsetrain.watching.options import WatchOptions
from pulsetrain.watching.recording import claim_run
from pulsetrain.watching.session import Session

PAIRS = 3
"""Stretches of each kind: what drifts slowly meets both alike."""


class GpuPower(msgspec.Struct, frozen=True, kw_only=True):
    """The mean power of a GPU, by its own energy counter, while it was watched and while it was not."""

    gpu_index: int
    name: str
    simulated: bool
    watched_watts: float
    unwatched_watts: float
    spread_watts: float
    """How far stretches of one kind lie apart: a smaller difference means nothing."""


class OwnCost(msgspec.Struct, frozen=True, kw_only=True):
    """What pulsetrain used while it watched."""

    seconds: float
    """Of watching."""
    cpu_seconds: float
    memory_bytes: int
    gpus: list[GpuPower]
    gpus_without_counter: int
    others_cpu_ratio: float | None
    """How busy the machine was meanwhile: should be near 0."""

    @property
    def cpu_ratio(self) -> float:
        """Of one core."""
        return self.cpu_seconds / self.seconds


@dataclass
class _Stretches:
    """The GPUs' energy over stretches of one kind, and our own CPU time."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    watts: dict[str, list[float]] = field(default_factory=dict)


def measure_own_cost(options: WatchOptions, seconds: float, stop: threading.Event) -> OwnCost:
    """Watch for half of the time, and do nothing in the other half. Ends early when `stop` is set."""
    _watch(options, 0.0, stop, [])  # what is imported and set up once is not part of watching
    opened = open_sources(options.sources)
    watched, unwatched = _Stretches(), _Stretches()
    ratios: list[float] = []
    try:
        for _ in range(PAIRS):
            with _Stretch(unwatched, opened.sources):
                stop.wait(seconds / (2 * PAIRS))
            with _Stretch(watched, opened.sources):
                _watch(options, seconds / (2 * PAIRS), stop, ratios)
            if stop.is_set():
                break
        boards = _gpu_samples(opened.sources)
    finally:
        opened.close()
    counted = [gpu for gpu in boards if gpu.subject.key in watched.watts]
    return OwnCost(
        seconds=watched.seconds,
        cpu_seconds=watched.cpu_seconds,
        memory_bytes=psutil.Process().memory_info().rss,
        gpus=[_power(gpu, watched.watts[gpu.subject.key], unwatched.watts[gpu.subject.key]) for gpu in counted],
        gpus_without_counter=len(boards) - len(counted),
        others_cpu_ratio=statistics.mean(ratios) if ratios else None,
    )


class _Stretch:
    """One stretch of time, in a `with` statement."""

    def __init__(self, kind: _Stretches, sources: "tuple[Source, ...]") -> None:
        self._kind = kind
        self._sources = sources

    def __enter__(self) -> None:
        self._joules = _joules(self._sources)
        self._cpu, self._began = _cpu_seconds(), time.monotonic()

    def __exit__(self, *error: object) -> None:
        took = time.monotonic() - self._began
        self._kind.seconds += took
        self._kind.cpu_seconds += _cpu_seconds() - self._cpu
        for key, joules in _joules(self._sources).items():
            if key in self._joules and took > 0:
                self._kind.watts.setdefault(key, []).append((joules - self._joules[key]) / took)


def _watch(options: WatchOptions, seconds: float, stop: threading.Event, ratios: list[float]) -> None:
    """Watch and record as always, for so long."""

    def note(snapshot: Snapshot) -> None:
        found = (sample.values.get("cpu_ratio") for sample in snapshot.samples)
        ratios.extend(ratio for ratio in found if isinstance(ratio, int | float))

    session = Session(options)
    claim = claim_run(options)
    session.open(claim)
    session.add(note)
    session.start()
    stop.wait(seconds)
    session.stop()
    session.finish()
    claim.folder.remove()


def _gpu_samples(sources: "tuple[Source, ...]") -> list[Sample]:
    found = [item for source in sources for item in source.read() if isinstance(item, Sample)]
    return [sample for sample in found if sample.subject.table == "gpu" and "up" in sample.values]


def _joules(sources: "tuple[Source, ...]") -> dict[str, float]:
    """The energy counter of each GPU that has one."""
    return {
        sample.subject.key: float(joules)
        for sample in _gpu_samples(sources)
        if isinstance(joules := sample.values.get("energy_joules"), int | float)
    }


def _power(gpu: Sample, watched: list[float], unwatched: list[float]) -> GpuPower:
    spread = max(max(kind) - min(kind) for kind in (watched, unwatched))
    return GpuPower(
        gpu_index=int(gpu.subject.labels.get("gpu_index") or 0),
        name=str(gpu.subject.labels.get("name") or ""),
        simulated=bool(gpu.subject.labels.get("simulated")),
        watched_watts=statistics.mean(watched),
        unwatched_watts=statistics.mean(unwatched),
        spread_watts=spread,
    )


def _cpu_seconds() -> float:
    """Of this process and those that it has started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system

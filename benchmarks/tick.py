"""CPU time of one tick of eight H100 whose driver costs nothing: what is left is the cost of the watcher itself."""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.nvml.scenario import Scenario

from benchmarks import peers
from benchmarks.processes import Machine, here, in_rounds, spread
from benchmarks.results import Limit, Report, Result, beside
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Sampler, SamplerClock, _Reading
from pulsetrain.sources.nvidia.library import Library
from pulsetrain.sources.nvidia.tick import Nvidia

OURS, THREADED, C = "pulsetrain", "pulsetrain, with its threads", "C loop"
TICKS = {
    OURS: 1000,
    THREADED: 1000,
    C: 20_000,
    "nvidia-ml-py": 1000,
    "nvidia-ml-py, no fan": 1000,
    "nvitop": 50,
    "gpustat": 1,
}
"""Enough for about a tenth of a second."""
BLOCKS = 5
"""A process measures so many times and tells the cheapest: others share the machine."""


def run(machine: Machine, quick: bool) -> Report:
    environment = machine.environment(Scenario().gpus(8, "H100").pcie_latency(0))
    contestants, notes = here(TICKS, peers.MODULES)
    cpu = in_rounds(
        contestants,
        3 if quick else 9,
        lambda name: float(machine.ask("benchmarks.tick", name, environment=environment)),
        needed=(OURS, THREADED),
    )
    best = {name: min(rounds) * 1e6 for name, rounds in cpu.figures.items()}
    others = {name: figure for name, figure in best.items() if name not in (OURS, THREADED)}
    plain = Limit(1.0, "ratio")
    targets = {"nvidia-ml-py": plain, "nvidia-ml-py, no fan": plain, "nvitop": Limit(0.05, "ratio")}
    ours = Result("tick", "CPU of 8 GPUs, written to disk", best[OURS], "us", spread=spread(cpu.figures[OURS]))
    handed_over = "the same, with the hand-over between threads"
    threaded = Result("tick", handed_over, best[THREADED], "us", spread=spread(cpu.figures[THREADED]))
    loop = {name: figure for name, figure in others.items() if name == "nvidia-ml-py"}
    return Report([*beside(ours, others, cpu.failed, targets), *beside(threaded, loop, {})], notes)


def _cheapest(tick: Callable[[], object], ticks: int) -> float:
    tick()
    return min(_cpu_of(tick, ticks) for _ in range(BLOCKS))


def _cpu_of(tick: Callable[[], object], ticks: int) -> float:
    begin = time.process_time()
    for _ in range(ticks):
        tick()
    return (time.process_time() - begin) / ticks


def _pulsetrain(folder: Path) -> float:
    """Reading, snapshot and writing as the sampler does it, in one thread; the writer's own thread counts too."""
    source = Nvidia(Library("all"))
    sampler = Sampler([source], 1.0)
    (reader,) = sampler._readers
    writer = Writer(folder, datetime.now(UTC))

    def tick() -> None:
        now = sampler._now()
        reading = _Reading(reader, now, tuple(source.read()), None, 0.0)
        sampler._note_reading(reading)
        writer(sampler._snapshot(now, [reading]))

    return _cheapest(tick, TICKS[OURS])


class _Unhurried(SamplerClock):
    """A clock that does not make anybody wait."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self._now += seconds
        return False


def _pulsetrain_with_threads(folder: Path) -> float:
    """The sampler itself, tick after tick."""
    ticks = TICKS[THREADED]
    cpu_at: list[float] = []
    writer = Writer(folder, datetime.now(UTC))
    sampler = Sampler(
        [Nvidia(Library("all"))], 1.0, [writer, lambda _: cpu_at.append(time.process_time())], _Unhurried()
    )
    sampler.run(1 + BLOCKS * ticks)
    return min((cpu_at[n + ticks] - cpu_at[n]) / ticks for n in range(0, BLOCKS * ticks, ticks))


def main(name: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        if name == OURS:
            return _pulsetrain(Path(folder))
        if name == THREADED:
            return _pulsetrain_with_threads(Path(folder))
    if name == C:
        return _cheapest(lambda: peers.c_loop(TICKS[C]), 1) / TICKS[C]
    return _cheapest(peers.PYTHON[name](), TICKS[name])


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))

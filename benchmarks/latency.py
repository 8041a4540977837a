"""Wall time of one tick's reading of eight H100 whose driver takes 50 us for a call, and 20 ms for PCIe throughput."""

import json
import sys
import time

from tests.nvml.scenario import Scenario

from benchmarks import peers
from benchmarks.processes import Machine, here, in_rounds, spread
from benchmarks.results import Limit, Report, Result, beside
from pulsetrain.sampler import Sampler
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources import Options
from pulsetrain.sources.nvidia import open_sources

OURS, C = "pulsetrain", "C loop"
READINGS = {OURS: 60, C: 50, "nvidia-ml-py": 50, "nvitop": 3}
INTERVAL_SECONDS = 0.2


def run(machine: Machine, quick: bool) -> Report:
    environment = machine.environment(Scenario().gpus(8, "H100").latency(50).pcie_latency(20))
    contestants, notes = here(READINGS, peers.MODULES)
    wall = in_rounds(
        contestants,
        2 if quick else 7,
        lambda name: float(machine.ask("benchmarks.latency", name, environment=environment)),
        needed=(OURS,),
    )
    quickest = {name: min(rounds) * 1e3 for name, rounds in wall.figures.items()}
    ours = Result("latency", "wall time of reading 8 GPUs", quickest.pop(OURS), "ms", spread=spread(wall.figures[OURS]))
    return Report(beside(ours, quickest, wall.failed, {C: Limit(1.1, "ratio")}), notes)


def _pulsetrain() -> float:
    """As in use: all NVIDIA sources in their threads, the slow ones too. What counts is what the tick waits for."""
    seconds: list[float] = []

    def note(snapshot: Snapshot) -> None:
        for sample in snapshot.samples:
            taken = sample.values.get("source_read_seconds")
            if isinstance(taken, dict) and "nvidia" in taken:
                seconds.append(taken["nvidia"])

    sampler = Sampler(open_sources(Options(gpus="all")), INTERVAL_SECONDS, [note])
    sampler.run(READINGS[OURS])
    return min(seconds)


def _timed(read: peers.Read, readings: int) -> float:
    read()
    seconds = []
    for _ in range(readings):
        begin = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main(name: str) -> float:
    """The quickest of many readings: others share the machine, and take the processor away at times."""
    if name == OURS:
        return _pulsetrain()
    if name == C:
        return min(peers.c_loop(1) for _ in range(READINGS[C]))
    return _timed(peers.PYTHON[name](), READINGS[name])


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))

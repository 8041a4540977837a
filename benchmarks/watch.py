"""What watching costs while it runs: `pulsetrain watch` on eight H100 and the host, and peers at the same time."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.nvml.scenario import Scenario

from benchmarks import peers
from benchmarks.processes import ROOT, Failed, Machine, cpu_seconds, end, here, memory_kb, spread
from benchmarks.results import Limit, Report, Result, beside

WATCH = (sys.executable, "-m", "pulsetrain", "watch", "--quiet")
OURS = {
    "watch": (*WATCH, "--interval", "1"),
    "watch --record": (*WATCH, "--interval", "1", "--record", "--dir", "1hz"),
    "watch --record at 10 Hz": (*WATCH, "--interval", "0.1", "--record", "--dir", "10hz"),
}
PEERS = {name: (sys.executable, "-m", "benchmarks.peers", name) for name in peers.BACKGROUND}
STARTUP_SECONDS = 5
WINDOW_SECONDS = 10
"""A whole number of every cadence of ours, so that each window holds the same work."""
CPU_PERCENT = {"watch": 0.2, "watch --record": 0.2, "watch --record at 10 Hz": 1.5}


class Seen(NamedTuple):
    """What the kernel says of one process."""

    cpu_percent: list[float]
    """Of one core, in each window."""
    pss_mb: float
    rss_mb: float


def run(machine: Machine, quick: bool) -> Report:
    contestants, notes = here({**OURS, **PEERS}, peers.MODULES)
    commands = {name: {**OURS, **PEERS}[name] for name in contestants}
    seen, failed = _watch(commands, machine, windows=1 if quick else 6)
    results: list[Result] = []
    for name, most in CPU_PERCENT.items():
        # Peers read once a second too, and keep nothing.
        others = [peer for peer in seen if peer in peers.MODULES] if name == "watch --record" else []
        cpu, pss, rss = seen[name]
        ours = Result("watch", f"CPU of {name}", min(cpu), "% of a core", target=Limit(most), spread=spread(cpu))
        memory = Result("watch", f"PSS of {name}", pss, "MB", target=Limit(35))
        cheapest = {peer: min(seen[peer].cpu_percent) for peer in others}
        results += [ours, *beside(ours, cheapest, failed if others else {})]
        results += [memory, *beside(memory, {peer: seen[peer].pss_mb for peer in others}, {})]
        alone = f"RSS of {name}: PSS if nobody shared its libraries"
        results.append(Result("watch", alone, rss, "MB", target=Limit(35)))
    return Report([*results, *_jitter(machine.folder)], notes)


def _watch(
    commands: Mapping[str, Sequence[str]], machine: Machine, windows: int
) -> tuple[dict[str, Seen], dict[str, str]]:
    """What was seen of each, and why the others have no figures: they ended too soon."""
    environment = machine.environment(Scenario().gpus(8, "H100").pcie_latency(20)) | {"PYTHONPATH": str(ROOT)}
    processes = {
        name: subprocess.Popen(command, cwd=machine.folder, env=environment) for name, command in commands.items()
    }
    try:
        time.sleep(STARTUP_SECONDS)
        marks = [_cpu(processes)]
        for _ in range(windows):
            time.sleep(WINDOW_SECONDS)
            marks.append(_cpu(processes))
        codes = {name: process.poll() for name, process in processes.items()}
        failed = {name: f"it ended, with code {code}" for name, code in codes.items() if code is not None}
        if of_ours := failed.keys() & OURS.keys():
            raise Failed(f"{', '.join(of_ours)} ended too soon")
        memory = {name: memory_kb(process.pid) for name, process in processes.items() if name not in failed}
    finally:
        end(list(processes.values()))
    seen = {name: Seen(_percent(name, marks), kb["Pss"] / 1024, kb["Rss"] / 1024) for name, kb in memory.items()}
    return seen, failed


def _cpu(processes: dict[str, "subprocess.Popen[bytes]"]) -> dict[str, tuple[float, float]]:
    """For each process, when we looked, and the CPU seconds it had used by then."""
    return {name: (time.monotonic(), cpu_seconds(process.pid)) for name, process in processes.items()}


def _percent(name: str, marks: Sequence[Mapping[str, tuple[float, float]]]) -> list[float]:
    """CPU of one process between these looks."""
    return [
        100 * (after[name][1] - before[name][1]) / (after[name][0] - before[name][0])
        for before, after in pairwise(marks)
    ]


def _jitter(folder: Path) -> Iterator[Result]:
    (recorded,) = (folder / "10hz").glob("*/*/gpu_metrics_*.jsonl")
    ours = sorted({json.loads(line)["elapsed_seconds"] for line in recorded.read_text().splitlines()})
    bare = [float(line) for line in (folder / "sleep.txt").read_text().split()]
    for name, share, limit in (("99th percentile", 0.99, Limit(5)), ("median", 0.5, None)):
        late, least = _lateness_ms(ours, share), _lateness_ms(bare, share)
        yield Result("watch", f"jitter at 10 Hz, {name}", late, "ms", "time.sleep", least, limit)
    places = {round(seconds * 10) for seconds in ours}
    missed = max(places) - min(places) + 1 - len(places)
    yield Result("watch", f"ticks missed at 10 Hz, of {len(places) + missed}", missed, "")


def _lateness_ms(times: Sequence[float], share: float) -> float:
    """How far such a share of the ticks lies at most from their places on the grid of 0.1 s."""
    late = sorted(abs(seconds - round(seconds * 10) / 10) * 1000 for seconds in times)
    return late[int(share * len(late))]

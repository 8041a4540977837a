"""Memory over a simulated week: a tick a second of eight GPUs, written, added up and shown, must not make it grow."""

import json
import os
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.nvml.scenario import Scenario

from benchmarks.processes import Machine, memory_kb
from benchmarks.results import Limit, Report, Result
from pulsetrain.live import Live
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Sampler, SamplerClock
from pulsetrain.snapshot import Snapshot
from pulsetrain.sources.simulated import Simulated

TICKS, QUICK_TICKS = 604_800, 20_000
MOST_SECONDS = 5400.0


def run(machine: Machine, quick: bool) -> Report:
    ticks = QUICK_TICKS if quick else TICKS
    environment = machine.environment(Scenario())
    marks = machine.ask("benchmarks.week", str(ticks), environment=environment, most_seconds=MOST_SECONDS)
    early, late = marks[0]["rss_mb"], marks[-1]["rss_mb"]
    results = [
        Result("week", f"memory after {ticks:,} ticks", late, "MB", "after a tenth of them", early),
        Result("week", "growth since then", late - early, "MB", target=Limit(max(1.0, 0.02 * early))),
        Result("week", "samples lost", marks[-1]["lost_samples"], "", target=Limit(0)),
    ]
    return Report(results)


class _Week(SamplerClock):
    """A clock that jumps to the next tick when asked to wait for it."""

    def __init__(self) -> None:
        self._start = time.time()
        self._elapsed = 0.0

    def time(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self._elapsed += seconds
        return stop.is_set()


class _Marks:
    """A consumer that notes our memory ten times, and deletes the files that are full, or the disk would be."""

    def __init__(self, ticks: int, folder: Path, writer: Writer) -> None:
        self._every = ticks // 10
        self._folder = folder
        self._writer = writer
        self._ticks = 0
        self.marks: list[dict[str, float]] = []

    def __call__(self, snapshot: Snapshot) -> None:
        self._ticks += 1
        if self._ticks % 2 == 0:
            self._writer.flush()  # which has two seconds in a real week, and here would fall behind
        if self._ticks % 1000 == 0:
            self._delete_full()
        if self._ticks % self._every == 0:
            # Not PSS: that falls and rises as other programs with the same libraries come and go.
            resident = memory_kb(os.getpid())["Rss"] / 1024
            self.marks.append({"rss_mb": resident, "lost_samples": self._writer.lost_samples})

    def _delete_full(self) -> None:
        for pattern in ("gpu_metrics_*", "host_metrics_*"):
            files = sorted(self._folder.glob(pattern), key=lambda file: file.stat().st_mtime)
            for file in files[:-1]:
                file.unlink()


def main(ticks: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = Writer(folder, datetime.now(UTC))
        clock = _Week()
        marks = _Marks(ticks, folder, writer)
        source = Simulated("8xH100", clock=clock.monotonic)
        Sampler([source], 1.0, [writer, Live(), marks], clock).run(ticks)
        writer.close()
    return marks.marks


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))

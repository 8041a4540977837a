"""A benchmark while it runs: GPUs in the older tool's table, what was used so far, and the latest output below."""

import contextlib
import shutil
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

from pulsetrain.bench.repeat import RepeatInProgress
from pulsetrain.bench.series import Series
from pulsetrain.live import Live, SubjectState
from pulsetrain.snapshot import Snapshot
from pulsetrain.units import JOULES_PER_KWH, MIB
from pulsetrain.views.printers import DrawnOver
from pulsetrain.views.text import ABSENT, Style, duration, energy, grams, grid, number

DRAW_SECONDS = 0.2
"""Progress bars should move."""
END_SECONDS = 2.0
"""A terminal that takes nothing is not waited for any longer."""
LEAST_OUTPUT_LINES = 3
GPU_HEAD = ("GPU", "Util. (%)", "Power (W) / Max", "Temp. (C)", "Memory (MiB) / Total")
"""Short words: all of it should fit into 100 columns."""


class BenchScreen:
    """Draws itself by a thread of its own: neither the sampler nor the benchmark waits for the terminal."""

    def __init__(self, stream: TextIO, series: Series, *, with_output: bool = True) -> None:
        self._stream = stream
        self._series = series
        self._with_output = with_output
        self._style = Style(stream)
        self._drawing = DrawnOver()
        self._lock = threading.Lock()
        self._live = Live()
        self._first_joules: dict[str, float] = {}
        self._progress: RepeatInProgress | None = None
        self._ended: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self._thread.start()

    def __call__(self, snapshot: Snapshot) -> None:
        """Take a snapshot of the run."""
        with self._lock:
            self._live(snapshot)
            if snapshot.last:
                self._ended = time.monotonic()
            for gpu in self._live.table("gpu"):
                if (joules := gpu.number("energy_joules")) is not None:
                    self._first_joules.setdefault(gpu.subject.key, joules)

    def began(self, progress: RepeatInProgress) -> None:
        """Another run begins."""
        with self._lock:
            self._live, self._first_joules, self._progress, self._ended = Live(), {}, progress, None

    def close(self) -> None:
        """Take the drawing away."""
        self._over.set()
        self._thread.join(END_SECONDS)
        if not self._thread.is_alive():
            self._write(self._drawing.text([]))

    def lines(self) -> list[str]:
        """What is to be seen now."""
        with self._lock:
            progress = self._progress
            if progress is None:
                return []
            lines = [self._headline(progress), *self._gpus(), *self._used(), *self._host()]
        if self._with_output:
            size = shutil.get_terminal_size()
            room = max(LEAST_OUTPUT_LINES, size.lines - len(lines) - 3)
            shown = progress.output.latest(room)
            lines += [
                self._style("-" * min(size.columns, 80), "dim"),
                *(shown or [self._style("no output yet", "dim")]),
            ]
        return lines

    def _headline(self, progress: RepeatInProgress) -> str:
        turn, running = progress.turn, (self._ended or time.monotonic()) - progress.started
        of = turn.benchmark.warm_up if turn.warm_up else turn.benchmark.repeat
        parts = [
            self._style(turn.benchmark.name, "bold"),
            f"{'warm-up' if turn.warm_up else 'run'} {turn.number} of {of}",
            f"{duration(running)} elapsed",
        ]
        left = self._series.remaining_seconds(running)
        if self._series.total > 1 and left is not None:
            parts.append(f"about {duration(left)} left in total")
        return "  ".join(parts)

    def _gpus(self) -> list[str]:
        gpus = list(self._live.table("gpu"))
        if not gpus:
            return []
        moment = datetime.fromtimestamp(self._live.time, UTC)
        title = f"Current GPU Metrics as of {moment:%Y-%m-%d %H:%M:%S} UTC"
        table = grid(GPU_HEAD, [_gpu_row(gpu) for gpu in gpus]).splitlines()
        if len(table) > shutil.get_terminal_size().lines / 2:  # the output below should be seen too
            table = [line for place, line in enumerate(table) if place in (0, len(table) - 1) or line[1] != "-"]
        return ["", title, *table]

    def _used(self) -> list[str]:
        """Power now; energy and carbon so far. The account comes every few seconds, counters with each reading."""
        gpus = list(self._live.table("gpu"))
        watts = [value for gpu in gpus if (value := gpu.number("power_draw_watts")) is not None]
        account = next(self._live.table("account"), None)
        joules = self._joules(gpus, account)
        parts = [f"power {number(sum(watts), 'W')}"] if watts else []
        if joules is not None:
            parts.append(f"energy {energy(joules)}")
        if account:
            if (emitted := account.number("carbon_grams")) is not None:
                parts.append(f"carbon {grams(emitted)}")
            elif joules is not None and (intensity := account.number("carbon_grams_per_kwh")) is not None:
                parts.append(f"carbon {grams(joules / JOULES_PER_KWH * intensity)}")
        return ["so far: " + "  ".join(parts)] if parts else []

    def _joules(self, gpus: Sequence[SubjectState], account: SubjectState | None) -> float | None:
        counted = [
            value - self._first_joules.get(gpu.subject.key, value)
            for gpu in gpus
            if (value := gpu.number("energy_joules")) is not None
        ]
        told = account.values.get("energy_joules") if account else None
        accounted = sum(told.values()) if isinstance(told, dict) else None
        if counted and (accounted is None or sum(counted) > accounted):
            return sum(counted)
        return accounted

    def _host(self) -> list[str]:
        host = self._live.host
        cores, memory = host.number("job_cpu_cores"), host.number("job_memory_bytes")
        if cores is None and memory is None:
            return []
        mebibytes = None if memory is None else memory / MIB
        return [f"it uses {number(cores, 'cores', 1)}, {number(mebibytes, 'MiB')} of memory"]

    def _run(self) -> None:
        while not self._over.wait(DRAW_SECONDS):
            if lines := self.lines():
                self._write(self._drawing.text(lines))

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal has gone; results are kept all the same
            self._stream.write(text)
            self._stream.flush()


def _gpu_row(gpu: SubjectState) -> tuple[str, ...]:
    index, name = gpu.subject.labels.get("gpu_index"), str(gpu.subject.labels.get("name")).removeprefix("NVIDIA ")
    if gpu.number("up") == 0:
        return (f"{index}: {name}", "lost", ABSENT, ABSENT, ABSENT)
    limit = gpu.number("power_limit_watts")
    return (
        f"{index}: {name}",
        number(gpu.number("utilization_percent")),
        f"{number(gpu.number('power_draw_watts'), digits=1)} / {number(limit)}",
        number(gpu.number("temperature_celsius")),
        f"{number(gpu.number('memory_used_mb'))} / {number(gpu.number('memory_total_mb'))}",
    )

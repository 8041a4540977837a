"""Writes scenarios for the simulated NVML; README.md says what each line does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NewType, Self

Gpu = int | Literal["*"]
Board = Literal["H100", "A100", "L4", "RTX4090", "T4", "V100", "P100", "GB10"]
Percent = Literal["util", "memory_util", "tensor", "encoder", "decoder", "fan"]
Celsius = Literal["temperature", "memory_temperature"]
Traffic = Literal["pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"]
Signal = Literal["power", "memory", "sm_clock", "mem_clock"] | Percent | Celsius | Traffic
Curve = NewType("Curve", str)

TRAINING = Curve("training")


def constant(value: float) -> Curve:
    return Curve(f"constant {value}")


def square(low: float, high: float, period_s: float, phase_s: float = 0) -> Curve:
    return Curve(f"square {low} {high} {period_s} {phase_s}")


def pulse(low: float, high: float, period_s: float, width_s: float, phase_s: float = 0) -> Curve:
    """High for the first `width_s` of each period."""
    return Curve(f"pulse {low} {high} {period_s} {width_s} {phase_s}")


def ramp(start: float, end: float, period_s: float, phase_s: float = 0) -> Curve:
    return Curve(f"ramp {start} {end} {period_s} {phase_s}")


def steps(*points: tuple[float, float]) -> Curve:
    """Values that hold from their second on; the first second is 0 and the last value stays."""
    return Curve("steps " + " ".join(f"{second} {value}" for second, value in points))


def training(phase_s: float) -> Curve:
    """Two steps a second, as TRAINING has them, so many seconds further on."""
    return Curve(f"{TRAINING} {phase_s}")


class Scenario:
    """Lines of a scenario, in order: `Scenario().gpus(8, "H100").lost(1, 3, 6).write(path)`.

    Times are seconds since the library was first initialized; an end of None never comes.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def write(self, path: Path) -> Path:
        path.write_text(str(self))
        return path

    def environment(self, library: Path, scenario: Path) -> dict[str, str]:
        """Variables for a process that is to load the library in folder `library`; writes `scenario`."""
        return {"LD_LIBRARY_PATH": str(library), "PULSETRAIN_TEST_NVML": str(self.write(scenario))}

    def line(self, *words: object) -> Self:
        """Any line; words that are None are left out with all that follow."""
        texts = [None if word is None else str(word) for word in words]
        end = texts.index(None) if None in texts else len(texts)
        self.lines.append(" ".join(str(text) for text in texts[:end]))
        return self

    # The machine

    def gpus(self, count: int, board: Board) -> Self:
        return self.line("gpus", count, board)

    def host(self, number: int) -> Self:
        return self.line("host", number)

    def mig(self, gpu: Gpu, *instances: Sequence[int]) -> Self:
        """GPU instances, each given by the slices of its compute instances: `(2, 1), (2,), (1,)`."""
        return self.line("mig", gpu, *("+".join(map(str, slices)) for slices in instances))

    def curve(self, signal: Signal, gpu: Gpu, curve: Curve) -> Self:
        return self.line(signal, gpu, curve)

    def process(
        self,
        gpu: Gpu | str,
        pid: int | Literal["self", "parent"],
        mib: int | None,
        *,
        kind: Literal["compute", "graphics", "mps"] = "compute",
        sm_percent: int | None = None,
        start: float = 0,
        end: float | None = None,
    ) -> Self:
        """`gpu` may be a MIG device, `"0.1"`. Memory None is unavailable; `sm_percent` None is idle."""
        memory = "unavailable" if mib is None else mib
        sm = "-" if sm_percent is None else sm_percent
        return self.line("process", gpu, pid, memory, kind, sm, start, end)

    def process_util(self, gpu: Gpu, quality: Literal["stale", "over100"]) -> Self:
        return self.line("process_util", gpu, quality)

    # Power

    def sensor_instant(self, gpu: Gpu) -> Self:
        return self.line("sensor", gpu, "instant")

    def sensor_window(self, gpu: Gpu, window_ms: float, update_ms: float) -> Self:
        return self.line("sensor", gpu, "window", window_ms, update_ms)

    def sensor_mean(self, gpu: Gpu, window_ms: float, update_ms: float = 100) -> Self:
        return self.line("sensor", gpu, "mean", window_ms, update_ms)

    def sensor_error(self, gpu: Gpu, percent: float) -> Self:
        return self.line("sensor_error", gpu, percent)

    def counter(self, gpu: Gpu, state: Literal["frozen", "none"]) -> Self:
        return self.line("counter", gpu, state)

    def counter_reset(self, gpu: Gpu, second: float) -> Self:
        return self.line("counter", gpu, "reset", second)

    def counter_update(self, gpu: Gpu, update_ms: float) -> Self:
        return self.line("counter", gpu, "update", update_ms)

    # Trouble

    def latency(self, microseconds: float) -> Self:
        return self.line("latency_us", microseconds)

    def pcie_latency(self, milliseconds: float) -> Self:
        return self.line("pcie_latency_ms", milliseconds)

    def slow(self, gpu: Gpu, function: str, ms: float, start: float = 0, end: float | None = None) -> Self:
        return self.line("slow", gpu, function, ms, start, end)

    def unsupported(self, gpu: Gpu, what: str | int) -> Self:
        """`what` is a function, a part of function names, or the number of a field."""
        return self.line("unsupported", gpu, _subject(what))

    def fail(self, gpu: Gpu, what: str | int, code: int, start: float = 0, end: float | None = None) -> Self:
        return self.line("fail", gpu, _subject(what), code, start, end)

    def init_error(self, code: int, start: float = 0, end: float | None = None) -> Self:
        return self.line("init_error", code, start, end)

    def lost(self, gpu: Gpu, start: float = 0, end: float | None = None) -> Self:
        return self.line("lost", gpu, start, end)

    def lost_while(self, gpu: Gpu, file: Path) -> Self:
        """Lost for as long as the file is there."""
        return self.line("lost", gpu, "while", file)

    def lost_error(self, code: int) -> Self:
        return self.line("lost_error", code)

    def lost_needs_reinit(self) -> Self:
        return self.line("lost_needs_reinit", 1)

    def race(self, gpu: Gpu, times: int = 1) -> Self:
        return self.line("race", gpu, times)

    def gpm(self, gpu: Gpu, supported: bool) -> Self:
        return self.line("gpm", gpu, int(supported))

    def xid(self, gpu: int, xid: int, second: float) -> Self:
        return self.line("xid", gpu, xid, second)

    def reasons(self, gpu: Gpu, bits: int, start: float = 0, end: float | None = None) -> Self:
        return self.line("reasons", gpu, f"{bits:#x}", start, end)

    def ecc(self, gpu: Gpu, kind: Literal["corrected", "uncorrected"], errors: int, start: float = 0) -> Self:
        return self.line("ecc", gpu, kind, errors, start)

    def remapped(
        self, gpu: Gpu, *, correctable: int = 0, uncorrectable: int = 0, pending: bool = False, failure: bool = False
    ) -> Self:
        return self.line("remapped", gpu, correctable, uncorrectable, int(pending), int(failure))


def _subject(what: str | int) -> str:
    return f"field {what}" if isinstance(what, int) else what

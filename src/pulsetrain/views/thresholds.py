"""Where a value stops being normal: for the colours of live views. `[thresholds]` of the settings file."""

from typing import Literal

from pulsetrain.config import Limits, Thresholds
from pulsetrain.live import Live, State

Level = Literal["", "warn", "bad"]
DEFAULT = Thresholds()


def grade(value: float | None, limits: Limits) -> Level:
    """How far a value has gone. Unknown is no reason to worry."""
    if value is None or value < limits[0]:
        return ""
    return "bad" if value >= limits[1] else "warn"


def memory_percent(gpu: State) -> float | None:
    """GPU memory in use, of all installed."""
    used, total = gpu.number("memory_used_mb"), gpu.number("memory_total_mb")
    return 100 * used / total if used is not None and total else None


def host_memory_percent(host: State) -> float | None:
    used, total = host.number("memory_used_bytes"), host.number("memory_total_bytes")
    return 100 * used / total if used is not None and total else None


def crossed(live: Live, thresholds: Thresholds) -> list[str]:
    """What is wrong on a machine now, in words: lost GPUs, and values at or above their upper threshold."""
    found = []
    for gpu in live.table("gpu"):
        name = f"GPU {gpu.subject.labels['gpu_index']}"
        if gpu.number("up") == 0:
            found.append(f"{name} lost")
            continue
        heat = gpu.number("temperature_celsius")
        if grade(heat, thresholds.temperature_celsius) == "bad":
            found.append(f"{name} {heat:.0f} °C")
        memory = memory_percent(gpu)
        if grade(memory, thresholds.memory_percent) == "bad":
            found.append(f"{name} memory {memory:.0f} %")
    memory = host_memory_percent(live.host)
    if grade(memory, thresholds.host_memory_percent) == "bad":
        found.append(f"host memory {memory:.0f} %")
    return found

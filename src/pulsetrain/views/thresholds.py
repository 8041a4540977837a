"""Where a value stops being normal: the colors of live views, by the same thresholds as the rules."""

from typing import Literal, NamedTuple

from pulsetrain.live import Live, SubjectState
from pulsetrain.rules.thresholds import Thresholds

Level = Literal["", "warn", "bad"]


class Limits(NamedTuple):
    """Above the first a value deserves a look, above the second it is bad."""

    warn: float
    bad: float


def gpu_temperature(thresholds: Thresholds) -> Limits:
    """In degrees Celsius."""
    return Limits(thresholds.gpu_hot_celsius, thresholds.gpu_too_hot_celsius)


def gpu_memory(thresholds: Thresholds) -> Limits:
    """In percent of all installed."""
    return Limits(thresholds.gpu_memory_full_percent, thresholds.gpu_memory_exhausted_percent)


def host_memory(thresholds: Thresholds) -> Limits:
    """In percent of all installed."""
    return Limits(thresholds.host_memory_full_percent, 100 * (1 - thresholds.host_memory_ratio))


def grade(value: float | None, limits: Limits) -> Level:
    """How far a value has gone. An unknown value is normal."""
    if value is None:
        return ""
    return "bad" if value > limits.bad else "warn" if value > limits.warn else ""


def host_memory_percent(host: SubjectState) -> float | None:
    """Memory of a machine in use, of all installed."""
    used, total = host.number("memory_used_bytes"), host.number("memory_total_bytes")
    return 100 * used / total if used is not None and total else None


def crossed(live: Live, thresholds: Thresholds) -> list[str]:
    """What is wrong on a machine now, in words: lost GPUs, values above their upper threshold, parts that are down."""
    found = []
    for gpu in live.table("gpu"):
        name = f"GPU {gpu.subject.labels['gpu_index']}"
        if gpu.number("up") == 0:
            found.append(f"{name} lost")
            continue
        heat = gpu.number("temperature_celsius")
        if grade(heat, gpu_temperature(thresholds)) == "bad":
            found.append(f"{name} {heat:.0f} °C")
        memory = gpu.number("memory_percent")
        if grade(memory, gpu_memory(thresholds)) == "bad":
            found.append(f"{name} memory {memory:.0f} %")
    memory = host_memory_percent(live.host)
    if grade(memory, host_memory(thresholds)) == "bad":
        found.append(f"host memory {memory:.0f} %")
    return found + parts_down(live)


def parts_down(live: Live) -> list[str]:
    """The parts of pulsetrain that hang or keep failing, in words."""
    up = live.host.values.get("part_up")
    return [f"pulsetrain's {part} is down" for part, is_up in up.items() if not is_up] if isinstance(up, dict) else []

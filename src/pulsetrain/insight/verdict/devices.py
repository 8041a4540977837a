"""How the machine was used, and what it suffered: GPUs, CPUs, disks, memory."""

from collections.abc import Iterator

import numpy as np

from pulsetrain.insight.machine_series import GpuFacts, MemoryCourse
from pulsetrain.insight.verdict.case import Case, Judged, seen
from pulsetrain.rules.finding import Evidence
from pulsetrain.rules.text import time_text

MOST_OF_THE_TIME = 0.5
LEAST_COURSE, LEAST_COURSE_SECONDS, MANY_READINGS = 4, 5.0, 8
"""Readings of memory, and their time, to see whether it grows; with many, single ones may be off."""
SECONDS_PER_MONTH = 30 * 86400.0


def low_gpu_utilization(case: Case) -> Iterator[Judged]:
    busy, limit = case.gpu_busy_share, case.limits.underused_percent / 100
    if busy is not None and busy < limit and case.steps is not None and case.facts.machine.on_gpu is not False:
        yield Judged(
            (seen("gpu_busy_share", busy, "ratio", threshold=limit),),
            seconds=(1 - busy) * case.training_seconds,
        )


def idle_gpu(case: Case) -> Iterator[Judged]:
    limit = case.limits.idle_percent
    if case.gpu_busy_share is None:
        return
    idle = [gpu for gpu in case.gpus if gpu.busy_percent is not None and gpu.busy_percent <= limit]
    if idle and case.steps is not None:
        yield Judged(
            tuple(
                seen(
                    "gpu_busy_percent", gpu.busy_percent or 0.0, "percent", threshold=limit, gpu=gpu.gpu, host=gpu.host
                )
                for gpu in idle
            ),
            seconds=case.training_seconds * len(idle) / len(case.gpus),
            words={"idle": float(len(idle)), "gpus": float(len(case.gpus))},
            advice=_use_the_gpu(case) if len(idle) == len(case.gpus) else "",
        )


def _use_the_gpu(case: Case) -> str:
    return "The model runs on the CPU: move it and its batches to the GPU (.to('cuda')); nvidia-smi shows who uses it."


def cpu_bottleneck(case: Case) -> Iterator[Judged]:
    share, cores = case.facts.devices.cpu_bound_share, case.facts.machine.cpu_cores
    if share is not None and share > MOST_OF_THE_TIME and cores and case.steps is not None:
        evidence = (
            seen("bottleneck_share", share, "ratio", threshold=MOST_OF_THE_TIME),
            seen("cpu_cores", cores, "cores"),
        )
        yield Judged(evidence, seconds=share * case.training_seconds)


def io_bottleneck(case: Case) -> Iterator[Judged]:
    share = case.facts.devices.io_bound_share
    if share is not None and share > MOST_OF_THE_TIME and case.steps is not None:
        evidence = (seen("bottleneck_share", share, "ratio", threshold=MOST_OF_THE_TIME),)
        yield Judged(evidence, seconds=share * case.training_seconds)


def batch_too_small(case: Case) -> Iterator[Judged]:
    steps, limits, devices = case.steps, case.limits, case.facts.devices
    if steps is None or steps.samples_per_step is None:
        return
    passes = float(np.nanmedian(case.series.passes)) if case.series and not np.isnan(case.series.passes).all() else 1.0
    batch = steps.samples_per_step / passes
    computing = _usual_computing(case)
    if batch <= limits.tiny_batch_samples and len(computing) == 3 and sum(computing) > 0:
        share = computing[2] / sum(computing)
        if share > limits.optimizer_ratio:
            yield Judged(
                (
                    seen("batch", batch, "samples", threshold=limits.tiny_batch_samples),
                    seen("optimizer_share", share, "ratio", threshold=limits.optimizer_ratio),
                ),
                seconds=share * case.training_seconds,
                confidence="medium",
                words={
                    "per": "samples" if batch > 1 else "sample",
                    "why": f"the optimizer alone takes {100 * share:.0f} % of the compute time",
                },
                saved_share=share * case.training_seconds / case.seconds if case.seconds else None,
            )
            return
    peaks = [peak for gpu in case.gpus for peak in (gpu.busy_percent_p95, gpu.memory_percent_p95)]
    if not peaks or None in peaks or devices.cpu_percent_p95 is None or case.facts.machine.on_gpu is False:
        return
    most = max(*(peak for peak in peaks if peak is not None), devices.cpu_percent_p95)
    if most < limits.unused_percent:
        yield Judged(
            (
                seen("batch", batch, "samples"),
                seen("highest_use_percent", most, "percent", threshold=limits.unused_percent),
            ),
            severity="info",
            confidence="medium",
            words={"per": "samples", "why": f"CPU, GPU and GPU memory are all below {limits.unused_percent:.0f} %"},
        )


def _usual_computing(case: Case) -> list[float]:
    """Seconds of forward, backward and optimizer in the median step, of those that are known."""
    if case.series is None or case.steps is None:
        return []
    steady = case.series.steady
    parts = [part for part in ("forward", "backward", "optimizer") if case.steps.parts[part] is not None]
    return [float(np.nanmedian(case.series.parts[part][steady])) for part in parts]


def no_tensor_cores(case: Case) -> Iterator[Judged]:
    limits = case.limits
    told = [gpu for gpu in case.gpus if gpu.tensor_ratio is not None and gpu.busy_percent is not None]
    busy = [gpu for gpu in told if (gpu.busy_percent or 0.0) > limits.busy_percent]
    if not busy or case.steps is None:
        return
    tensor = max(gpu.tensor_ratio or 0.0 for gpu in busy)
    if tensor < limits.tensor_ratio:
        share = sum(gpu.busy_percent or 0.0 for gpu in busy) / len(busy) / 100
        yield Judged(
            (
                seen("tensor_share", tensor, "ratio", threshold=limits.tensor_ratio),
                seen("gpu_busy_share", share, "ratio"),
            )
        )


def memory_growth(case: Case) -> Iterator[Judged]:
    limits = case.limits
    for course in case.facts.devices.memory:
        rise = _steady_rise(course)
        if rise is None or rise <= max(limits.memory_growth_mb, limits.memory_growth_ratio * float(course.mb[0])):
            continue
        length = float(course.seconds[-1] - course.seconds[0])
        pace = rise / length
        left = course.left_mb / pace if course.left_mb is not None else None
        soon = left is not None and left < SECONDS_PER_MONTH
        yield Judged(
            (
                seen("growth_mb", rise, "MiB", threshold=limits.memory_growth_mb, start=course.seconds[0]),
                seen("growth_mb_per_second", pace, "MiB/s"),
                *((seen("seconds_to_out_of_memory", left, "seconds"),) if left is not None else ()),
            ),
            confidence="high" if len(course.seconds) >= 30 else "medium",
            words={"whose": course.whose, "until_full": f": full in {time_text(left)}" if soon and left else ""},
        )
        return


def _steady_rise(course: MemoryCourse) -> float | None:
    """How far it rose, where it rose in each third of its time and never came back far."""
    if len(course.mb) < LEAST_COURSE or course.seconds[-1] - course.seconds[0] < LEAST_COURSE_SECONDS:
        return None
    count = len(course.mb) if len(course.mb) < MANY_READINGS else min(12, len(course.mb) // 2)
    smooth = [float(np.median(part)) for part in np.array_split(course.mb, count)]
    steps = np.diff(smooth)
    rise = smooth[-1] - smooth[0]
    thirds = [float(part.sum()) for part in np.array_split(steps, 3)]
    falls = float(-steps[steps < 0].sum())
    even = rise > 0 and min(thirds) > 0.1 * rise and falls < 0.1 * rise
    # Medians of the ends lie inside: the whole time saw a little more.
    return rise * len(smooth) / max(1, len(smooth) - 1) if even else None


def memory_pressure(case: Case) -> Iterator[Judged]:
    limits = case.limits
    full = [gpu for gpu in case.facts.devices.gpus if (gpu.memory_percent_peak or 0.0) > limits.gpu_memory_full_percent]
    if not full:
        return
    worst = max(full, key=lambda gpu: gpu.memory_percent_peak or 0.0)
    peak = worst.memory_percent_peak or 0.0
    yield Judged(
        tuple(
            seen("memory_percent", gpu.memory_percent_peak or 0.0, "percent", gpu=gpu.gpu, host=gpu.host)
            for gpu in sorted(full, key=lambda gpu: -(gpu.memory_percent_peak or 0.0))
        ),
        severity="warning" if peak > limits.gpu_memory_exhausted_percent else "info",
        words={"gpu": worst.gpu},
    )


def gpu_lost(case: Case) -> Iterator[Judged]:
    lost = [gpu for gpu in case.summary.gpus if gpu.lost_samples]
    if lost:
        worst = max(lost, key=lambda gpu: gpu.lost_samples)
        yield Judged(
            tuple(
                seen("lost", gpu.lost_samples, "readings", gpu=str(gpu.gpu_index), host=gpu.host)
                for gpu in sorted(lost, key=lambda gpu: -gpu.lost_samples)
            ),
            words={"gpu": str(worst.gpu_index)},
        )


def thermal_throttle(case: Case) -> Iterator[Judged]:
    limit = case.limits.throttled_ratio
    hot = [gpu for gpu in case.facts.devices.gpus if (gpu.thermal_share or 0.0) > limit]
    if hot:
        worst = max(hot, key=lambda gpu: gpu.thermal_share or 0.0)
        yield Judged(
            (*_throttled(worst, worst.thermal_share, limit), *_known("celsius", worst.celsius_peak, "celsius")),
            seconds=_slower(case, worst),
            words={"gpu": worst.gpu, "heat": f", at up to {worst.celsius_peak:.0f} °C" if worst.celsius_peak else ""},
        )


def power_cap(case: Case) -> Iterator[Judged]:
    limits = case.limits
    held = [gpu for gpu in case.facts.devices.gpus if (gpu.power_share or 0.0) > limits.throttled_ratio]
    if not held:
        return
    worst = max(held, key=lambda gpu: (_lowered(gpu, limits.lowered_limit_ratio), gpu.power_share or 0.0))
    lowered = _lowered(worst, limits.lowered_limit_ratio)
    brakes = (worst.brake_share or 0.0) > limits.throttled_ratio
    words = ": the power supply brakes it" if brakes else _of_limits(worst) if lowered else ""
    yield Judged(
        (
            *_throttled(worst, worst.power_share, limits.throttled_ratio),
            *_known("limit_watts", worst.limit_watts, "watts"),
        ),
        seconds=_slower(case, worst) if lowered or brakes else None,
        severity="warning" if lowered or brakes else "info",
        words={"gpu": worst.gpu, "lowered": words},
    )


def _lowered(gpu: GpuFacts, ratio: float) -> bool:
    return bool(gpu.limit_watts and gpu.limit_max_watts and gpu.limit_watts < ratio * gpu.limit_max_watts)


def _of_limits(gpu: GpuFacts) -> str:
    return f": it is set to {gpu.limit_watts:.0f} W, below the maximum of {gpu.limit_max_watts:.0f} W"


def _known(signal: str, value: float | None, unit: str) -> tuple[Evidence, ...]:
    return () if value is None else (seen(signal, value, unit),)


def _throttled(gpu: GpuFacts, share: float | None, limit: float) -> tuple[Evidence, ...]:
    return (seen("throttled_share", share or 0.0, "ratio", threshold=limit, gpu=gpu.gpu, host=gpu.host),)


def _slower(case: Case, gpu: GpuFacts) -> float | None:
    """The time that lower clocks cost, at most: what is computed takes that much longer."""
    if gpu.clock_ratio is None or case.steps is None:
        return None
    return max(0.0, 1 - gpu.clock_ratio) * case.training_seconds

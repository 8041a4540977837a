"""What sets two runs apart: where the time of a step went, how the GPUs were used, and the causes behind it."""

from typing import Literal

import msgspec

from pulsetrain.insight.compare.causes import Cause, find_causes
from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.speed import Per, Speed
from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.steps import StepFacts
from pulsetrain.rules.thresholds import Thresholds


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer or shorter a step, or a sample, is on average, and in which parts."""

    run: str
    per: Per
    before_seconds: float
    after_seconds: float
    parts: dict[str, float]
    """Seconds by which each of STEP_PARTS is longer; those that both runs recorded."""


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the GPUs of two runs were, where that differs."""

    busier: str
    idler: str
    busier_share: float
    idler_share: float
    while_training: bool
    """From the first step to the last; else in the whole run."""
    busier_kernel_seconds: float | None = None
    idler_kernel_seconds: float | None = None
    """Time in which a kernel ran, for a sample; None where it is not known for both."""
    same_work: bool = False
    """Whether the GPUs did about as much for a sample, and only the waiting differs."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What sets a run apart from the first one."""

    run: str
    step: StepChange | None = None
    gpus: GpuUse | None = None
    asked: Literal["gpu_less_busy", "held_back", ""] = ""
    """What the causes answer; empty when there is nothing to ask."""
    about: str = ""
    """The run that the question is about."""
    causes: list[Cause] = []
    """The likeliest first."""


def explain(base: Side, other: Side, speed: Speed, limits: Thresholds) -> Explanation:
    """Why the other run differs from the base, when it does."""
    step, slower = None, None
    if speed.deciding and base.steps and other.steps:
        slower = other if speed.deciding.change > 0 else base
        if speed.average and speed.average.real:
            step = _step_change(other.label, base.steps, other.steps, speed.per)
    busier, idler = sorted((base, other), key=lambda side: -(side.facts.machine.gpu_busy_share or 0.0))
    if gpus := _gpu_use(busier, idler, limits):
        causes = find_causes(idler, busier, limits)
        return Explanation(
            run=other.label, step=step, gpus=gpus, asked="gpu_less_busy", about=idler.label, causes=causes
        )
    if slower:
        causes = find_causes(slower, base if slower is other else other, limits)
        return Explanation(run=other.label, step=step, asked="held_back", about=slower.label, causes=causes)
    return Explanation(run=other.label, step=step)


def _step_change(label: str, before: StepFacts, after: StepFacts, per: Per) -> StepChange:
    old, new = (1.0, 1.0) if per == "step" else (before.samples_per_step or 1.0, after.samples_per_step or 1.0)
    return StepChange(
        run=label,
        per=per,
        before_seconds=before.mean_seconds / old,
        after_seconds=after.mean_seconds / new,
        parts={
            part: now / new - then / old
            for part in STEP_PARTS
            if (then := before.parts[part]) is not None and (now := after.parts[part]) is not None
        },
    )


def _gpu_use(busier: Side, idler: Side, limits: Thresholds) -> GpuUse | None:
    """Simulated GPUs are busy by a timetable of their own: nothing of the program explains it."""
    high, low = busier.facts.machine.gpu_busy_share, idler.facts.machine.gpu_busy_share
    if high is None or low is None or busier.simulated or idler.simulated:
        return None
    if high - low < limits.busy_difference_ratio:
        return None
    use = GpuUse(
        busier=busier.label,
        idler=idler.label,
        busier_share=high,
        idler_share=low,
        while_training=bool(busier.steps and idler.steps),
    )
    more, less = _kernel_seconds_per_sample(busier), _kernel_seconds_per_sample(idler)
    if not more or not less:
        return use
    same_work = abs(less / more - 1) < limits.same_work_ratio
    return msgspec.structs.replace(use, busier_kernel_seconds=more, idler_kernel_seconds=less, same_work=same_work)


def _kernel_seconds_per_sample(side: Side) -> float | None:
    """Time in which a kernel ran, by the samples of that time. Only where each process has one GPU."""
    training, steps, busy = side.report.summary.training, side.steps, side.facts.machine.gpu_busy_share
    if training is None or steps is None or busy is None or len(side.report.summary.gpus) != training.ranks:
        return None
    return busy * (steps.ended - steps.began) / training.samples if training.samples else None

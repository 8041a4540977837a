"""What the records say about why a run is slower, or uses its GPUs less, than another. The views put it into words.

Each cause has the evidence it rests on. What the records do not show is not claimed. A cause of which a rule speaks too
has the rule's finding from the verdict about the run, so that the two cannot contradict each other.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.significance import RELEVANT
from pulsetrain.insight.compare.speed import same_batches
from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.rules.finding import Evidence, Finding
from pulsetrain.rules.thresholds import Thresholds

CauseKind = Literal[
    "gpu_not_used",
    "idle_gpus",
    "data_wait",
    "other",
    "outside_steps",
    "throttled",
    "small_batches",
    "host_bound",
    "busy_machine",
    "slower_all_over",
]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the records of a run that can explain how it differs from another."""

    kind: CauseKind
    run: str
    against: str
    """The run that does not have it, or less of it."""
    share: float | None = None
    """Of the run's time (or of its GPUs): how much it can account for. None where that cannot be known."""
    evidence: tuple[Evidence, ...]
    """Of either run: `where` names it."""
    finding: Finding | None = None
    """What the verdict about the run says of it; None where the run is within the limits of the rules."""

    @property
    def here(self) -> dict[str, float]:
        """The evidence of the run itself: values by signal."""
        return self._values(self.run)

    @property
    def there(self) -> dict[str, float]:
        """The evidence of the run it is compared with."""
        return self._values(self.against)

    def _values(self, run: str) -> dict[str, float]:
        return {found.signal: found.value for found in self.evidence if found.where.get("run") == run}


def find_causes(side: Side, other: Side, limits: Thresholds) -> list[Cause]:
    """What can explain that a run is slower, or its GPUs less busy, than the other; the likeliest first."""
    found = [cause for judge in _JUDGES for cause in judge(side, other, limits)]
    return sorted(found, key=lambda cause: -(cause.share or 0))


def _no_gpu(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    machine = side.facts.machine
    rise, busy = machine.gpu_memory_rise_mb, machine.gpu_busy_share
    if side.simulated or machine.on_gpu is not False or rise is None or busy is None:
        return
    if rise < limits.gpu_context_mb and busy < limits.time_share_ratio:
        evidence = _seen(side, gpu_memory_rise_mb=rise, gpu_busy_share=busy)
        yield _cause("gpu_not_used", side, other, *evidence, share=1.0, finding=side.finding("IdleGpu"))


def _idle_gpus(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    finding, count = side.finding("IdleGpu"), len(side.report.summary.gpus)
    if finding and len(finding.evidence) < count:
        idle = len(finding.evidence)
        evidence = _seen(side, gpus_idle=idle, gpus=count, idle_percent=limits.idle_percent)
        yield _cause("idle_gpus", side, other, *evidence, share=idle / count, finding=finding)


def _data(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    if (share := _larger_share("data_wait", side, other, limits)) is None:
        return
    evidence, finding = _part_shares("data_wait", side, other), side.finding("InputBound")
    yield _cause("data_wait", side, other, *evidence, share=share, finding=finding)


def _other_work(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    if (share := _larger_share("other", side, other, limits)) is None:
        return
    finding = side.finding("LoggingHeavy")
    if finding and all(found.value != share for found in finding.evidence):  # it is about calls of a tracker
        finding = None
    yield _cause("other", side, other, *_part_shares("other", side, other), share=share, finding=finding)


def _outside_steps(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    """Validation and checkpoints between steps, where the loop does not count them as part of one."""
    here, there = _outside(side), _outside(other)
    if side.steps and here is not None and here - (there or 0.0) > limits.time_share_ratio:
        yield _cause(
            "outside_steps",
            side,
            other,
            *_seen(side, outside_share=here, training_seconds=side.steps.ended - side.steps.began),
            *_seen(other, outside_share=there),
            share=here,
            finding=side.finding("CheckpointHeavy", "EvaluationHeavy"),
        )


def _throttling(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    here, there = side.report.summary.throttled_share, other.report.summary.throttled_share
    if here is None or here - (there or 0.0) <= limits.time_share_ratio or side.simulated:
        return
    evidence = [*_seen(side, gpu_throttled_share=here), *_seen(other, gpu_throttled_share=there)]
    slow, fast = side.facts.machine.clock_hertz, other.facts.machine.clock_hertz
    lost = None
    if slow and fast and slow < fast and side.report.summary.gpu_counts == other.report.summary.gpu_counts:
        evidence += [*_seen(side, gpu_clock_hertz=slow), *_seen(other, gpu_clock_hertz=fast)]
        lost = 1 - slow / fast
    finding = side.finding("ThermalThrottle", "PowerCap")
    yield _cause("throttled", side, other, *evidence, share=lost, finding=finding)


def _small_batches(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    if not side.steps or not other.steps:
        return
    here, there = side.steps.samples_per_step, other.steps.samples_per_step
    if here and there and here < limits.small_batch_ratio * there:
        evidence = *_seen(side, samples_per_step=here), *_seen(other, samples_per_step=there)
        yield _cause("small_batches", side, other, *evidence, finding=side.finding("BatchTooSmall"))


def _host_bound(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    """Python that cannot give the GPU work fast enough."""
    finding, machine = side.finding("LaunchBound"), side.facts.machine
    if finding and side.steps:
        evidence = _seen(
            side,
            busiest_process_cores=machine.busiest_process_cores,
            cpu_cores=machine.cpu_cores,
            step_seconds_mean=side.steps.mean_seconds,
        )
        yield _cause("host_bound", side, other, *evidence, finding=finding)


def _busy_machine(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    here, there, cores = (
        side.facts.machine.others_cores,
        other.facts.machine.others_cores,
        side.facts.machine.cpu_cores,
    )
    if here is not None and cores and here - (there or 0.0) > limits.other_programs_ratio * cores:
        evidence = *_seen(side, others_cores=here, cpu_cores=cores), *_seen(other, others_cores=there)
        yield _cause("busy_machine", side, other, *evidence)


def _slower_all_over(side: Side, other: Side, limits: Thresholds) -> Iterator[Cause]:
    """Every part of a step is longer by about as much."""
    if not side.steps or not other.steps or not same_batches(side.steps, other.steps):
        return
    overall = side.steps.mean_seconds / other.steps.mean_seconds - 1
    longer = [
        here / there - 1
        for part in STEP_PARTS
        if (here := side.steps.parts[part]) is not None
        and (there := other.steps.parts[part]) is not None
        and there > limits.time_share_ratio * other.steps.mean_seconds
    ]
    if overall > RELEVANT and len(longer) > 2 and min(longer) > 0.5 * overall and max(longer) < 1.5 * overall:
        evidence = _seen(side, least_longer_part_ratio=min(longer), most_longer_part_ratio=max(longer))
        yield _cause("slower_all_over", side, other, *evidence)


_JUDGES: tuple[Callable[[Side, Side, Thresholds], Iterator[Cause]], ...] = (
    _no_gpu,
    _idle_gpus,
    _data,
    _other_work,
    _outside_steps,
    _throttling,
    _small_batches,
    _host_bound,
    _busy_machine,
    _slower_all_over,
)


def _cause(
    kind: CauseKind,
    side: Side,
    other: Side,
    *evidence: Evidence,
    share: float | None = None,
    finding: Finding | None = None,
) -> Cause:
    return Cause(kind=kind, run=side.label, against=other.label, share=share, evidence=evidence, finding=finding)


def _seen(side: Side, **values: float | None) -> tuple[Evidence, ...]:
    """Evidence of one run, of what is known. The names carry the units."""
    return tuple(
        Evidence(signal=signal, value=value, where={"run": side.label})
        for signal, value in values.items()
        if value is not None
    )


def _part_shares(part: str, side: Side, other: Side) -> Iterator[Evidence]:
    for one in (side, other):
        yield from _seen(one, **{f"{part}_share": one.steps.share(part) if one.steps else None})


def _larger_share(part: str, side: Side, other: Side, limits: Thresholds) -> float | None:
    """The share of a part of the step time, where it is clearly larger than in the other run."""
    share = side.steps.share(part) if side.steps else None
    there = other.steps.share(part) if other.steps else None
    return share if share is not None and share - (there or 0.0) > limits.time_share_ratio else None


def _outside(side: Side) -> float | None:
    return side.steps.outside_share if side.steps else None

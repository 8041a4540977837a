"""What the judges get of a run, and what they give back."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.figures import RunEnergy
from pulsetrain.insight.facts import Facts
from pulsetrain.insight.machine_series import LEAST_READINGS, GpuFacts
from pulsetrain.insight.nodes import RunNodes
from pulsetrain.insight.robust import Floats, lasting_share
from pulsetrain.insight.step_series import StepSeries
from pulsetrain.insight.steps import StepFacts
from pulsetrain.insight.summary import Summary
from pulsetrain.insight.time_ledger import TimeLedger
from pulsetrain.rules.finding import Confidence, Evidence
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.folder import Run
from pulsetrain.snapshot import Label, Severity

OUTSIDE_TRAINING = ("startup", "restart", "tail")
"""Classes of the time ledger before, between and after trainings."""
MANY_STEPS, FEW_STEPS = 100, 30
"""With fewer steady steps, a finding about them is less sure."""
LEAST_STEPS, LEAST_SECONDS = 20, 60.0
"""Steady steps, or seconds of training, that a warning about what holds a run back rests on at least."""


@dataclass(frozen=True)
class Case:
    """A run, as it is judged."""

    run: Run
    seconds: float
    """Of the whole run, or so far."""
    summary: Summary
    energy: RunEnergy
    carbon: Carbon | None
    cost: Cost | None
    ledger: TimeLedger | None
    missing: tuple[str, ...]
    """Why figures of the training are missing."""
    nodes: RunNodes | None
    """None for a run of one host and one rank."""
    facts: Facts
    limits: Thresholds

    @property
    def steps(self) -> StepFacts | None:
        return self.facts.steps

    @property
    def series(self) -> StepSeries | None:
        return self.facts.series

    @property
    def gpus(self) -> list[GpuFacts]:
        """Those whose use says something about the program: simulated ones are busy by a timetable of their own."""
        return [gpu for gpu in self.facts.devices.gpus if not gpu.simulated]

    @property
    def gpu_busy_share(self) -> float | None:
        """None with too few readings to tell."""
        busy = [gpu.busy_percent for gpu in self.gpus if gpu.busy_percent is not None]
        enough = any(gpu.readings >= LEAST_READINGS for gpu in self.gpus)
        return sum(busy) / len(busy) / 100 if busy and enough else None

    @property
    def training_seconds(self) -> float:
        """From the first step to the last."""
        return self.steps.ended - self.steps.began if self.steps else 0.0

    @property
    def crowded(self) -> bool:
        """Whether so many programs wanted the CPUs that any part of a step may have waited for them."""
        limits, machine = self.limits, self.facts.machine
        # The load average follows slowly: in a short run, full CPUs that others share show it sooner.
        full = (machine.cpu_share or 0.0) > limits.cpu_saturated_ratio
        others = (machine.others_cores or 0.0) > limits.other_programs_ratio * (machine.cpu_cores or 1.0)
        return (self.facts.devices.load_by_core or 0.0) > limits.crowded_ratio or (full and others)

    @property
    def enough_steps(self) -> bool:
        """Whether there are enough to say what holds them back."""
        return self.steps is not None and (self.steps.count >= LEAST_STEPS or self.training_seconds >= LEAST_SECONDS)

    def lasting_share(self, part: str, window: int = 1) -> float:
        """How much of the steps after the warm-up a part takes, not counting the few that lost the CPU."""
        if self.series is None:
            return 0.0
        series = self.series
        steady = series.plain if part == "other" else series.steady  # evaluations and checkpoints are part of `other`
        return lasting_share(series.parts[part][steady], series.seconds[steady], window)

    def training_share(self, *names: str) -> float | None:
        """How much of the time in training, of all ranks, these classes of the ledger take."""
        if self.ledger is None:
            return None
        classes = self.ledger.classes
        whole = sum(time.seconds for name, time in classes.items() if name not in OUTSIDE_TRAINING)
        return sum(classes[name].seconds for name in names if name in classes) / whole if whole > 0 else None

    @property
    def step_confidence(self) -> Confidence:
        """By how many steady steps there are."""
        count = self.steps.count if self.steps else 0
        return "high" if count >= MANY_STEPS else "medium" if count >= FEW_STEPS else "low"


@dataclass(frozen=True)
class Judged:
    """What a judge found. The words come from the rule's declaration."""

    evidence: tuple[Evidence, ...]
    seconds: float | None = None
    """What it cost of the run's time; None where that cannot be known."""
    ledger_class: str = ""
    """The class of the ledger that is its cost, instead."""
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    confidence: Confidence = "high"
    words: Mapping[str, str | float] = field(default_factory=dict)
    """What the summary names beside the evidence."""
    advice: str = ""
    """In the place of the rule's own, where the records show more."""
    saved_share: float | None = None
    """Of the run's time: what the advice may save at most. None where that cannot be known."""


Judge = Callable[[Case], Iterator[Judged]]


def seen(
    signal: str,
    value: float,
    unit: str = "",
    *,
    threshold: float | None = None,
    start: float | None = None,
    end: float | None = None,
    **where: Label,
) -> Evidence:
    """One measured value."""
    return Evidence(
        signal=signal,
        value=float(value),
        unit=unit,
        threshold=threshold,
        where=where,
        start_seconds=None if start is None else float(start),
        end_seconds=None if end is None else float(end),
    )


def mean_between(times: Floats, values: Floats, start: float, end: float) -> float | None:
    """The mean of the values of a stretch of time; None without any."""
    inside = values[(times >= start) & (times <= end)]
    return float(inside.mean()) if len(inside) else None

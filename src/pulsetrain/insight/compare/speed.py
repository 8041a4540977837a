"""Which of two runs is faster, and how sure that is."""

from typing import Literal

import msgspec

from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.significance import Difference, difference
from pulsetrain.insight.steps import StepFacts

SAME_BATCH = 0.01
"""Batches whose mean size differs by less are of one size: the last one of an epoch may be smaller."""

Per = Literal["step", "sample"]


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The time that one run needs, against that of the first."""

    run: str
    against: str
    per: Per = "step"
    """By samples where the two runs put different numbers of them into a step."""
    typical: Difference | None = None
    """The medians. None when there are too few steps to tell, or none."""
    average: Difference | None = None
    """The means: rare long steps count in full."""
    steps: int = 0
    steps_against: int = 0
    """How many were recorded, without the warm-up."""

    @property
    def deciding(self) -> Difference | None:
        """The difference that is real: on average, as that makes a run long or short, else of typical steps."""
        return next((found for found in (self.average, self.typical) if found and found.real), None)


def speed(base: Side, other: Side) -> Speed:
    """How the other run's time for a step, or for a sample, compares with the base's."""
    before, after = base.steps, other.steps
    per: Per = "step"
    if before is None or after is None:
        typical = average = None
    elif same_batches(before, after):
        typical, average = difference(base.typical, other.typical), difference(base.average, other.average)
    else:
        per = "sample"
        typical = difference(base.typical_sample, other.typical_sample)
        average = difference(base.average_sample, other.average_sample)
    return Speed(
        run=other.label,
        against=base.label,
        per=per,
        typical=typical,
        average=average,
        steps=after.count if after else 0,
        steps_against=before.count if before else 0,
    )


def same_batches(one: StepFacts, two: StepFacts) -> bool:
    """Whether steps hold as many samples in both, as far as is known."""
    samples = one.samples_per_step, two.samples_per_step
    return not samples[0] or not samples[1] or abs(samples[1] / samples[0] - 1) < SAME_BATCH

"""Which of two runs is faster, and how sure that is."""

from typing import Literal

import msgspec

from pulsetrain.insight.compare.sides import Side, Steps
from pulsetrain.insight.compare.significance import RELEVANT, Difference, difference

SAME_BATCH = 0.01
"""Batches whose mean size differs by less are of one size: the last one of an epoch may be smaller."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The time that one run needs, against that of the first."""

    run: str
    against: str
    per: Literal["step", "sample"] = "step"
    """By samples where the two runs put different numbers of them into a step."""
    typical: Difference | None = None
    """The medians. None when there are too few steps to tell, or none."""
    average: Difference | None = None
    """The means: rare long steps count in full."""
    missing: str = ""
    """Why there is no difference to tell."""

    @property
    def deciding(self) -> Difference | None:
        """The difference that is real: on average, as that makes a run long or short, else of typical steps."""
        return next((found for found in (self.average, self.typical) if found and found.real), None)

    def sentence(self) -> str:
        """The verdict, as one would say it."""
        both = f"{self.against} and {self.run}"
        if self.typical is None or self.average is None:
            return f"{both}: {self.missing}."
        typically = f"{self.run} needs {_time(self.typical, self.per, self.against)} ({_sure(self.typical)})"
        if self.average.real and not (self.typical.real and self.typical.change * self.average.change > 0):
            if not self.typical.real:
                typically = f"For a typical {self.per}, {both} show no clear difference ({_range(self.typical)})"
            average = _time(self.average, self.per, self.against)
            return (
                f"{typically}; but on average, long ones included, {self.run} needs {average} ({_sure(self.average)})."
            )
        if self.typical.real:
            return f"{typically}."
        if self.typical.certain:
            return f"{both} differ by less than {RELEVANT:.0%} in the time for a {self.per} ({_range(self.typical)})."
        return f"{both} show no difference beyond noise in the time for a {self.per} ({_range(self.typical)})."


def speed(base: Side, other: Side) -> Speed:
    """How the other run's time for a step, or for a sample, compares with the base's."""
    before, after = base.steps, other.steps
    if before is None or after is None:
        without = " and ".join(side.label for side in (base, other) if side.steps is None)
        return Speed(run=other.label, against=base.label, missing=f"no steps of {without} were recorded")
    if same_batches(before, after):
        typical, average = difference(before.typical, after.typical), difference(before.average, after.average)
    else:
        typical = difference(before.typical_sample, after.typical_sample)
        average = difference(before.average_sample, after.average_sample)
    return Speed(
        run=other.label,
        against=base.label,
        per="step" if same_batches(before, after) else "sample",
        typical=typical,
        average=average,
        missing="" if typical else f"too few steps to tell ({before.count} and {after.count})",
    )


def same_batches(one: Steps, two: Steps) -> bool:
    """Whether steps hold as many samples in both, as far as is known."""
    samples = one.samples_per_step, two.samples_per_step
    return not samples[0] or not samples[1] or abs(samples[1] / samples[0] - 1) < SAME_BATCH


def _time(found: Difference, per: str, against: str) -> str:
    if found.change >= 1:  # twice as long and more
        return f"{1 + found.change:.1f} times as long for a {per} as {against}"
    word = "more" if found.change > 0 else "less"
    return f"{100 * abs(found.change):.1f} % {word} time for a {per} than {against}"


def _sure(found: Difference) -> str:
    if found.change >= 1:
        return f"95 % sure: {1 + found.low:.1f} to {1 + found.high:.1f} times"
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"95 % sure: {100 * low:.1f} to {100 * high:.1f} %"


def _range(found: Difference) -> str:
    return f"{100 * found.low:+.1f} to {100 * found.high:+.1f} %"

"""Runs side by side: their figures, the differences from the first run, which of them are real, and why.

Figures of steps leave the warm-up out, so that a short run can be compared with a long one. All here is data;
`views/compare` puts it into words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pulsetrain.insight.compare.explanation import Explanation, explain
from pulsetrain.insight.compare.figures import Figure, figures
from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.speed import Speed, speed
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds


@dataclass(frozen=True)
class Comparison:
    """Runs against the first of them."""

    sides: Sequence[Side]
    speeds: list[Speed]
    """One for each run but the first."""
    explanations: list[Explanation]
    """The same."""
    figures: list[Figure]
    thresholds: Thresholds
    """What it was judged by."""


def compare(sides: Sequence[Side], thresholds: Thresholds = DEFAULTS) -> Comparison:
    """Compare the runs with the first of them."""
    base, others = sides[0], sides[1:]
    speeds = [speed(base, other) for other in others]
    explanations = [explain(base, other, found, thresholds) for other, found in zip(others, speeds, strict=True)]
    return Comparison(sides, speeds, explanations, figures(sides), thresholds)

"""One side of a comparison: a run's report and facts, and what its step times might have been."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

from pulsetrain.insight.compare.significance import BootstrapSample, draw_mean, draw_quantile
from pulsetrain.insight.facts import Facts
from pulsetrain.insight.own_metrics import OwnCurve, read_curves
from pulsetrain.insight.report import Report, Study, study
from pulsetrain.insight.steps import StepFacts
from pulsetrain.rules.finding import Finding
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder

LONGEST_LABEL = 20
MOST_OWN_METRICS = 12
"""Names of the program's own that are put side by side."""


@dataclass(frozen=True)
class Side:
    """A run as a comparison sees it."""

    label: str
    report: Report
    facts: Facts
    curves: dict[str, OwnCurve] = field(default_factory=dict)
    """The loss, and what the program logged under names of its own."""

    @property
    def steps(self) -> StepFacts | None:
        return self.facts.steps

    @property
    def simulated(self) -> bool:
        return self.report.summary.simulated

    def finding(self, *rules: str) -> Finding | None:
        """What the verdict about the run says by one of these rules; the gravest, of several."""
        findings = self.report.verdict.findings if self.report.verdict else ()
        return next((finding for finding in findings if finding.rule in rules), None)

    @cached_property
    def typical(self) -> BootstrapSample | None:
        """The median time of a step."""
        return draw_quantile(self.steps.seconds, 0.5) if self.steps else None

    @cached_property
    def slow(self) -> BootstrapSample | None:
        """The 95th percentile of the time of a step."""
        return draw_quantile(self.steps.seconds, 0.95) if self.steps else None

    @cached_property
    def average(self) -> BootstrapSample | None:
        """The mean time of a step."""
        return draw_mean(self.steps.seconds) if self.steps else None

    @cached_property
    def typical_sample(self) -> BootstrapSample | None:
        """The median time of a sample."""
        return draw_quantile(self.steps.sample_seconds, 0.5) if self.steps else None

    @cached_property
    def average_sample(self) -> BootstrapSample | None:
        """The mean time of a sample."""
        return draw_mean(self.steps.sample_seconds) if self.steps else None


def load_sides(folders: Sequence[RunFolder], thresholds: Thresholds = DEFAULTS) -> list[Side]:
    """Read the runs of a comparison."""
    studies = [_studied(folder, thresholds) for folder in folders]
    labels = _labels([found.report.run.name for found, _ in studies])
    return [
        Side(label, found.report, found.facts, curves) for label, (found, curves) in zip(labels, studies, strict=True)
    ]


def _studied(folder: RunFolder, thresholds: Thresholds) -> tuple[Study, dict[str, OwnCurve]]:
    with closing(Database([folder])) as database:
        found = study(database, folder, thresholds=thresholds)
        own = [metric.name for metric in found.report.own_metrics[:MOST_OWN_METRICS]]
        return found, read_curves(database, ["loss", *own])


def _labels(names: Sequence[str]) -> list[str]:
    """The names of the runs, or numbers where names would be too long or mean several."""
    if len(set(names)) == len(names) and max(map(len, names)) <= LONGEST_LABEL:
        return list(names)
    return [f"run {number}" for number in range(1, len(names) + 1)]

"""What a comparison says, once: figures and sentences. JSON is this document; text and HTML are renderings of it."""

import msgspec

from pulsetrain.insight.compare import Comparison
from pulsetrain.insight.compare.explanation import Explanation
from pulsetrain.insight.compare.figures import Figure
from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.significance import Difference
from pulsetrain.insight.compare.speed import Per, Speed
from pulsetrain.runs.folder import SCHEMA
from pulsetrain.views.compare.notes import gpus_text, notes
from pulsetrain.views.compare.sentences import cause_text, missing, question, sentences, speed_text
from pulsetrain.views.compare.settings import DifferentSetting, different_settings


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a comparison."""

    label: str
    """What the comparison calls it."""
    id: str
    name: str
    path: str
    status: str
    exit_code: int | None
    seconds: float
    gpus: str
    verdict: str
    """The headline of its own verdict."""
    finding: str
    """The rule behind it; empty when nothing holds it back, or nobody can tell."""
    hosts: list[str]
    simulated: bool
    steps: int
    warm_up_steps: int
    interrupted_steps: int
    """Of those, left out of all figures of steps: at the start, and with a phase inside."""


class SpeedText(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a run needs against that of the first, or why that cannot be said."""

    run: str
    against: str
    per: Per
    typical: Difference | None
    average: Difference | None
    missing: str


class CauseText(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in words."""

    kind: str
    rule: str
    """The rule of the verdict that says so too; empty where there is none, or the run is within its limits."""
    share: float | None
    text: str


class ExplanationText(msgspec.Struct, frozen=True, kw_only=True):
    """What sets a run apart from the first one, in words."""

    run: str
    sentences: list[str]
    question: str
    causes: list[CauseText]


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison as people and scripts get it."""

    schema: int = SCHEMA
    runs: list[ComparedRun]
    speeds: list[SpeedText]
    """One for each run but the first."""
    verdicts: list[str]
    """The same in words."""
    explanations: list[ExplanationText]
    settings: list[DifferentSetting]
    figures: list[Figure]
    notes: list[str]
    """What makes the runs differ in kind, or doubtful."""


def document(comparison: Comparison) -> ComparisonDocument:
    """The comparison with all that is said about it."""
    return ComparisonDocument(
        runs=[_run(side) for side in comparison.sides],
        speeds=[_speed(found) for found in comparison.speeds],
        verdicts=[speed_text(found) for found in comparison.speeds],
        explanations=[_explanation(found) for found in comparison.explanations],
        settings=different_settings(comparison.sides),
        figures=comparison.figures,
        notes=notes(comparison),
    )


def _run(side: Side) -> ComparedRun:
    report, steps, verdict = side.report, side.steps, side.report.verdict
    return ComparedRun(
        label=side.label,
        id=report.run.id,
        name=report.run.name,
        path=report.path,
        status=report.run.status,
        exit_code=report.run.exit_code,
        seconds=report.seconds,
        gpus=gpus_text(side),
        verdict=verdict.headline if verdict else "",
        finding=verdict.main.rule if verdict and verdict.main else "",
        hosts=sorted(report.run.hosts),
        simulated=side.simulated,
        steps=steps.total if steps else 0,
        warm_up_steps=steps.warm_up if steps else 0,
        interrupted_steps=steps.interrupted if steps else 0,
    )


def _speed(speed: Speed) -> SpeedText:
    return SpeedText(
        run=speed.run,
        against=speed.against,
        per=speed.per,
        typical=speed.typical,
        average=speed.average,
        missing=missing(speed),
    )


def _explanation(explanation: Explanation) -> ExplanationText:
    return ExplanationText(
        run=explanation.run,
        sentences=sentences(explanation),
        question=question(explanation),
        causes=[
            CauseText(
                kind=cause.kind,
                rule=cause.finding.rule if cause.finding else "",
                share=cause.share,
                text=cause_text(cause),
            )
            for cause in explanation.causes
        ],
    )

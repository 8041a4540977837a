"""What a rule says about a recorded run: one shape for the verdict, for comparisons and for JSON."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from pulsetrain.snapshot import Label, Severity

Confidence = Literal["low", "medium", "high"]
"""How sure a finding is: `high` where the records show the cause itself, `low` where they only fit it."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured value that a finding rests on."""

    signal: str
    """What was measured, in words or as the catalog names it."""
    value: float
    unit: str = ""
    """As in the catalog: seconds, ratio, percent, MiB."""
    threshold: float | None = None
    """What the value was compared with."""
    where: Mapping[str, Label] = {}
    """The labels of its subject: rank, host, gpu."""
    start_seconds: float | None = None
    """When it began, since the start of the run; None if it concerns the whole run."""
    end_seconds: float | None = None


class FindingCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding cost the run. None where that cannot be known; never 0 instead."""

    seconds: float | None = None
    joules: float | None = None
    grams: float | None = None
    """Of CO2 equivalents."""
    money: float | None = None
    """In the currency of the run's price."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule says about one run."""

    rule: str
    """The rule's name, which scripts may rely on."""
    severity: Severity
    confidence: Confidence
    summary: str
    """One sentence: what, where and how much."""
    evidence: tuple[Evidence, ...] = ()
    cost: FindingCost = FindingCost()
    advice: str = ""
    """What to change, and what that is expected to gain."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What held a run back, in order."""

    headline: str
    """One sentence: the main finding, that there is none, or why nobody can tell."""
    main: Finding | None = None
    """What to change first; None when nothing holds the run back, or nobody can tell."""
    findings: tuple[Finding, ...] = ()
    """All of them: the gravest first, then by what they cost."""
    sizing: tuple[str, ...] = ()
    """Where a larger batch, or another machine, would fit."""

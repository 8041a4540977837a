"""The verdict in words: the headline, what it cost, what to do, and the further findings."""

from pulsetrain.insight.report import Report
from pulsetrain.rules.finding import Evidence, Finding, FindingCost
from pulsetrain.rules.text import amount_text
from pulsetrain.views.text import Style, duration, energy, grams, money, percent, short_duration

MOST_EVIDENCE = 3
"""Values that a row of a table names."""
LONG_SECONDS = 10.0
"""From here on a time has no digits of milliseconds."""
SEVERITY_STYLES = {"critical": ("red", "bold"), "warning": ("yellow",)}


def verdict_lines(report: Report, style: Style) -> list[tuple[str, str]]:
    """The headline and at most two lines more: what to do, and what else was found."""
    verdict = report.verdict
    if verdict is None:
        return []
    main = verdict.main
    if main is None:
        return [("verdict", verdict.headline)]
    look = SEVERITY_STYLES.get(main.severity, ())
    others = [finding for finding in verdict.findings if finding is not main and finding.severity != "info"]
    return [
        ("verdict", style(f"{main.rule}: {verdict.headline}", *look)),
        ("do", main.advice),
        ("also", "; ".join(finding.summary for finding in others[:2]) + _more(len(others) - 2)),
    ]


def finding_title(finding: Finding, style: Style) -> str:
    """Its name, and how grave it is."""
    return style(f"{finding.rule} ({finding.severity})", *SEVERITY_STYLES.get(finding.severity, ()))


def finding_text(finding: Finding, report: Report, style: Style) -> str:
    """A finding in one line: name, what, cost."""
    cost = cost_text(finding.cost, report)
    return f"{finding_title(finding, style)}: {finding.summary}{f'; cost {cost}' if cost else ''}"


def cost_text(cost: FindingCost, report: Report) -> str:
    """What a finding cost, as far as it is known."""
    currency = report.cost.currency if report.cost else ""
    parts = [
        duration(cost.seconds) if cost.seconds is not None else "",
        energy(cost.joules) if cost.joules is not None else "",
        f"{grams(cost.grams)} CO2e" if cost.grams is not None else "",
        money(cost.money, currency) if cost.money is not None else "",
    ]
    return ", ".join(filter(None, parts))


def evidence_text(finding: Finding) -> str:
    """The values a finding rests on, with what they were compared with, and when and where that was."""
    texts = []
    for evidence in finding.evidence[:MOST_EVIDENCE]:
        limit = f" (limit {_value(evidence.threshold, evidence.unit)})" if evidence.threshold is not None else ""
        where = "".join(f", {name} {label}" for name, label in evidence.where.items())
        value = _value(evidence.value, evidence.unit)
        texts.append(f"{_name(evidence)} {value}{limit}{where}{_when(evidence)}")
    more = len(finding.evidence) - MOST_EVIDENCE
    return "; ".join(texts) + _more(more)


def _name(evidence: Evidence) -> str:
    """The signal in words; the value shows its unit."""
    suffix = {"ratio": ("_ratio", "_share")}.get(evidence.unit, (f"_{evidence.unit}",))
    signal = evidence.signal
    for ending in suffix:
        signal = signal.removesuffix(ending)
    return signal.replace("_", " ")


def _value(value: float, unit: str) -> str:
    if unit == "seconds":
        return short_duration(value) if value < LONG_SECONDS else duration(value)
    if unit == "ratio" and 0 <= value <= 1:
        return percent(value)
    return f"{amount_text(value)}{f' {unit}' if unit and unit != 'ratio' else ''}"


def _when(evidence: Evidence) -> str:
    start, end = evidence.start_seconds, evidence.end_seconds
    if start is None:
        return ""
    return f", from {duration(start)} to {duration(end)}" if end is not None else f", from {duration(start)} on"


def _more(count: int) -> str:
    return f"; and {count} more" if count > 0 else ""

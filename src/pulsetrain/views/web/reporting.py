"""What the report of a run says, and what else is read from its tables. Imported when first asked for: it is much."""

from typing import Any

import numpy as np

from pulsetrain.errors import UsageError
from pulsetrain.insight.changes import Change, find_changes
from pulsetrain.insight.report import Report, Study
from pulsetrain.insight.steps import PhaseInterval, read_phases
from pulsetrain.runs.database import Database
from pulsetrain.untrusted import showable
from pulsetrain.views.report.content import sections
from pulsetrain.views.text import PLAIN, duration
from pulsetrain.views.verdict_phrases import cost_text, evidence_text
from pulsetrain.views.web.api import Document, NotFound, opened_run
from pulsetrain.views.web.figures import event_document, report_figures
from pulsetrain.views.web.site import Site

MOST_EVENTS = 2000
MOST_PHASES = 500
"""The longest: a phase may be in every step."""
MOST_CHANGES = 15
BAND_PARTS = 480
"""Of a run, in the band that shows where its time went."""


def report_document(site: Site, id: str) -> Document:
    """What the report of a run says, in its words and as data."""
    study = site.study(id)
    if study is None:
        raise NotFound(f"there is no run {id!r}.")
    report = study.report
    return {
        "seconds": report.seconds,
        "figures": report_figures(report),
        "sections": [
            {
                "title": section.title,
                "facts": section.facts,
                "table": {"head": section.table.head, "rows": section.table.rows, "align": section.table.align}
                if section.table
                else None,
                "remarks": section.remarks,
            }
            for section in sections(report, PLAIN)
        ],
        "verdict": _verdict(report),
        "ledger": report.ledger,
        "band": _band(study, report.seconds),
    }


def _verdict(report: Report) -> Document | None:
    """What held the run back, in the words of the report."""
    if report.verdict is None:
        return None
    return {
        "headline": report.verdict.headline,
        "main": report.verdict.main.rule if report.verdict.main else None,
        "sizing": report.verdict.sizing,
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "confidence": finding.confidence,
                "summary": finding.summary,
                "evidence": evidence_text(finding),
                "cost": cost_text(finding.cost, report),
                "advice": finding.advice,
                "stretches": [
                    [evidence.start_seconds, evidence.end_seconds]
                    for evidence in finding.evidence
                    if evidence.start_seconds is not None and evidence.end_seconds is not None
                ],
            }
            for finding in report.verdict.findings
        ],
    }


def changes_document(site: Site, id: str, start: float, end: float) -> list[Document]:
    """What else changed in a stretch of a run, against the time before it, which is up to four times as long."""
    if not start < end:
        raise UsageError("the end must come after the start.")
    followed = opened_run(site, id)
    before = max(0.0, start - 4 * (end - start))
    found: list[Change] = followed.columns.query(
        lambda database: find_changes(database, start, end, before=before, most=MOST_CHANGES)
    )
    return [
        {
            "name": " ".join(filter(None, (change.field, change.subject))),
            "table": change.table,
            "before": f"{change.before:.4g} {change.unit}".rstrip(),
            "there": f"{change.after:.4g} {change.unit}".rstrip(),
            "change": f"{100 * (change.after / change.before - 1):+.0f} %" if change.before else "",
        }
        for change in found
    ]


def events_document(site: Site, id: str) -> list[Document]:
    """What happened during a run and the phases of its first rank, in order of time; of very many, the latest."""
    followed = opened_run(site, id)
    start = followed.run.start.timestamp()

    def ask(database: Database) -> tuple[list[Document], list[PhaseInterval]]:
        rows = database.rows(
            "SELECT epoch(timestamp) AS time, elapsed_seconds, host, kind, severity, message FROM events "
            f"ORDER BY timestamp DESC LIMIT {MOST_EVENTS}"
        )
        return rows, read_phases(database)

    rows, phases = followed.columns.query(ask)
    events = [
        event_document(
            row["kind"] or "",
            row["message"] or "",
            row["severity"] or "info",
            row["elapsed_seconds"] if row["elapsed_seconds"] is not None else row["time"] - start,
            row["host"],
        )
        for row in rows
    ]
    longest = sorted(phases, key=lambda phase: phase.seconds)[-MOST_PHASES:]
    return sorted([*events, *map(_phase, longest)], key=lambda event: float(event["seconds"]))


def _phase(phase: PhaseInterval) -> Document:
    message = f"{showable(phase.name)}, {duration(phase.seconds)}"
    return event_document("phase", message, "info", phase.begin, "") | {"until": round(phase.end, 3)}


def processes_document(site: Site, id: str) -> list[Document]:
    """The processes of a run: what each used, and when it was seen."""
    followed = opened_run(site, id)

    def ask(database: Database) -> list[Document]:
        return database.rows(
            "SELECT host, pid, any_value(parent_pid) AS parent_pid, any_value(user) AS user, "
            "any_value(command) AS command, any_value(container) AS container, list(DISTINCT gpu_index) AS gpus, "
            "max(gpu_memory_mb) AS gpu_memory_mb, max(cpu_seconds) AS cpu_seconds, avg(cpu_cores) AS cpu_cores, "
            "max(memory_bytes) AS memory_bytes, min(elapsed_seconds) AS first_seconds, "
            "max(elapsed_seconds) AS last_seconds FROM process GROUP BY host, pid "
            "ORDER BY max(gpu_memory_mb) DESC NULLS LAST, max(cpu_seconds) DESC NULLS LAST LIMIT 200"
        )

    rows: list[Document] = followed.columns.query(ask)
    return rows


def _band(study: Study, seconds: float) -> dict[str, list[float]]:
    """Where the time of the first rank went: the share of each class in each of BAND_PARTS equal parts of the run."""
    edges = np.linspace(0.0, max(seconds, 1e-3), BAND_PARTS + 1)
    first = [timeline for timeline in study.timelines if timeline.rank == study.timelines[0].rank]
    band: dict[str, Any] = {}
    for timeline in first:
        for name, used in timeline.band(edges).items():
            band[name] = band.get(name, 0.0) + used / (edges[1] - edges[0])
    return {name: np.round(shares, 3).tolist() for name, shares in band.items()}

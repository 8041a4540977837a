"""The report of a run, for a terminal."""

from pulsetrain.insight.report import Report
from pulsetrain.views import phrases
from pulsetrain.views.report.content import Section, sections
from pulsetrain.views.text import Style, table, wrap


def report_lines(report: Report, style: Style) -> list[str]:
    """Its name and outcome, then section by section what is known."""
    found = sections(report, style)
    width = max((len(name) for section in found for name, _ in section.facts), default=0)
    first, *others = found
    lines = [phrases.headline(report, style), *_lines(first, width, style)]
    for section in others:
        lines += ["", style(section.title, "bold"), *_lines(section, width, style)]
    return lines


def _lines(section: Section, width: int, style: Style) -> list[str]:
    rows = section.table
    return [
        *(table(rows.head, rows.rows, style, rows.align, rows.spare) if rows else []),
        *(f"{style(f'{name:<{width}}', 'dim')}  {wrap(value, style, width + 2)}" for name, value in section.facts),
        *(style(wrap(remark, style, 0), "dim") for remark in section.remarks),
    ]

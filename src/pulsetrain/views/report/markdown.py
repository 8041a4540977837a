"""The report of a run as Markdown with GitHub's tables: for a README, an issue, the appendix of a paper."""

import re
from collections.abc import Sequence

from pulsetrain.insight.report import Report
from pulsetrain.views import outcomes
from pulsetrain.views.report.content import Row, Section, sections
from pulsetrain.views.text import PLAIN, duration


def report_markdown(report: Report) -> str:
    """A whole document, from its first heading to the last line."""
    ended = f"{outcomes.outcome(report.run)} after {duration(report.seconds)}"
    blocks = [f"# {_escape(report.run.name)}", f"{ended[0].upper()}{ended[1:]}."]
    for section in sections(report, PLAIN):
        blocks += [f"## {section.title}", *_blocks(section)]
    return "\n\n".join(blocks) + "\n"


def _blocks(section: Section) -> list[str]:
    blocks = []
    if section.table:
        columns = [c for c in range(len(section.table.head)) if any(row[c] for row in section.table.rows)]
        rows = [tuple(row[c] for c in columns) for row in (section.table.head, *section.table.rows)]
        blocks.append(markdown_table(rows[0], rows[1:], "".join(section.table.align[c] for c in columns)))
    if section.facts:
        blocks.append(markdown_table(("", ""), section.facts, "ll"))
    if section.remarks:
        blocks.append("\n".join(f"- {_escape(remark)}" for remark in section.remarks))
    return blocks


def markdown_table(head: Row, rows: Sequence[Row], align: str) -> str:
    """A table of cells whose text is escaped; `align` has l or r for each column."""
    rule = "| " + " | ".join("---:" if letter == "r" else "---" for letter in align) + " |"
    return "\n".join([_line(head), rule, *(_line(row) for row in rows)])


def _line(cells: Row) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    """Text of users stays text: no markup, no line break, no HTML."""
    return re.sub(r"([\\`*_\[\]<|~#$&])", r"\\\1", " ".join(text.split()))

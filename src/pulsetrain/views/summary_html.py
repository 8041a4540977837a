"""The summary at the end of a run as a piece of HTML, for the output of a notebook's cell."""

import io

from pulsetrain.insight.report import Report
from pulsetrain.views import outcomes, phrases
from pulsetrain.views.pages import page
from pulsetrain.views.summary import facts
from pulsetrain.views.text import Style, duration


def summary_html(report: Report) -> str:
    """What `summary_lines` says, with the colors of the notebook around it. Text of users is escaped."""
    style = Style(io.StringIO())
    style.blocks = True  # a browser has the characters of sparklines
    return page(
        "summary",
        name=report.run.name,
        outcome=outcomes.outcome(report.run),
        good=report.run.status in outcomes.GOOD,
        duration=duration(report.seconds),
        head=phrases.GPU_HEAD,
        rows=phrases.gpu_rows(report, style) if report.summary.gpus else [],
        align=phrases.GPU_ALIGN,
        facts=facts(report, style),
    )

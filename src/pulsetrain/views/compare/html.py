"""A comparison as one HTML file: no network, no scripts, charts inside. It can be mailed and printed."""

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

from pulsetrain.insight.compare.sides import Side
from pulsetrain.views.compare.cells import LEGEND, about, cells, verdict_text
from pulsetrain.views.compare.content import ComparisonDocument
from pulsetrain.views.compare.panels import compare_svgs
from pulsetrain.views.compare.settings import SETTINGS
from pulsetrain.views.pages import page
from pulsetrain.views.plots import palette


def compare_html(comparison: ComparisonDocument, sides: Sequence[Side]) -> str:
    """The whole page. Text of users is escaped: by the template, and by the charts themselves."""
    return page(
        "compare",
        comparison=comparison,
        about=about,
        verdict_text=verdict_text,
        findings=list(zip(comparison.verdicts, comparison.explanations, strict=True)),
        sections=[
            (section, [(figure, cells(figure)) for figure in figures])
            for section, figures in groupby(comparison.figures, key=lambda figure: figure.section)
        ],
        settings_title=SETTINGS,
        charts={title: Markup(svg) for title, svg in compare_svgs(sides).items()},  # matplotlib escapes text
        legend=LEGEND,
        light=palette(len(sides)),
        dark=palette(len(sides), dark=True),
    )

"""A comparison for the terminal: what is different, why, and the figures."""

from collections.abc import Iterator
from itertools import groupby

from pulsetrain.insight.compare.figures import Figure
from pulsetrain.views.compare.cells import LEGEND, NOISE, about, cells, verdict_text
from pulsetrain.views.compare.content import ComparisonDocument
from pulsetrain.views.compare.settings import SETTINGS, DifferentSetting
from pulsetrain.views.text import ABSENT, Style, cut, len_visible, table, wrap

LONGEST_SETTING = 24
_COLORS = {"better": ("green",), "worse": ("red",), "noise": ("dim",)}


def compare_lines(comparison: ComparisonDocument, style: Style) -> list[str]:
    """The runs, the verdicts on top, the table, and what a reader should know."""
    lines = list(_runs(comparison, style))
    lines += ["", *_verdicts(comparison, style), ""]
    lines += _table(comparison, style)
    notes = list(comparison.notes)
    if any(NOISE in cell.change for figure in comparison.figures for cell in cells(figure)):
        notes.insert(0, LEGEND)
    if notes:
        lines += ["", *(style(wrap(note, style, 0), "dim") for note in notes)]
    return lines


def _runs(comparison: ComparisonDocument, style: Style) -> Iterator[str]:
    width = max(len_visible(run.label) for run in comparison.runs)
    for run in comparison.runs:
        space = " " * (width - len_visible(run.label))
        yield f"{style(run.label, 'bold')}{space}  {wrap(about(run), style, width + 2)}"
        yield f"{'':{width}}  {style(run.path, 'dim')}"
        if run.verdict:
            yield f"{'':{width}}  {wrap(f'verdict {verdict_text(run)}', style, width + 2)}"


def _verdicts(comparison: ComparisonDocument, style: Style) -> Iterator[str]:
    for verdict, explanation in zip(comparison.verdicts, comparison.explanations, strict=True):
        yield style(wrap(verdict, style, 0), "bold")
        yield from (wrap(sentence, style, 0) for sentence in explanation.sentences)
        if explanation.causes:
            yield f"{explanation.question}, likeliest first:"
        for place, cause in enumerate(explanation.causes, 1):
            yield f"  {place}. {wrap(cause.text, style, 5)}"


def _table(comparison: ComparisonDocument, style: Style) -> list[str]:
    labels = [cut(run.label, 20) for run in comparison.runs]
    head = ["", labels[0], *(text for label in labels[1:] for text in (label, "")), ""]
    rows = []
    if comparison.settings:
        rows.append([style(SETTINGS, "bold"), *[""] * (len(head) - 1)])
        rows += [_setting_row(setting) for setting in comparison.settings]
    for section, figures in groupby(comparison.figures, key=lambda figure: figure.section):
        rows.append([style(section, "bold"), *[""] * (len(head) - 1)])
        rows += [_row(figure, style) for figure in figures]
    return table(head, rows, style, f"l{'r' * (len(head) - 2)}l", spare=[len(head) - 1])


def _setting_row(setting: DifferentSetting) -> list[str]:
    first, *others = (cut(value, LONGEST_SETTING) or ABSENT for value in setting.values)
    return [f"  {cut(setting.name, LONGEST_SETTING)}", first, *(cell for value in others for cell in (value, "")), ""]


def _row(figure: Figure, style: Style) -> list[str]:
    first, *others = cells(figure)
    row = [f"  {figure.name}", first.value]
    for cell in others:
        row += [cell.value, style(cell.change, *_COLORS.get(cell.mood, ()))]
    return [*row, style(figure.how, "dim") if figure.how else ""]

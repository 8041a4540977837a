"""The report of a run as one HTML file: no network, no scripts, charts inside. It can be mailed and printed."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pulsetrain.insight.report import Report
from pulsetrain.insight.summary import mean
from pulsetrain.insight.training_summary import TrainingSummary
from pulsetrain.views import outcomes, phrases, plots
from pulsetrain.views.charts import Chart, run_span
from pulsetrain.views.colors import LIGHT
from pulsetrain.views.pages import page
from pulsetrain.views.report.content import Section, sections
from pulsetrain.views.text import PLAIN, bound, duration, energy, grams, money, number, rate, short_duration


@dataclass(frozen=True)
class Card:
    """One figure that matters, large."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Drawing:
    """A chart, and what its colors mean where a reader cannot know it."""

    title: str
    svg: Markup
    legend: list[str]


def report_html(report: Report, charts: Sequence[Chart]) -> str:
    """The whole page. Text of users is escaped: by the template, and by the charts themselves."""
    span = run_span(report, charts)
    most = max((len(chart.lines) for chart in charts), default=0)
    found = sections(report, PLAIN)
    titles = [section.title for section in found]
    found += [Section(title) for title in dict.fromkeys(chart.group for chart in charts) if title not in titles]
    return page(
        "report",
        report=report,
        outcome=outcomes.outcome(report.run),
        good=report.run.status in outcomes.GOOD,
        duration=duration(report.seconds),
        cards=_cards(report),
        sections=found,
        columns={section.title: _columns(section) for section in found},
        drawings={section.title: _drawings(section.title, charts, span) for section in found},
        legends={section.title: _shared_legend(section.title, charts) for section in found},
        light=plots.palette(len(LIGHT)),
        dark=plots.palette(len(LIGHT), dark=True),
        many_light=plots.palette(most),
        many_dark=plots.palette(most, dark=True),
        many={chart.group for chart in charts if len(chart.lines) > len(LIGHT)},
    )


def _cards(report: Report) -> list[Card]:
    """How long, how fast, how busy, and what it took; what is not known has none."""
    training, total, carbon, cost = report.summary.training, report.energy.total, report.carbon, report.cost
    cards = [Card("Duration", duration(report.seconds))]
    if training:
        cards += _speed(training)
    busy = mean(gpu.utilization_percent_mean for gpu in report.summary.gpus)
    if busy is not None:
        count = len(report.summary.gpus)
        cards.append(Card("GPU utilization", number(busy, "%"), f"mean of {count}" if count > 1 else "on average"))
    if total is not None:
        error = bound(total.joules, total.error_joules)
        cards.append(Card("Energy", energy(total.joules), _beside(error, phrases.origins(report))))
    if carbon:
        error = bound(carbon.grams, carbon.error_grams)
        cards.append(Card("Emissions (CO2e)", grams(carbon.grams), _beside(error, carbon.region)))
    if cost:
        error = bound(cost.amount, cost.error)
        end = f"{money(cost.projected, cost.currency)} at the end" if cost.projected else ""
        cards.append(Card("Cost", money(cost.amount, cost.currency), _beside(error, end)))
    return cards


def _speed(training: TrainingSummary) -> list[Card]:
    """How fast it trained: all ranks together."""
    ranks = f", {training.ranks} ranks" if training.ranks > 1 else ""
    steps = f"{number(training.steps)} steps{ranks}"
    every, first = training.all_ranks_samples_per_second, training.samples_per_second
    if every or first:
        return [Card("Samples per second", rate(every or first), steps if every else f"{steps}, on the first")]
    if training.step_seconds_mean is not None:
        return [Card("Step time", short_duration(training.step_seconds_mean), steps)]
    return []


def _beside(*parts: str) -> str:
    return ", ".join(part.strip() for part in parts if part)


def _columns(section: Section) -> list[int]:
    """Those of its table that hold anything."""
    rows = section.table
    return [c for c in range(len(rows.head)) if any(row[c] for row in rows.rows)] if rows else []


def _drawings(title: str, charts: Sequence[Chart], span: float) -> list[Drawing]:
    shared = _shared_legend(title, charts)
    return [
        Drawing(
            chart.caption,
            Markup(plots.svg(chart, span)),  # matplotlib escapes text, and plots the label
            _labels(chart) if len(chart.lines) > 1 and not shared else [],
        )
        for chart in charts
        if chart.group == title
    ]


def _shared_legend(title: str, charts: Sequence[Chart]) -> list[str]:
    """One legend for charts with the same lines."""
    legends = [_labels(chart) for chart in charts if chart.group == title]
    return legends[0] if legends and len(legends[0]) > 1 and all(other == legends[0] for other in legends) else []


def _labels(chart: Chart) -> list[str]:
    return [line.label for line in chart.lines]

"""A run as one picture: what a notebook shows where it has no widgets, and what stays in it when the run has ended."""

from pulsetrain.insight.report import Study
from pulsetrain.runs.database import Database
from pulsetrain.views import plots
from pulsetrain.views.chart_list import GPU_MEMORY, LOSS, POWER, STEP_TIME, TIME, UTILIZATION
from pulsetrain.views.charts import run_charts, run_span

SHOWN = {
    (chart.group, chart.title): place for place, chart in enumerate((LOSS, STEP_TIME, UTILIZATION, GPU_MEMORY, POWER))
}


def run_picture(study: Study, database: Database, title: str) -> str:
    """Loss, step time, where the time went, utilization, memory and power, as SVG."""
    found = run_charts(study, database)
    charts = sorted(
        (chart for chart in found if (chart.group, chart.title) in SHOWN or chart.group == TIME),
        key=lambda chart: SHOWN.get((chart.group, chart.title), 1.5),
    )
    return plots.sheet_svg(charts, title, run_span(study.report, charts))

"""Panels in pulsetrain's style: stats, charts, bars and tables, with units and help from the catalogue."""

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import bargauge, common, dashboard, stat, table, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from pulsetrain.snapshot import Metric

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#999999"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, GREY)
"""Okabe and Ito's colours, which colour-blind people can tell apart; grey for black, which a dark page hides."""
MOST_GPUS = 16

UNITS = {
    "": "short",
    "MiB": "mbytes",
    "bool": "short",
    "bytes": "bytes",
    "bytes/s": "binBps",
    "celsius": "celsius",
    "cores": "short",
    "errors": "short",
    "events": "short",
    "g/kWh": "suffix: g/kWh",
    "grams": "massg",
    "hertz": "hertz",
    "joules": "joule",
    "operations": "short",
    "packets": "short",
    "percent": "percent",
    "ratio": "percentunit",
    "samples/s": "si:samples/s",
    "seconds": "s",
    "steps": "short",
    "tokens/s": "si:tokens/s",
    "watts": "watt",
}
"""Grafana's word for each unit of the catalogue that a dashboard shows. Its `mbytes` is MiB."""

Panel = bargauge.Panel | stat.Panel | table.Panel | timeseries.Panel
SOURCE = options.DataSourceRef(type_val="prometheus", uid="${datasource}")


class Limits(NamedTuple):
    """Where a value begins to be bad, and where it is."""

    warning: float
    bad: float


TEMPERATURE = Limits(80, 90)
MEMORY = Limits(90, 97)


class Line(NamedTuple):
    """A query and how its series are drawn."""

    expr: str
    legend: str = ""
    colour: str | None = None
    dashed: bool = False


class Column(NamedTuple):
    """A column of a table: a query, with one value for each row."""

    title: str
    expr: str
    unit: str = "short"
    limits: Limits | None = None
    gauge: bool = False
    """A bar in the cell, for a share: up to 100 percent, or 1 when the unit is percentunit."""
    decimals: int | None = None


class Key(NamedTuple):
    """A label that names the rows of a table, and where a click on it leads: a dashboard and its variable."""

    label: str
    title: str
    dashboard: str = ""


def help_of(metric: Metric) -> str:
    return f"{metric.help} `{metric.name}`"


def chart(
    title: str,
    *lines: Line,
    help: str,
    unit: str,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    limits: Limits | None = None,
    maximum: float | None = None,
    decimals: int | None = None,
    minimum: float | None = 0,
    shortest: str = "",
) -> timeseries.Panel:
    """Lines over time; `limits` are drawn as lines across. Points lie at least `shortest` apart."""
    panel = timeseries.Panel().title(title).description(help).datasource(SOURCE).span(width).height(height).unit(unit)
    panel.targets([_range(line, index) for index, line in enumerate(lines)])
    panel.legend(
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.LIST)
        .placement(options.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    panel.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    panel.line_width(1).fill_opacity(40 if stacked else 8).show_points(options.VisibilityMode.NEVER)
    panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL if stacked else options.StackingMode.NONE))
    panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    if minimum is not None:
        panel.min(minimum)
    if maximum is not None:
        panel.max(maximum)
    if decimals is not None:
        panel.decimals(decimals)
    if shortest:
        panel.interval(shortest)
    if limits:
        panel.thresholds(_thresholds(limits, base="transparent"))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED))
    _colour(panel, lines)
    return panel


def chart_of(
    metric: Metric, title: str, *lines: Line, width: int = 12, limits: Limits | None = None
) -> timeseries.Panel:
    """A chart of one metric, with its unit and its help; shares reach up to all."""
    maximum = {"percent": 100.0, "ratio": 1.0}.get(metric.unit)
    return chart(
        title, *lines, help=help_of(metric), unit=UNITS[metric.unit], width=width, limits=limits, maximum=maximum
    )


def number(
    title: str,
    expr: str,
    *,
    help: str,
    unit: str,
    legend: str = "",
    limits: Limits | None = None,
    decimals: int | None = None,
    graph: bool = False,
    instant: bool = False,
    named: bool = False,
    width: int = 3,
) -> stat.Panel:
    """One number, and with `graph` how it came about; `named` shows the legend beside it even when it is alone."""
    panel = stat.Panel().title(title).description(help).datasource(SOURCE).span(width).height(4).unit(unit)
    line = Line(expr, legend)
    panel.targets([_instant(line, 0) if instant else _range(line, 0)])
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    panel.graph_mode(options.BigValueGraphMode.AREA if graph else options.BigValueGraphMode.NONE)
    panel.color_mode(options.BigValueColorMode.VALUE if limits else options.BigValueColorMode.NONE)
    panel.text_mode(options.BigValueTextMode.VALUE_AND_NAME if named else options.BigValueTextMode.AUTO)
    panel.no_value("unknown")
    if limits:
        panel.thresholds(_thresholds(limits, base=GREEN))
        panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
    else:
        panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.FIXED).fixed_color(BLUE))
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def bars(
    title: str,
    expr: str,
    legend: str,
    *,
    help: str,
    unit: str,
    maximum: float,
    limits: Limits | None = None,
    width: int = 8,
) -> bargauge.Panel:
    """A few series by their present value, as bars."""
    panel = bargauge.Panel().title(title).description(help).datasource(SOURCE).span(width).height(9).unit(unit)
    panel.targets([_instant(Line(expr, legend), 0)])
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    panel.orientation(options.VizOrientation.HORIZONTAL).display_mode(options.BarGaugeDisplayMode.BASIC)
    panel.value_mode(options.BarGaugeValueMode.TEXT).min(0).max(maximum)
    if limits:
        panel.thresholds(_thresholds(limits, base=GREEN))
        panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
    else:
        panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.FIXED).fixed_color(BLUE))
    return panel


def rows(
    title: str,
    keys: Sequence[Key],
    columns: Sequence[Column],
    *more: Key,
    help: str,
    sort: str,
    width: int = 24,
    height: int = 9,
) -> table.Panel:
    """A table: a row for each value of the keys. What `more` tells of a row stands behind the columns."""
    panel = table.Panel().title(title).description(help).datasource(SOURCE).span(width).height(height)
    panel.cell_options(options.TableAutoCellOptions())
    panel.targets(
        [_instant(Line(column.expr), index).format(PromQueryFormat.TABLE) for index, column in enumerate(columns)]
    )
    names = {key.label: key.title for key in keys}
    names |= {f"Value #{_ref(index)}": column.title for index, column in enumerate(columns)}
    names |= {key.label: key.title for key in more}
    panel.transformations(
        [
            DataTransformerConfig(id_val="merge", options={}),
            DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True},
                    "indexByName": {name: place for place, name in enumerate(names)},
                    "renameByName": names,
                },
            ),
        ]
    )
    panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    for key in keys:
        if key.dashboard:
            panel.override_by_name(key.title, [DynamicConfigValue("links", [_drill_down(key)])])
    for column in columns:
        panel.override_by_name(column.title, _cells(column))
    return panel


def _cells(column: Column) -> list[DynamicConfigValue]:
    """How the cells of a column look."""
    found = [DynamicConfigValue("unit", column.unit)]
    if column.decimals is not None:
        found.append(DynamicConfigValue("decimals", column.decimals))
    if column.gauge:
        found += [
            DynamicConfigValue("min", 0),
            DynamicConfigValue("max", 1 if column.unit == "percentunit" else 100),
            DynamicConfigValue("custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}),
        ]
    if column.limits:
        found.append(DynamicConfigValue("thresholds", _thresholds(column.limits, base=GREEN).build()))
        found.append(DynamicConfigValue("color", {"mode": "thresholds"}))
    elif column.gauge:
        found.append(DynamicConfigValue("color", {"mode": "fixed", "fixedColor": BLUE}))
    if column.limits and not column.gauge:
        found.append(DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return found


def _drill_down(key: Key) -> dict[str, str]:
    url = f"/d/{key.dashboard}?${{datasource:queryparam}}&var-{key.label}=${{__value.raw:percentencode}}"
    return {"title": f"Open this {key.title.lower()}", "url": f"{url}&${{__url_time_range}}"}


def _colour(panel: timeseries.Panel, lines: Sequence[Line]) -> None:
    """A colour for each query that has one; series that end in a GPU's number get that GPU's, on every panel."""
    for index, line in enumerate(lines):
        properties = []
        if line.colour:
            properties.append(DynamicConfigValue("color", {"mode": "fixed", "fixedColor": line.colour}))
        if line.dashed:
            properties.append(DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}))
            properties.append(DynamicConfigValue("custom.fillOpacity", 0))
        if properties:
            panel.override_by_query(_ref(index), properties)
    if any(line.legend.endswith("{{gpu}}") for line in lines):
        for place, colour in enumerate(COLOURS):
            numbers = "|".join(str(number) for number in range(place, MOST_GPUS, len(COLOURS)))
            fixed = DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})
            panel.override_by_regexp(rf"/\b({numbers})$/", [fixed])


def _thresholds(limits: Limits, base: str) -> dashboard.ThresholdsConfig:
    steps = [Threshold(None, base), Threshold(limits.warning, ORANGE), Threshold(limits.bad, RED)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _range(line: Line, index: int) -> Dataquery:
    return _query(line, index).range()


def _instant(line: Line, index: int) -> Dataquery:
    return _query(line, index).instant()


def _query(line: Line, index: int) -> Dataquery:
    query = Dataquery().expr(line.expr).ref_id(_ref(index)).datasource(SOURCE)
    return query.legend_format(line.legend) if line.legend else query


def _ref(index: int) -> str:
    """A, B, C, ... as Grafana calls queries."""
    return chr(ord("A") + index)

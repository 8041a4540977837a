"""Panels in pulsetrain's style: stats, charts, bars and tables, with units and help from the catalog."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import bargauge, common, dashboard, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from pulsetrain.catalog.time_classes import TIME_CLASSES
from pulsetrain.rules.thresholds import DEFAULTS
from pulsetrain.snapshot import Metric

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GRAY = "#56B4E9", "#CC79A7", "#F0E442", "#999999"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, GRAY)
"""Okabe and Ito's colors, which color-blind people can tell apart; gray for black, which a dark page hides."""
CLASS_COLORS = {
    "data_wait": ORANGE,
    "forward": SKY,
    "backward": BLUE,
    "optimizer": GREEN,
    "compute": BLUE,
    "communication": PURPLE,
    "evaluation": YELLOW,
    "checkpoint": RED,
}
"""Of the time ledger, as in the chart of a step's parts. The others are rare, and have Grafana's own."""
MOST_GPUS = 16
WIDE = 8
"""A chart this wide has room for a table as its legend."""

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
"""Grafana's word for each unit of the catalog that a dashboard shows. Its `mbytes` is MiB."""

Panel = bargauge.Panel | stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel
SOURCE = options.DataSourceRef(type_val="prometheus", uid="${datasource}")


class Limits(NamedTuple):
    """Where a value begins to be bad, and where it is; None where it never is more than a warning."""

    warning: float
    bad: float | None


TEMPERATURE = Limits(DEFAULTS.gpu_hot_celsius, DEFAULTS.gpu_too_hot_celsius)
MEMORY = Limits(DEFAULTS.gpu_memory_full_percent, DEFAULTS.gpu_memory_exhausted_percent)
LOST = Limits(1, 1)
GONE = Limits(1, None)


class Line(NamedTuple):
    """A query and how its series are drawn."""

    expr: str
    legend: str = ""
    color: str | None = None
    dashed: bool = False


class Word(NamedTuple):
    """What a number means, and its color."""

    text: str
    color: str


class Column(NamedTuple):
    """A column of a table: a query, with one value for each row."""

    title: str
    expr: str
    unit: str = "short"
    limits: Limits | None = None
    gauge: bool = False
    """A bar in the cell, for a share: up to 100 percent, or 1 when the unit is percentunit."""
    decimals: int | None = None
    words: Mapping[int, Word] = {}
    """What its values mean, where they are states."""
    width: int | None = None
    """In pixels."""


def labels_alone(expr: str) -> Column:
    """A query that gives a table its rows or some of its labels, and whose value is not shown."""
    return Column("", expr)


class Key(NamedTuple):
    """A label that names the rows of a table, and where a click on it leads: a dashboard and its variable."""

    label: str
    title: str
    dashboard: str = ""
    width: int | None = None
    """In pixels, where it needs more or less than its share."""


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
    empty: str = "Not reported in this time range.",
    many: bool = False,
    last: str = "lastNotNull",
) -> timeseries.Panel:
    """Lines over time; `limits` are drawn as lines across, and `empty` says what is missing when there is nothing.

    With `many` lines the legend is beside them, where there is room for more of it. `last` is how Grafana finds the
    last value for it: `last` shows no number when the newest point has none.
    """
    panel = timeseries.Panel().title(title).description(help).datasource(SOURCE).span(width).height(height).unit(unit)
    panel.targets([_range(line, index) for index, line in enumerate(lines)])
    panel.legend(_legend(width, many, last))
    panel.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    # Without fill: that of many lines adds up to a block that hides them.
    panel.line_width(1).fill_opacity(40 if stacked else 0).show_points(options.VisibilityMode.AUTO)
    panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL if stacked else options.StackingMode.NONE))
    # Not by name: that gives some names a color that a light page hides.
    panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
    panel.no_value(empty)
    if minimum is not None:
        panel.min(minimum)
    if maximum is not None:
        panel.max(maximum)
    elif unit == "short":
        panel.axis_soft_max(1)  # Grafana draws nothing but zeros on an axis up to 100
    if decimals is not None:
        panel.decimals(decimals)
    if limits:
        panel.thresholds(_thresholds(limits, base="transparent"))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED))
    _color(panel, lines)
    return panel


def _legend(width: int, many: bool, last: str) -> common.VizLegendOptions:
    """Each series with its last, mean and highest value, where there is room."""
    place = options.LegendPlacement.RIGHT if many else options.LegendPlacement.BOTTOM
    legend = common.VizLegendOptions().placement(place).show_legend(True)
    if width < WIDE:
        return legend.display_mode(options.LegendDisplayMode.LIST).calcs([])
    return legend.display_mode(options.LegendDisplayMode.TABLE).calcs([last, "mean", "max"])


def time_ledger(*lines: Line, help: str, width: int) -> timeseries.Panel:
    """The classes of the time ledger as shares of all time, in their words."""
    panel = chart(
        "Time ledger",
        *lines,
        help=help,
        unit="percentunit",
        maximum=1,
        stacked=True,
        width=width,
        empty="No report of a training.",
    )
    for name, words in TIME_CLASSES.items():
        properties = [DynamicConfigValue("displayName", words)]
        if name in CLASS_COLORS:
            properties.append(DynamicConfigValue("color", {"mode": "fixed", "fixedColor": CLASS_COLORS[name]}))
        panel.override_by_name(name, properties)
    return panel


def states(title: str, line: Line, *, help: str, empty: str, width: int = 12, height: int = 8) -> statetimeline.Panel:
    """When each series was 1, and in gray when it was 0: what held for a single sample is drawn as well."""
    panel = statetimeline.Panel().title(title).description(help).datasource(SOURCE).span(width).height(height)
    panel.targets([_range(line, 0)]).no_value(empty).show_value(options.VisibilityMode.NEVER).row_height(0.8).per_page(
        10
    )
    panel.merge_values(True).line_width(0).fill_opacity(80)
    panel.legend(
        common.VizLegendOptions()
        .display_mode(options.LegendDisplayMode.LIST)
        .placement(options.LegendPlacement.BOTTOM)
        .show_legend(False)
        .calcs([])
    )
    panel.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.SINGLE).sort(options.SortOrder.NONE))
    panel.thresholds(_thresholds(Limits(0.5, None), base=GRAY))
    panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
    return panel


def chart_of(
    metric: Metric,
    title: str,
    *lines: Line,
    width: int = 12,
    limits: Limits | None = None,
    empty: str = "",
    many: bool = False,
) -> timeseries.Panel:
    """A chart of one metric, with its unit and its help; shares reach up to all."""
    maximum = {"percent": 100.0, "ratio": 1.0}.get(metric.unit)
    return chart(
        title,
        *lines,
        help=help_of(metric),
        unit=UNITS[metric.unit],
        width=width,
        limits=limits,
        maximum=maximum,
        empty=empty or f"{metric.name} is not reported in this time range.",
        many=many,
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
    named: bool = False,
    width: int = 3,
    empty: str = "unknown",
) -> stat.Panel:
    """One number as it is now: what is gone shows no last value. `named` shows its legend even when it is alone."""
    panel = stat.Panel().title(title).description(help).datasource(SOURCE).span(width).height(4).unit(unit)
    panel.targets([_instant(Line(expr, legend), 0)])
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    panel.graph_mode(options.BigValueGraphMode.NONE)
    panel.color_mode(options.BigValueColorMode.VALUE if limits else options.BigValueColorMode.NONE)
    panel.text_mode(options.BigValueTextMode.VALUE_AND_NAME if named else options.BigValueTextMode.AUTO)
    panel.no_value(empty)
    if limits:
        panel.thresholds(_thresholds(limits, base=GREEN))
        panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        # What is not known is not green.
        unknown = DashboardSpecialValueMapOptions(SpecialValueMatch.NULL, ValueMappingResult(empty, GRAY))
        panel.mappings([SpecialValueMap(unknown)])
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
    maximum: float | None,
    limits: Limits | None = None,
    width: int = 8,
    empty: str = "",
) -> bargauge.Panel:
    """A few series by their present value, as bars."""
    panel = bargauge.Panel().title(title).description(help).datasource(SOURCE).span(width).height(9).unit(unit)
    panel.targets([_instant(Line(expr, legend), 0)])
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    panel.orientation(options.VizOrientation.HORIZONTAL).display_mode(options.BarGaugeDisplayMode.BASIC)
    panel.value_mode(options.BarGaugeValueMode.TEXT).min(0)
    if maximum is not None:
        panel.max(maximum)
    if empty:
        panel.no_value(empty)
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
    sort: Sequence[str],
    width: int = 24,
    height: int = 9,
    empty: str = "",
) -> table.Panel:
    """A table: a row for each value of the keys. What `more` tells of a row is behind the columns.

    `sort` names columns, the first counts most; a minus before one puts its highest first. `empty` says why there are
    no rows.
    """
    panel = table.Panel().title(title).description(help).datasource(SOURCE).span(width).height(height)
    panel.cell_options(options.TableAutoCellOptions())
    panel.targets(
        [_instant(Line(column.expr), index).format(PromQueryFormat.TABLE) for index, column in enumerate(columns)]
    )
    names = {key.label: key.title for key in keys}
    values = {f"Value #{_ref(index)}": column.title for index, column in enumerate(columns)}
    if len(columns) == 1:
        values = {"Value": columns[0].title}
    hidden = [name for name, title in values.items() if not title]
    names |= {name: title for name, title in values.items() if title}
    names |= {key.label: key.title for key in more}
    panel.transformations(
        [
            DataTransformerConfig(id_val="merge", options={}),
            DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": dict.fromkeys(["Time", *hidden], True),
                    "indexByName": {name: place for place, name in enumerate(names)},
                    "renameByName": names,
                },
            ),
        ]
    )
    panel.sort_by(
        [common.TableSortByFieldState().display_name(one.removeprefix("-")).desc(one.startswith("-")) for one in sort]
    )
    # Grafana writes what a panel says for lack of rows into every empty cell too.
    blank = [DynamicConfigValue("noValue", "")] if empty else []
    if empty:
        panel.no_value(empty)
    for key in (*keys, *more):
        properties = [DynamicConfigValue("links", [_drill_down(key)])] if key.dashboard else []
        if key.width:
            properties.append(DynamicConfigValue("custom.width", key.width))
        if properties or blank:
            panel.override_by_name(key.title, [*properties, *blank])
    for column in columns:
        if column.title:
            panel.override_by_name(column.title, [*_cells(column), *blank])
    return panel


def _cells(column: Column) -> list[DynamicConfigValue]:
    """How the cells of a column look."""
    found = [DynamicConfigValue("unit", column.unit)]
    if column.width:
        found.append(DynamicConfigValue("custom.width", column.width))
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
    if column.words:
        texts = {str(value): ValueMappingResult(text, color) for value, (text, color) in column.words.items()}
        found.append(DynamicConfigValue("mappings", [ValueMap(texts)]))
    if (column.limits or column.words) and not column.gauge:
        found.append(DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return found


def _drill_down(key: Key) -> dict[str, str]:
    url = f"/d/{key.dashboard}?${{datasource:queryparam}}&var-{key.label}=${{__value.raw:percentencode}}"
    return {"title": f"Open this {key.title.lower()}", "url": f"{url}&${{__url_time_range}}"}


def _color(panel: timeseries.Panel, lines: Sequence[Line]) -> None:
    """A color for each query that has one; series that end in a GPU's number get that GPU's, on every panel."""
    for index, line in enumerate(lines):
        properties = []
        if line.color:
            properties.append(DynamicConfigValue("color", {"mode": "fixed", "fixedColor": line.color}))
        if line.dashed:
            properties.append(DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}))
            properties.append(DynamicConfigValue("custom.fillOpacity", 0))
        if properties:
            panel.override_by_query(_ref(index), properties)
    if any(line.legend.endswith("{{gpu}}") for line in lines):
        for place, color in enumerate(COLORS):
            numbers = "|".join(str(number) for number in range(place, MOST_GPUS, len(COLORS)))
            fixed = DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})
            panel.override_by_regexp(rf"/\b({numbers})$/", [fixed])


def _thresholds(limits: Limits, base: str) -> dashboard.ThresholdsConfig:
    steps = [Threshold(None, base), Threshold(limits.warning, ORANGE)]
    if limits.bad is not None:
        steps.append(Threshold(limits.bad, RED))
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

"""A dashboard: its variables, its links to the others, and its rows of panels."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    VariableRefresh,
    VariableSort,
)

from dashboards.panels import GRAY, ORANGE, SOURCE, Panel
from pulsetrain import catalog

TAG = "pulsetrain"
RUN, FLEET, HOST, REMOTE, CLUSTER = (f"pulsetrain-{name}" for name in ("run", "fleet", "host", "remote", "cluster"))
"""The ids under which dashboards link to each other."""


class Row(NamedTuple):
    """Panels under a title. What is folded asks for no data until it is opened."""

    title: str
    panels: Sequence[Panel]
    repeat: str = ""
    """The variable for each of whose values there is such a row."""
    folded: bool = False


class Board(NamedTuple):
    """All that makes a dashboard."""

    uid: str
    title: str
    description: str
    variables: Sequence[dashboard.QueryVariable]
    header: Sequence[Panel]
    rows: Sequence[Row]
    since: str = "now-1h"
    events: str = ""
    """The labels of the events to mark in all charts, if any. Those for information are marked when switched on."""

    def build(self) -> dict[str, Any]:
        """What Grafana reads."""
        board = dashboard.Dashboard(self.title).uid(self.uid).description(self.description).tags([TAG])
        board.time(self.since, "now").refresh("30s").tooltip(DashboardCursorSync.CROSSHAIR)
        board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        for variable in self.variables:
            board.with_variable(variable)
        board.link(
            dashboard.DashboardLink("pulsetrain")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        if self.events:
            board.annotation(_events("Events", f'{self.events}, severity=~"warning|critical"', ORANGE))
            board.annotation(_events("Info events", f'{self.events}, severity="info"', GRAY).enable(False))
        for panel in self.header:
            board.with_panel(panel)
        for row in self.rows:
            _add(board, row)
        return _tidied(board.build())


def run_variable() -> dashboard.QueryVariable:
    """The newest run first: ids begin with the time."""
    return (
        _variable("run", f"label_values({catalog.RUN_INFO.name}, run)")
        .label("Run")
        .sort(VariableSort.ALPHABETICAL_DESC)
        .multi(True)
    )


def host_variable(among: str = catalog.BUILD_INFO.name) -> dashboard.QueryVariable:
    """One host of those that these series speak of."""
    return _variable("host", f"label_values({among}, host)").label("Host").sort(VariableSort.NATURAL_ASC)


def hosts_variable(among: str = catalog.BUILD_INFO.name) -> dashboard.QueryVariable:
    """Several hosts, or all."""
    return host_variable(among).multi(True).include_all(True)


def gpus_variable() -> dashboard.QueryVariable:
    """Several GPUs of the hosts, or all."""
    return (
        _variable("gpu", f'label_values({catalog.metric("gpu", "up").name}{{host=~"$host"}}, gpu)')
        .label("GPU")
        .sort(VariableSort.NUMERICAL_ASC)
        .multi(True)
        .include_all(True)
    )


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return dashboard.QueryVariable(name).query(query).datasource(SOURCE).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)


def _events(title: str, select: str, color: str) -> dashboard.AnnotationQuery:
    """A mark where a count of events has risen since the last point, or has begun: most kinds come once."""
    name = f"{catalog.EVENTS.name}{{{select}}}"
    earlier = f"{name} offset $__interval"
    query = Dataquery().ref_id(title).expr(f"({name} unless {earlier}) or ({name} > {earlier})").range()
    return (
        dashboard.AnnotationQuery()
        .name(title)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(color)
        .target(query.interval("15s"))
        .title_format("{{kind}}")
        .text_format("{{host}}")
        .tag_keys("severity")
    )


def _add(board: dashboard.Dashboard, row: Row) -> None:
    head = dashboard.Row(row.title).collapsed(row.folded)
    if row.repeat:
        head.repeat(row.repeat)
    if row.folded:
        for panel in row.panels:
            head.with_panel(panel)
    board.with_row(head)
    if not row.folded:
        for panel in row.panels:
            board.with_panel(panel)


def _tidied(built: Dashboard) -> dict[str, Any]:
    """A dashboard as JSON, its panels numbered in their order: the same code gives the same file, and links stay.

    The SDK also sets what nobody asked for: fields of other kinds of variables, links hidden in a menu, and the footer
    that tables had in older versions.
    """
    board: dict[str, Any] = json.loads(json.dumps(built, cls=JSONEncoder))
    panels = [each for panel in board["panels"] for each in (panel, *panel.get("panels", ()))]
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
        panel.get("options", {}).pop("footer", None)
    for variable in board["templating"]["list"]:
        for field in ("auto", "auto_count", "auto_min"):
            del variable[field]
    for shown in (*board["links"], *board["annotations"]["list"]):
        del shown["placement"]
    return board

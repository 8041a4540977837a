"""The dashboard of all machines: which GPUs work, which do not, and what that costs."""

from dashboards import queries
from dashboards.board import FLEET, HOST, RUN, Board, Row, hosts_variable
from dashboards.panels import (
    MEMORY,
    TEMPERATURE,
    UNITS,
    Column,
    Key,
    Limits,
    Line,
    Panel,
    bars,
    chart,
    help_of,
    number,
    rows,
)
from pulsetrain import catalog
from pulsetrain.catalog import metric

SCOPE = queries.Scope()
GPU = "{{host}}/{{gpu}}"
UTILISATION = SCOPE.now("gpu", "utilization_percent")
LOST = Limits(1, 1)


def board() -> Board:
    return Board(
        uid=FLEET,
        title="Fleet",
        description="All hosts and GPUs: the busiest, the idlest, and what idle time costs.",
        variables=[hosts_variable()],
        header=_header(),
        rows=[
            Row("Where to look", _extremes()),
            Row("Hosts", [_hosts()]),
            Row("Runs", [_runs()]),
            Row("Over time", _charts()),
        ],
        since="now-6h",
        events='host=~"$host", severity=~"warning|error"',
    )


def _header() -> list[Panel]:
    used = metric("gpu", "utilization_percent")
    return [
        number(
            "Hosts",
            f"count(count by (host) ({catalog.BUILD_INFO.name}{SCOPE.select('host')}))",
            help="Machines that pulsetrain watches.",
            unit="short",
        ),
        number(
            "GPUs",
            f"sum({SCOPE.now('gpu', 'up')})",
            help="GPUs that answer.",
            unit="short",
        ),
        number(
            "Lost GPUs",
            f"sum({SCOPE.now('gpu', 'up')} == bool 0)",
            help="GPUs that no longer answer.",
            unit="short",
            limits=LOST,
        ),
        number(
            "Utilisation",
            f"avg({UTILISATION})",
            help=f"Mean of all GPUs. {help_of(used)}",
            unit="percent",
            decimals=0,
            graph=True,
        ),
        number(
            "Power",
            f"sum({SCOPE.now('gpu', 'power_draw_watts')})",
            help=f"All GPUs together. {help_of(metric('gpu', 'power_draw_watts'))}",
            unit="watt",
            graph=True,
        ),
        number(
            "Idle GPU-hours",
            queries.idle_hours(SCOPE),
            help="Hours in which a GPU ran no kernel, of all GPUs in the time range, with or without a run.",
            unit="short",
            decimals=1,
            instant=True,
        ),
        number(
            "Idle GPU-hours in runs",
            f"sum({SCOPE.over('increase', 'account', 'gpu_idle_seconds')}) / {queries.SECONDS_PER_HOUR}",
            help="Hours in which a GPU ran no kernel although a run held it, in the time range.",
            unit="short",
            decimals=1,
            instant=True,
        ),
        number(
            "Cost of idle runs",
            queries.idle_cost(SCOPE),
            help="What runs cost in the time range, by the share of their GPU time that was idle.",
            unit="short",
            legend="{{currency}}",
            decimals=2,
            instant=True,
            named=True,
        ),
    ]


def _extremes() -> list[Panel]:
    mean = SCOPE.over("avg_over_time", "gpu", "utilization_percent")
    return [
        bars(
            "Busiest GPUs",
            f"topk(10, {mean})",
            GPU,
            help="Mean utilisation in the time range.",
            unit="percent",
            maximum=100,
        ),
        bars(
            "Idlest GPUs",
            f"bottomk(10, {mean})",
            GPU,
            help="Mean utilisation in the time range.",
            unit="percent",
            maximum=100,
        ),
        bars(
            "Hottest GPUs",
            f"topk(10, {SCOPE.over('max_over_time', 'gpu', 'temperature_celsius')})",
            GPU,
            help="Highest core temperature in the time range.",
            unit="celsius",
            maximum=100,
            limits=TEMPERATURE,
        ),
    ]


def _hosts() -> Panel:
    used, total = (SCOPE.now("host", f"memory_{what}_bytes") for what in ("used", "total"))
    return rows(
        "Hosts",
        [Key("host", "Host", HOST)],
        [
            Column("GPUs", f"sum by (host) ({SCOPE.now('gpu', 'up')})"),
            Column("GPU utilisation", f"avg by (host) ({UTILISATION})", "percent", gauge=True, decimals=0),
            Column(
                "GPU memory",
                f"avg by (host) ({SCOPE.now('gpu', 'memory_percent')})",
                "percent",
                MEMORY,
                gauge=True,
                decimals=0,
            ),
            Column("GPU power", f"sum by (host) ({SCOPE.now('gpu', 'power_draw_watts')})", "watt"),
            Column("Hottest GPU", f"max by (host) ({SCOPE.now('gpu', 'temperature_celsius')})", "celsius", TEMPERATURE),
            Column("CPU", SCOPE.now("host", "cpu_ratio"), "percentunit", gauge=True, decimals=0),
            Column("Memory", f"{used} / {total}", "percentunit", gauge=True, decimals=0),
            Column(
                "Runs", f"count by (host) (count by (host, run) ({catalog.RUN_INFO.name}{SCOPE.select('account')}))"
            ),
        ],
        help="Every host now. Its name leads to all about it.",
        sort="GPU utilisation",
    )


def _runs() -> Panel:
    info = f"{catalog.RUN_INFO.name}{SCOPE.select('account')}"
    hours = queries.SECONDS_PER_HOUR
    return rows(
        "Runs",
        [Key("run", "Run", RUN), Key("name", "Name")],
        [
            Column("Hosts", f"count by (run, name) (count by (run, name, host) (last_over_time({info}[$__range])))"),
            Column("Progress", _last("max", "progress_ratio"), "percentunit", gauge=True, decimals=0),
            Column("Time left", _last("max", "remaining_seconds"), "s"),
            Column("GPU-hours", f"{_last('sum', 'gpu_seconds')} / {hours}", decimals=2),
            Column("Idle GPU-hours", f"{_last('sum', 'gpu_idle_seconds')} / {hours}", decimals=2),
            Column("Energy", f"{_last('sum', 'energy_joules')} / {hours}", "watth"),
            Column("Carbon", _last("sum", "carbon_grams"), UNITS["grams"]),
            Column("Cost", f"sum by (run, currency) ({SCOPE.over('last_over_time', 'account', 'cost')})", decimals=2),
        ],
        Key("currency", "Currency"),
        help="Runs of the time range, with what they have used from their beginning. The id leads to all about it.",
        sort="Run",
    )


def _last(by_host: str, field: str) -> str:
    """What a run last said of itself, over its hosts."""
    return f"{by_host} by (run) ({SCOPE.over('last_over_time', 'account', field)})"


def _charts() -> list[Panel]:
    return [
        chart(
            "GPU utilisation",
            Line(f"avg by (host) ({UTILISATION})", "{{host}}"),
            help="Mean of each host's GPUs.",
            unit="percent",
            maximum=100,
        ),
        chart(
            "GPU power",
            Line(f"sum by (host) ({SCOPE.now('gpu', 'power_draw_watts')})", "{{host}}"),
            help="All GPUs of each host together.",
            unit="watt",
            stacked=True,
        ),
        chart(
            "Idle GPUs",
            Line(f"sum by (host) ({UTILISATION} == bool 0)", "{{host}}"),
            help="GPUs that run no kernel.",
            unit="short",
            stacked=True,
        ),
        chart(
            "Hottest GPU",
            Line(f"max by (host) ({SCOPE.now('gpu', 'temperature_celsius')})", "{{host}}"),
            help=help_of(metric("gpu", "temperature_celsius")),
            unit="celsius",
            limits=TEMPERATURE,
        ),
    ]

"""The dashboard of all machines: which GPUs work, which do not, and what that costs."""

from dashboards import queries, tables
from dashboards.board import FLEET, HOST, RUN, Board, Row, hosts_variable
from dashboards.panels import (
    GONE,
    LOST,
    MEMORY,
    TEMPERATURE,
    UNITS,
    Column,
    Key,
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
UTILIZATION, MEMORY_PERCENT, WATTS, CELSIUS, UP, IDLE = (
    queries.recorded(f"host:{what}")
    for what in (
        "gpu_utilization_percent:avg",
        "gpu_memory_percent:avg",
        "gpu_power_draw_watts:sum",
        "gpu_temperature_celsius:max",
        "gpus_up:count",
        "gpus_idle:count",
    )
)
"""Of each host: worked out by the recording rules, so that the page reads few series of a large fleet."""


def board() -> Board:
    return Board(
        uid=FLEET,
        title="Fleet",
        description="All hosts and GPUs: the busiest, the idlest, and what idle time costs.",
        variables=[hosts_variable()],
        header=_header(),
        rows=[
            Row("Where to look", [tables.alerts('host=~"$host|"'), *_extremes()]),
            Row("Hosts", [_hosts()]),
            Row("Runs", [_runs()]),
            Row("GPUs", [tables.gpus(SCOPE)]),
            Row("Over time", _charts()),
        ],
        since="now-6h",
        events='host=~"$host"',
    )


def _header() -> list[Panel]:
    return [
        number("Hosts", queries.hosts(SCOPE), help="Machines seen now.", unit="short", width=4),
        number(
            "Hosts not seen",
            queries.hosts_gone(SCOPE),
            help="Machines seen in the time range, but not now. One that only a run reports disappears with it.",
            unit="short",
            limits=GONE,
            width=4,
        ),
        number("GPUs", queries.gpus(SCOPE), help="GPUs that answer now.", unit="short", width=4),
        number(
            "Lost GPUs",
            queries.gpus_lost(SCOPE),
            help="GPUs that no longer answer although their machine does.",
            unit="short",
            limits=LOST,
            width=4,
            empty="no GPU",
        ),
        number(
            "GPUs not seen",
            queries.gpus_gone(SCOPE),
            help="GPUs seen in the time range that nothing reports now.",
            unit="short",
            limits=GONE,
            width=4,
        ),
        number(
            "Utilization",
            _utilization(),
            help=f"Mean of all GPUs now. {help_of(metric('gpu', 'utilization_percent'))}",
            unit="percent",
            decimals=0,
            width=4,
            empty="no GPU",
        ),
        number(
            "Power",
            f"sum({WATTS})",
            help=f"All GPUs together, now. {help_of(metric('gpu', 'power_draw_watts'))}",
            unit="watt",
            width=6,
            empty="no GPU",
        ),
        number(
            "Idle GPU-hours",
            queries.idle_hours(),
            help="Hours in which GPUs ran no kernel in the time range, with or without a run.",
            unit="short",
            decimals=1,
            width=6,
        ),
        number(
            "Idle GPU-hours in runs",
            f"sum({SCOPE.over('increase', 'account', 'gpu_idle_seconds')}) / {queries.SECONDS_PER_HOUR}",
            help="Hours in which a GPU ran no kernel although a run held it, in the time range.",
            unit="short",
            decimals=1,
            width=6,
            empty="no run",
        ),
        number(
            "Cost of idle runs",
            queries.idle_cost(SCOPE),
            help="What runs cost in the time range, times the share of their GPU time that was idle.",
            unit="short",
            legend="{{currency}}",
            decimals=2,
            named=True,
            width=6,
            empty="no price known",
        ),
    ]


def _utilization() -> str:
    """The mean of all GPUs, however many each host has."""
    gpus = queries.recorded("host:gpu_utilization_percent:count")
    return f"sum({UTILIZATION} * {gpus}) / sum({gpus})"


def _extremes() -> list[Panel]:
    mean = SCOPE.over("avg_over_time", "gpu", "utilization_percent")
    return [
        bars(
            "Busiest GPUs, mean over the time range",
            f"topk(10, {mean})",
            GPU,
            help="Mean utilization in the time range, including GPUs that are gone now.",
            unit="percent",
            maximum=100,
        ),
        bars(
            "Idlest GPUs, mean over the time range",
            f"bottomk(10, {mean})",
            GPU,
            help="Mean utilization in the time range, including GPUs that are gone now.",
            unit="percent",
            maximum=100,
        ),
        bars(
            "Hottest GPUs, peak in the time range",
            f"topk(10, {SCOPE.over('max_over_time', 'gpu', 'temperature_celsius')})",
            GPU,
            help="Highest core temperature in the time range, including GPUs that are gone now.",
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
            Column("State", queries.host_state(SCOPE), words=tables.HOST_STATES, width=90),
            Column("Last seen", queries.host_seen_seconds(SCOPE), "s", width=115),
            Column("GPUs", UP, width=60),
            Column("GPU utilization", UTILIZATION, "percent", gauge=True, decimals=0, width=140),
            Column(
                "GPU memory",
                MEMORY_PERCENT,
                "percent",
                MEMORY,
                gauge=True,
                decimals=0,
                width=140,
            ),
            Column("GPU power", WATTS, "watt", width=95),
            Column(
                "Hottest GPU",
                CELSIUS,
                "celsius",
                TEMPERATURE,
                width=110,
            ),
            Column("CPU", SCOPE.now("host", "cpu_ratio"), "percentunit", gauge=True, decimals=0, width=120),
            Column("Memory", f"{used} / {total}", "percentunit", gauge=True, decimals=0, width=120),
            Column(
                "Runs",
                f"count by (host) (count by (host, run) ({catalog.RUN_INFO.name}{SCOPE.select('account')}))",
                width=60,
            ),
        ],
        help="Every host of the time range, as it is now: one that is gone is listed as not seen. Its name "
        "links to its dashboard. `Last seen` is to the minute.",
        sort=["State", "-Last seen", "Host"],
        empty="No host in this time range.",
    )


def _runs() -> Panel:
    info = f"{catalog.RUN_INFO.name}{SCOPE.select('account')}"
    hours = queries.SECONDS_PER_HOUR
    return rows(
        "Runs",
        [Key("name", "Name"), Key("run", "Run", RUN, width=260)],
        [
            Column("State", queries.run_state(SCOPE), words=tables.RUN_STATES, width=150),
            Column(
                "Hosts",
                f"count by (run, name) (count by (run, name, host) (last_over_time({info}[$__range])))",
                width=60,
            ),
            Column("Progress", _last("max", "progress_ratio"), "percentunit", gauge=True, decimals=0, width=120),
            Column("Time left", f"max by (run) ({SCOPE.now('account', 'remaining_seconds')})", "s", width=95),
            Column("GPU-hours", f"{_last('sum', 'gpu_seconds')} / {hours}", decimals=2, width=95),
            Column("Idle GPU-hours", f"{_last('sum', 'gpu_idle_seconds')} / {hours}", decimals=2, width=120),
            Column("Energy", f"{_last('sum', 'energy_joules')} / {hours}", "watth", width=95),
            Column("Carbon", _last("sum", "carbon_grams"), UNITS["grams"], width=85),
            Column(
                "Cost",
                f"sum by (run, currency) ({SCOPE.over('last_over_time', 'account', 'cost')})",
                decimals=2,
                width=80,
            ),
        ],
        Key("currency", "Currency", width=80),
        help="Runs of the time range, with what they have used since they began. The id links to the run's dashboard.",
        sort=["-Run"],
        empty="No run in this time range.",
    )


def _last(by_host: str, field: str) -> str:
    """What a run last said of itself, over its hosts."""
    return f"{by_host} by (run) ({SCOPE.over('last_over_time', 'account', field)})"


def _charts() -> list[Panel]:
    return [
        chart(
            "GPU utilization",
            Line(UTILIZATION, "{{host}}"),
            help="Mean of each host's GPUs.",
            unit="percent",
            maximum=100,
            many=True,
        ),
        chart(
            "GPU power",
            Line(WATTS, "{{host}}"),
            help="All GPUs of each host together.",
            unit="watt",
            stacked=True,
            many=True,
        ),
        chart(
            "Idle GPUs",
            Line(IDLE, "{{host}}"),
            help="GPUs that run no kernel.",
            unit="short",
            stacked=True,
            many=True,
        ),
        chart(
            "Hottest GPU",
            Line(CELSIUS, "{{host}}"),
            help=help_of(metric("gpu", "temperature_celsius")),
            unit="celsius",
            limits=TEMPERATURE,
            many=True,
        ),
    ]

"""What several dashboards have: GPUs in charts and with their health in a table, and alerts that fire."""

from dashboards import queries
from dashboards.board import HOST, RUN
from dashboards.panels import (
    GRAY,
    GREEN,
    LOST,
    MEMORY,
    ORANGE,
    RED,
    TEMPERATURE,
    Column,
    Key,
    Limits,
    Line,
    Panel,
    Word,
    chart_of,
    labels_alone,
    rows,
)
from pulsetrain import catalog

GPU_STATES = {2: Word("answers", GREEN), 1: Word("lost", RED), 0: Word("not seen", ORANGE)}
HOST_STATES = {1: Word("seen", GREEN), 0: Word("not seen", ORANGE)}
RUN_STATES = {1: Word("in progress", GREEN), 0: Word("ended or not seen", GRAY)}
_HOLDS = {0: Word("no", GREEN)} | {
    grave: Word(words, RED if grave == max(queries.HOLDS) else ORANGE) for grave, (words, _) in queries.HOLDS.items()
}
ALERTS = "ALERTS"
"""What Prometheus and vmalert write for the alerts that they evaluate."""


def gpu_charts(scope: queries.Scope, legend: str) -> list[Panel]:
    """What each GPU does over time."""

    def one(field: str, title: str, limits: Limits | None = None) -> Panel:
        line = Line(scope.now("gpu", field), legend)
        return chart_of(catalog.metric("gpu", field), title, line, limits=limits, many=True)

    return [
        one("utilization_percent", "Utilization"),
        one("memory_percent", "Memory", MEMORY),
        one("power_draw_watts", "Power"),
        one("temperature_celsius", "Temperature", TEMPERATURE),
    ]


def gpus(scope: queries.Scope) -> Panel:
    """What each GPU is, how it is doing, and what holds it back."""

    def each(expr: str) -> str:
        return f"max by (host, gpu) ({expr})"

    return rows(
        "GPUs",
        [
            Key("host", "Host", HOST),
            Key("gpu", "GPU", width=70),
            Key("name", "Model", width=185),
            Key("version", "Driver", width=85),
        ],
        [
            labels_alone(queries.gpu_description(scope)),
            Column("State", queries.gpu_state(scope), words=GPU_STATES, width=80),
            Column(
                "Utilization",
                each(scope.now("gpu", "utilization_percent")),
                "percent",
                gauge=True,
                decimals=0,
                width=105,
            ),
            Column(
                "Memory", each(scope.now("gpu", "memory_percent")), "percent", MEMORY, gauge=True, decimals=0, width=105
            ),
            Column("Power", each(scope.now("gpu", "power_draw_watts")), "watt", decimals=0, width=70),
            Column(
                "Temperature",
                each(scope.now("gpu", "temperature_celsius")),
                "celsius",
                TEMPERATURE,
                decimals=0,
                width=105,
            ),
            Column("Clock", each(scope.now("gpu", "clock_sm_hertz")), "hertz", width=80),
            Column("Throttled by", queries.gpu_holds(scope), words=_HOLDS, width=120),
            Column("XID errors", each(scope.now("gpu", "xid_errors")), limits=LOST, width=95),
            Column("ECC errors", each(scope.now("gpu", "ecc_uncorrected_errors")), limits=LOST, width=95),
        ],
        help="Every GPU of the time range, as it is now; lost and unseen ones first. ECC errors are uncorrected "
        "ones, over the device's life; XID errors count from when pulsetrain started.",
        sort=["State", "Host", "GPU"],
        height=10,
    )


def _alerts_since(select: str) -> str:
    """Since when each alert fires, in seconds: of Prometheus, and of pulsetrain's own engine where those lack it.

    A rule may have no host or no run in Prometheus, where the engine always knows both.
    """
    keys = ("alertname", "severity", "host", "run", "gpu", "rank")

    firing = f'{ALERTS}{{alertstate="firing", {select}}}'

    def without(label: str) -> str:
        rest = ", ".join(key for key in keys if key != label)
        return f'unless on ({rest}) {ALERTS}{{alertstate="firing", {label}="", {select}}}'

    by = f"by ({', '.join(keys)})"

    def own(exporter: str) -> str:
        series = f"{catalog.ALERT.name}{{{exporter}, {select}}}"
        earliest = f"min {by} (min_over_time(timestamp({series})[$__range:1m]) and {series})"
        newest = f"max {by} (timestamp({series}))"  # one that began after the last whole minute
        return f"({earliest} or {newest})"

    def evaluated(exporter: str) -> str:
        series = f"{ALERTS}_FOR_STATE{{{exporter}, {select}}}"
        return f"max {by} ({series} and ignoring (alertstate) {firing})"

    # What both a run and the agent of its machine show is the run's.
    same = "unless on (alertname, host, gpu, rank)"
    of_run, of_agent = 'run!=""', 'run=""'
    engines = f"({own(of_run)} or ({own(of_agent)} {same} {catalog.ALERT.name}{{{of_run}, {select}}}))"
    of_prometheus = f"({evaluated(of_run)} or ({evaluated(of_agent)} {same} {evaluated(of_run)}))"
    return f"{of_prometheus} or ({engines} {without('host')} {without('run')})"


def alerts(select: str) -> Panel:
    """What fires now, of the alerts with these labels, the gravest first. Those for information would hide them."""
    grave = f'severity=~"warning|critical", {select}'
    return rows(
        "Firing alerts",
        [
            Key("alertname", "Alert", width=160),
            Key("severity", "Severity", width=100),
            Key("run", "Run", RUN, width=260),
            Key("host", "Host", HOST),
            Key("gpu", "GPU", width=60),
            Key("rank", "Rank", width=60),
        ],
        [Column("Since", f"1000 * ({_alerts_since(grave)})", "dateTimeFromNow", width=140)],
        help="Warnings and critical alerts now: from the rules that Prometheus evaluates (`pulsetrain stack` "
        "installs them), and those that pulsetrain finds itself (`pulsetrain_alert`), each listed once. For the "
        "latter, `Since` reaches back to the start of the time range at most.",
        sort=["Severity", "-Since"],
        height=5,
        empty="No warning or critical alert from what is seen now.",
    )

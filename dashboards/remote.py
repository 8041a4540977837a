"""The dashboard of machines that are far away, such as a Colab notebook: does data still come, and what does it say."""

from dashboards import queries
from dashboards.board import HOST, REMOTE, Board, Row, gpus_variable, hosts_variable
from dashboards.panels import (
    MEMORY,
    UNITS,
    Column,
    Key,
    Limits,
    Line,
    Panel,
    chart,
    chart_of,
    help_of,
    number,
    rows,
)
from pulsetrain import catalog
from pulsetrain.catalog import metric
from pulsetrain.rules.thresholds import DEFAULTS

SCOPE = queries.Scope(gpu=True)
AGE = Limits(30, 120)
_AGES = f"{catalog.DATA_AGE.name}{SCOPE.select('host')}"
_LAST_HEARD = f"time() - max by (host) (max_over_time(timestamp({_AGES})[$__range:15s]))"
_UTILIZATION = f"avg by (host) ({SCOPE.now('gpu', 'utilization_percent')})"
_GPU_MEMORY = f"max by (host) ({SCOPE.now('gpu', 'memory_percent')})"
_MEMORY = " / ".join(SCOPE.now("host", f"memory_{what}_bytes") for what in ("used", "total"))


def board() -> Board:
    return Board(
        uid=REMOTE,
        title="Colab / remote",
        description="Machines that come and go: the age of their data, how long readings take, GPUs and memory.",
        variables=[hosts_variable(catalog.DATA_AGE.name), gpus_variable()],
        header=_header(),
        rows=[Row("Is data arriving", _arrival()), Row("The machine", _machine()), Row("The training", _training())],
        events='host=~"$host"',
    )


def _header() -> list[Panel]:
    used, total = (f"sum({SCOPE.now('host', f'memory_{what}_bytes')})" for what in ("used", "total"))
    return [
        number(
            "Data age",
            f"topk(1, max by (host) ({_AGES}))",
            help=f"Of the machine whose data is oldest. {help_of(catalog.DATA_AGE)}",
            unit="s",
            legend="{{host}}",
            limits=AGE,
            named=True,
            width=4,
            empty="no host",
        ),
        number(
            "Last heard from",
            f"topk(1, {_LAST_HEARD})",
            help="Time since the last sample reached this data source, to 15 seconds, for the machine silent longest.",
            unit="s",
            legend="{{host}}",
            limits=AGE,
            named=True,
            width=4,
            empty="no host",
        ),
        number(
            "Fetch latency",
            f"max({SCOPE.now('host', 'fetch_seconds')}) or max({SCOPE.now('host', 'source_read_seconds')})",
            help=f"{help_of(metric('host', 'fetch_seconds'))} Without `pulsetrain fetch`, of the slowest source.",
            unit="s",
            width=4,
        ),
        number(
            "GPU utilization",
            f"avg({SCOPE.now('gpu', 'utilization_percent')})",
            help=help_of(metric("gpu", "utilization_percent")),
            unit="percent",
            decimals=0,
            width=4,
        ),
        number(
            "GPU memory",
            f"max({SCOPE.now('gpu', 'memory_percent')})",
            help=f"Of the fullest GPU. {help_of(metric('gpu', 'memory_percent'))}",
            unit="percent",
            decimals=0,
            limits=MEMORY,
            width=4,
        ),
        number(
            "Memory",
            f"{used} / {total}",
            help=help_of(metric("host", "memory_used_bytes")),
            unit="percentunit",
            decimals=0,
            limits=Limits(DEFAULTS.gpu_memory_full_percent / 100, DEFAULTS.gpu_memory_exhausted_percent / 100),
            width=4,
        ),
    ]


def _arrival() -> list[Panel]:
    return [
        _machines(),
        chart(
            "Data age",
            Line(f"max by (host, data) ({_AGES})", "{{host}} {{data}}"),
            help=help_of(catalog.DATA_AGE),
            unit="s",
            limits=AGE,
            many=True,
        ),
        chart(
            "Fetch latency",
            Line(_latency(), "{{host}}"),
            help=f"{help_of(metric('host', 'fetch_seconds'))} Without `pulsetrain fetch`, of the slowest source.",
            unit="s",
            many=True,
        ),
    ]


def _latency() -> str:
    fetch, read = (f"max by (host) ({SCOPE.now('host', field)})" for field in ("fetch_seconds", "source_read_seconds"))
    return f"{fetch} or {read}"


def _machines() -> Panel:
    return rows(
        "Machines",
        [Key("host", "Host", HOST)],
        [
            Column("Last heard from", _LAST_HEARD, "s", AGE, width=155),
            Column("Data age", f"max by (host) ({_AGES})", "s", AGE, width=130),
            Column("Fetch latency", _latency(), "s", width=115),
            Column("GPU utilization", _UTILIZATION, "percent", gauge=True, decimals=0, width=140),
            Column("GPU memory", _GPU_MEMORY, "percent", MEMORY, gauge=True, decimals=0, width=140),
            Column("CPU", SCOPE.now("host", "cpu_ratio"), "percentunit", gauge=True, decimals=0, width=120),
            Column("Memory", _MEMORY, "percentunit", gauge=True, decimals=0, width=120),
        ],
        help="Every machine of the time range, the one silent longest first; nothing else is known of one that "
        "is gone. Its name links to its dashboard.",
        sort=["-Last heard from", "Host"],
        empty="No host in this time range.",
    )


def _machine() -> list[Panel]:
    return [
        chart(
            "GPU utilization",
            Line(_UTILIZATION, "{{host}}"),
            help=f"Mean of each host's chosen GPUs. {help_of(metric('gpu', 'utilization_percent'))}",
            unit="percent",
            width=8,
            maximum=100,
        ),
        chart(
            "GPU memory",
            Line(_GPU_MEMORY, "{{host}}"),
            help=f"Of each host's fullest GPU. {help_of(metric('gpu', 'memory_percent'))}",
            unit="percent",
            width=8,
            maximum=100,
            limits=MEMORY,
        ),
        chart_of(metric("host", "cpu_ratio"), "CPU", Line(SCOPE.now("host", "cpu_ratio"), "{{host}}"), width=8),
        chart(
            "Memory",
            Line(_MEMORY, "{{host}}"),
            help=help_of(metric("host", "memory_used_bytes")),
            unit="percentunit",
            width=8,
            maximum=1,
        ),
        chart(
            "Disk",
            Line(SCOPE.rate("host", "disk_read_bytes"), "{{host}} read"),
            Line(f"-({SCOPE.rate('host', 'disk_written_bytes')})", "{{host}} written"),
            help="Read above the line, written below. All disks together.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
        chart(
            "Network",
            Line(SCOPE.rate("host", "network_received_bytes"), "{{host}} received"),
            Line(f"-({SCOPE.rate('host', 'network_sent_bytes')})", "{{host}} sent"),
            help="Received above the line, sent below. All network interfaces together.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
    ]


def _training() -> list[Panel]:
    return [
        chart(
            "Loss",
            Line(queries.by_run_name(f"avg by (run) ({SCOPE.now('training', 'loss')})"), "{{name}}"),
            help=help_of(metric("training", "loss")),
            unit="short",
            minimum=None,
            empty="No loss is reported, or it is NaN.",
        ),
        chart(
            "Samples",
            Line(queries.by_run_name(f"sum by (run) ({SCOPE.rate('training', 'samples')})"), "{{name}}"),
            help="Samples per second, of all ranks together.",
            unit=UNITS["samples/s"],
            empty="No samples are reported.",
        ),
    ]

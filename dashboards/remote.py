"""The dashboard of machines that are far away, such as a Colab notebook: does data still come, and what does it say."""

from dashboards import queries
from dashboards.board import REMOTE, Board, Row, gpus_variable, hosts_variable
from dashboards.panels import (
    BLUE,
    GRAY,
    MEMORY,
    ORANGE,
    UNITS,
    Limits,
    Line,
    Panel,
    chart,
    chart_of,
    help_of,
    number,
)
from pulsetrain import catalog
from pulsetrain.catalog import metric
from pulsetrain.rules.thresholds import DEFAULTS

SCOPE = queries.Scope(gpu=True)
GPU = "{{host}}/{{gpu}}"
AGE = Limits(30, 120)
_AGES = f"{catalog.DATA_AGE.name}{SCOPE.select('host')}"


def board() -> Board:
    return Board(
        uid=REMOTE,
        title="Colab / remote",
        description="Machines that come and go: the age of their data, how long readings take, GPUs and memory.",
        variables=[hosts_variable(catalog.DATA_AGE.name), gpus_variable()],
        header=_header(),
        rows=[Row("Does data come", _arrival()), Row("The machine", _machine()), Row("The training", _training())],
        events='host=~"$host"',
    )


def _header() -> list[Panel]:
    used, total = (f"sum({SCOPE.now('host', f'memory_{what}_bytes')})" for what in ("used", "total"))
    return [
        number(
            "Age of the data",
            f"topk(1, max by (host) ({_AGES}))",
            help=f"Of the machine whose data are oldest. {help_of(catalog.DATA_AGE)}",
            unit="s",
            legend="{{host}}",
            limits=AGE,
            named=True,
            width=4,
            empty="no host",
        ),
        number(
            "Last heard of",
            f"topk(1, time() - max by (host) (max_over_time(timestamp({_AGES})[$__range:15s])))",
            help="Since the last sample that reached this data source, to 15 seconds, of the machine silent longest.",
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
        chart(
            "Age of the data",
            Line(f"max by (host, data) ({_AGES})", "{{host}} {{data}}"),
            help=help_of(catalog.DATA_AGE),
            unit="s",
            limits=AGE,
        ),
        chart_of(
            metric("host", "source_read_seconds"),
            "Fetch latency",
            Line(
                f"{SCOPE.now('host', 'fetch_seconds')} or {SCOPE.now('host', 'source_read_seconds')}",
                "{{host}} {{source}}",
            ),
        ),
    ]


def _machine() -> list[Panel]:
    return [
        chart_of(
            metric("gpu", "utilization_percent"),
            "GPU utilization",
            Line(SCOPE.now("gpu", "utilization_percent"), GPU),
            width=8,
        ),
        chart_of(
            metric("gpu", "memory_percent"),
            "GPU memory",
            Line(SCOPE.now("gpu", "memory_percent"), GPU),
            width=8,
            limits=MEMORY,
        ),
        chart_of(metric("host", "cpu_ratio"), "CPU", Line(SCOPE.now("host", "cpu_ratio"), "{{host}}"), width=8),
        chart(
            "Memory",
            Line(SCOPE.now("host", "memory_used_bytes"), "{{host}} used", BLUE),
            Line(SCOPE.now("host", "memory_total_bytes"), "{{host}} installed", GRAY, True),
            help=help_of(metric("host", "memory_used_bytes")),
            unit="bytes",
            width=8,
        ),
        chart(
            "Disk",
            Line(SCOPE.rate("host", "disk_read_bytes"), "{{host}} read", BLUE),
            Line(SCOPE.rate("host", "disk_written_bytes"), "{{host}} written", ORANGE),
            help="All disks together.",
            unit="binBps",
            width=8,
        ),
        chart(
            "Network",
            Line(SCOPE.rate("host", "network_received_bytes"), "{{host}} received", BLUE),
            Line(SCOPE.rate("host", "network_sent_bytes"), "{{host}} sent", ORANGE),
            help="All network cards together.",
            unit="binBps",
            width=8,
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

"""The dashboard of a cluster at work: GPU, CPU and network of every node side by side, to see which one lags."""

from dashboards import queries
from dashboards.board import CLUSTER, HOST, Board, Row, hosts_variable
from dashboards.panels import MEMORY, Column, Key, Line, Panel, chart, help_of, number, rows
from pulsetrain import catalog
from pulsetrain.catalog import metric

SCOPE = queries.Scope()


def board() -> Board:
    return Board(
        uid=CLUSTER,
        title="Cluster profiler",
        description="GPU, CPU and network of every node at a glance, and which node holds the others back.",
        variables=[hosts_variable()],
        header=_header(),
        rows=[
            Row("Nodes now", [_nodes()]),
            Row("GPU", _gpu()),
            Row("CPU and memory", _machine()),
            Row("Network and storage", _traffic()),
            Row("Training", _training()),
        ],
        events='host=~"$host", severity=~"warning|error"',
    )


def _by_host(function: str, expr: str) -> Line:
    return Line(f"{function} by (host) ({expr})", "{{host}}")


def _header() -> list[Panel]:
    return [
        number(
            "Nodes",
            f"count(count by (host) ({catalog.BUILD_INFO.name}{SCOPE.select('host')}))",
            help="Machines that pulsetrain watches.",
            unit="short",
            width=4,
        ),
        number("GPUs", f"sum({SCOPE.now('gpu', 'up')})", help="GPUs that answer.", unit="short", width=4),
        number(
            "GPU utilisation",
            f"avg({SCOPE.now('gpu', 'utilization_percent')})",
            help=help_of(metric("gpu", "utilization_percent")),
            unit="percent",
            decimals=0,
            graph=True,
            width=4,
        ),
        number(
            "CPU",
            f"avg({SCOPE.now('host', 'cpu_ratio')})",
            help=help_of(metric("host", "cpu_ratio")),
            unit="percentunit",
            decimals=0,
            graph=True,
            width=4,
        ),
        number(
            "Network received",
            f"sum({SCOPE.rate('host', 'network_received_bytes')})",
            help=help_of(metric("host", "network_received_bytes")),
            unit="binBps",
            graph=True,
            width=4,
        ),
        number(
            "GPU power",
            f"sum({SCOPE.now('gpu', 'power_draw_watts')})",
            help=help_of(metric("gpu", "power_draw_watts")),
            unit="watt",
            graph=True,
            width=4,
        ),
    ]


def _nodes() -> Panel:
    used, total = (SCOPE.now("host", f"memory_{what}_bytes") for what in ("used", "total"))
    return rows(
        "Nodes",
        [Key("host", "Host", HOST)],
        [
            Column("CPU", SCOPE.now("host", "cpu_ratio"), "percentunit", gauge=True, decimals=0),
            Column("Memory", f"{used} / {total}", "percentunit", gauge=True, decimals=0),
            Column(
                "GPU", f"avg by (host) ({SCOPE.now('gpu', 'utilization_percent')})", "percent", gauge=True, decimals=0
            ),
            Column(
                "GPU memory",
                f"max by (host) ({SCOPE.now('gpu', 'memory_percent')})",
                "percent",
                MEMORY,
                gauge=True,
                decimals=0,
            ),
            Column("Received", SCOPE.rate("host", "network_received_bytes"), "binBps"),
            Column("Sent", SCOPE.rate("host", "network_sent_bytes"), "binBps"),
            Column("Read", SCOPE.rate("host", "disk_read_bytes"), "binBps"),
            Column("Written", SCOPE.rate("host", "disk_written_bytes"), "binBps"),
        ],
        help="Every node now. Its name leads to all about it.",
        sort="GPU",
    )


def _gpu() -> list[Panel]:
    return [
        chart(
            "GPU utilisation",
            _by_host("avg", SCOPE.now("gpu", "utilization_percent")),
            help=f"Mean of each node's GPUs. {help_of(metric('gpu', 'utilization_percent'))}",
            unit="percent",
            width=8,
            maximum=100,
        ),
        chart(
            "Least busy GPU",
            _by_host("min", SCOPE.now("gpu", "utilization_percent")),
            help="Of each node. One GPU that idles while the others work makes them wait.",
            unit="percent",
            width=8,
            maximum=100,
        ),
        chart(
            "GPU memory",
            _by_host("max", SCOPE.now("gpu", "memory_percent")),
            help=f"Of each node's fullest GPU. {help_of(metric('gpu', 'memory_percent'))}",
            unit="percent",
            width=8,
            maximum=100,
            limits=MEMORY,
        ),
    ]


def _machine() -> list[Panel]:
    used, total = (SCOPE.now("host", f"memory_{what}_bytes") for what in ("used", "total"))
    return [
        chart(
            "CPU",
            Line(SCOPE.now("host", "cpu_ratio"), "{{host}}"),
            help=help_of(metric("host", "cpu_ratio")),
            unit="percentunit",
            width=8,
            maximum=1,
        ),
        chart(
            "Waiting for I/O",
            Line(SCOPE.now("host", "cpu_iowait_ratio"), "{{host}}"),
            help=help_of(metric("host", "cpu_iowait_ratio")),
            unit="percentunit",
            width=8,
        ),
        chart(
            "Memory",
            Line(f"{used} / {total}", "{{host}}"),
            help=help_of(metric("host", "memory_used_bytes")),
            unit="percentunit",
            width=8,
            maximum=1,
        ),
    ]


def _traffic() -> list[Panel]:
    return [
        chart(
            "Network",
            Line(SCOPE.rate("host", "network_received_bytes"), "{{host}} received"),
            Line(f"-({SCOPE.rate('host', 'network_sent_bytes')})", "{{host}} sent"),
            help="Received, above; sent, below the line. All network cards together.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
        chart(
            "NVLink",
            _by_host("sum", SCOPE.rate("gpu", "nvlink_received_bytes")),
            help=f"All GPUs of each node. {help_of(metric('gpu', 'nvlink_received_bytes'))}",
            unit="binBps",
            width=8,
        ),
        chart(
            "Disks",
            Line(SCOPE.rate("host", "disk_read_bytes"), "{{host}} read"),
            Line(f"-({SCOPE.rate('host', 'disk_written_bytes')})", "{{host}} written"),
            help="Read, above; written, below the line. All disks together.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
    ]


def _training() -> list[Panel]:
    return [
        chart(
            "Step duration",
            Line(queries.step_seconds(SCOPE, "run, host"), "{{host}} {{run}}"),
            help="Mean duration of a step. A node above the others of its run holds them back.",
            unit="s",
        ),
        chart(
            "Waiting for data",
            Line(queries.data_wait_share(SCOPE, "run, host"), "{{host}} {{run}}"),
            help="Share of the time in which the training waited for its next batch.",
            unit="percentunit",
            maximum=1,
        ),
    ]

"""The dashboard of a cluster at work: GPU, CPU and network of every node side by side, to see which one lags."""

from dashboards import queries, tables
from dashboards.board import CLUSTER, HOST, RUN, Board, Row, hosts_variable
from dashboards.panels import (
    GONE,
    GRAY,
    MEMORY,
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
    time_ledger,
)
from pulsetrain import catalog
from pulsetrain.catalog import metric
from pulsetrain.catalog.time_classes import COMPUTE_CLASSES, TIME_CLASSES

SCOPE = queries.Scope()


def board() -> Board:
    return Board(
        uid=CLUSTER,
        title="Cluster profiler",
        description="GPU, CPU and network of every node at a glance, and which node holds the others back.",
        variables=[hosts_variable()],
        header=_header(),
        rows=[
            Row("Who is slow", _slow()),
            Row("Nodes now", [_nodes()]),
            Row("GPU", _gpu()),
            Row("CPU and memory", _machine()),
            Row("Network and storage", _traffic()),
            Row("Training", _training()),
            Row("Each run", [_ledger_of_each_run()]),
            Row("Dataset cache", _cache()),
        ],
        events='host=~"$host"',
    )


def _by_host(function: str, expr: str) -> Line:
    return Line(f"{function} by (host) ({expr})", "{{host}}")


def _header() -> list[Panel]:
    return [
        number("Nodes", queries.hosts(SCOPE), help="Machines seen now.", unit="short"),
        number(
            "Nodes missing",
            queries.hosts_gone(SCOPE),
            help="Machines seen in the time range, but not now. One that only a run reports disappears with it.",
            unit="short",
            limits=GONE,
        ),
        number("GPUs", queries.gpus(SCOPE), help="GPUs that answer now.", unit="short"),
        number(
            "GPUs missing",
            queries.gpus_missing(SCOPE),
            help="GPUs of the time range that do not answer now or are no longer reported.",
            unit="short",
            limits=GONE,
        ),
        number(
            "GPU utilization",
            f"avg({SCOPE.now('gpu', 'utilization_percent')})",
            help=help_of(metric("gpu", "utilization_percent")),
            unit="percent",
            decimals=0,
            empty="no GPU",
        ),
        number(
            "CPU",
            f"avg({SCOPE.now('host', 'cpu_ratio')})",
            help=help_of(metric("host", "cpu_ratio")),
            unit="percentunit",
            decimals=0,
            empty="no node",
        ),
        number(
            "Received",
            f"sum({SCOPE.rate('host', 'network_received_bytes')})",
            help=help_of(metric("host", "network_received_bytes")),
            unit="binBps",
            empty="no node",
        ),
        number(
            "GPU power",
            f"sum({SCOPE.now('gpu', 'power_draw_watts')})",
            help=help_of(metric("gpu", "power_draw_watts")),
            unit="watt",
            empty="no GPU",
        ),
    ]


def _slow() -> list[Panel]:
    behind = queries.behind_seconds(SCOPE)
    needs = "Needs a run of several ranks whose hooks report where a step's time goes."
    return [
        bars(
            "Ranks that the others wait for",
            f"topk(10, {queries.by_run_name(behind)})",
            "{{host}} rank {{rank}} of {{name}}",
            help="How much longer each one works in a step than the median rank of its run, before it meets the "
            "others in the backward pass. The whole step takes the same time on all of them.",
            unit="s",
            maximum=None,
            width=8,
            empty=needs,
        ),
        chart(
            "Behind the median rank",
            Line(f"max by (host) ({behind})", "{{host}}"),
            help="Data wait and forward pass of each node's slowest rank, per step, beyond those of the median rank.",
            unit="s",
            width=8,
            height=9,
            minimum=None,
            empty=needs,
        ),
        bars(
            "Slowest clocks",
            f"bottomk(10, {_clock('host, gpu')})",
            "{{host}}/{{gpu}}",
            help="Clocks of working GPUs, as a share of their maximum: one that is held down makes the others wait.",
            unit="percentunit",
            maximum=1,
            width=8,
            empty="No GPU is working.",
        ),
    ]


def _clock(by: str) -> str:
    """The clock of GPUs that run kernels, of its highest."""
    now, most = (SCOPE.now("gpu", f"clock_sm_{of}") for of in ("hertz", "max_hertz"))
    return f"min by ({by}) ({now} / {most} and {SCOPE.now('gpu', 'utilization_percent')} > 0)"


def _nodes() -> Panel:
    used, total = (SCOPE.now("host", f"memory_{what}_bytes") for what in ("used", "total"))
    return rows(
        "Nodes",
        [Key("host", "Host", HOST)],
        [
            Column("State", queries.host_state(SCOPE), words=tables.HOST_STATES, width=90),
            Column(
                "Behind",
                f"max by (host) ({queries.behind_seconds(SCOPE)})",
                "s",
                Limits(0.01, None),
                decimals=1,
                width=90,
            ),
            Column("Slowest clock", _clock("host"), "percentunit", decimals=0, width=115),
            Column("CPU", SCOPE.now("host", "cpu_ratio"), "percentunit", gauge=True, decimals=0, width=115),
            Column("Memory", f"{used} / {total}", "percentunit", gauge=True, decimals=0, width=115),
            Column(
                "GPU",
                f"avg by (host) ({SCOPE.now('gpu', 'utilization_percent')})",
                "percent",
                gauge=True,
                decimals=0,
                width=115,
            ),
            Column(
                "GPU memory",
                f"max by (host) ({SCOPE.now('gpu', 'memory_percent')})",
                "percent",
                MEMORY,
                gauge=True,
                decimals=0,
                width=115,
            ),
            *(
                Column(title, SCOPE.rate("host", f"{of}_bytes"), "binBps", width=100)
                for title, of in (
                    ("Received", "network_received"),
                    ("Sent", "network_sent"),
                    ("Read", "disk_read"),
                    ("Written", "disk_written"),
                )
            ),
        ],
        help="Every node of the time range, as it is now. `Behind` is how long the others wait for its slowest "
        "rank in each step. The name links to the node's dashboard.",
        sort=["State", "-Behind", "Host"],
        empty="No node in this time range.",
    )


def _gpu() -> list[Panel]:
    return [
        chart(
            "GPU utilization",
            _by_host("avg", SCOPE.now("gpu", "utilization_percent")),
            help=f"Mean of each node's GPUs. {help_of(metric('gpu', 'utilization_percent'))}",
            unit="percent",
            width=8,
            maximum=100,
        ),
        chart(
            "Lowest GPU utilization",
            _by_host("min", SCOPE.now("gpu", "utilization_percent")),
            help="The lowest on each node. One GPU that idles while the others work makes them wait.",
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
            help="Received above the line, sent below. All network interfaces together.",
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
            empty="No GPU here reports NVLink traffic.",
        ),
        chart(
            "Disks",
            Line(SCOPE.rate("host", "disk_read_bytes"), "{{host}} read"),
            Line(f"-({SCOPE.rate('host', 'disk_written_bytes')})", "{{host}} written"),
            help="Read above the line, written below. All disks together.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
    ]


def _training() -> list[Panel]:
    return [
        chart(
            "Step time",
            Line(queries.by_run_name(queries.step_seconds(SCOPE, "run, host")), "{{host}} {{name}}"),
            help="Mean step time. Where ranks exchange gradients, it is the same on all nodes of a run.",
            unit="s",
            width=8,
            empty="No step is reported.",
        ),
        chart(
            "Waiting for data",
            Line(queries.by_run_name(queries.data_wait_share(SCOPE, "run, host")), "{{host}} {{name}}"),
            help="Share of the time in which the training waited for its next batch.",
            unit="percentunit",
            width=8,
            empty="Needs the hooks or callbacks.",
            maximum=1,
        ),
        time_ledger(
            Line(queries.time_shares(SCOPE), "{{class}}"),
            Line(queries.time_untold(SCOPE), "not reported", GRAY),
            help=f"Share of each class in the time of all ranks on these nodes. {help_of(catalog.TRAINING_TIME)}",
            width=8,
        ),
    ]


def _ledger_of_each_run() -> Panel:
    shown = {
        "Compute": [*COMPUTE_CLASSES],
        "Waiting for data": ["data_wait"],
        "Copying": ["copy"],
        "Communication": ["communication"],
        "Evaluation": ["evaluation"],
        "Checkpoints": ["checkpoint"],
        "Start-up": ["startup"],
    }
    rest = [name for name in TIME_CLASSES if name not in {one for classes in shown.values() for one in classes}]
    return rows(
        "Time ledger of each run",
        [Key("run", "Run", RUN, width=260)],
        [
            Column(title, queries.time_share_of_runs(SCOPE, classes), "percentunit", gauge=True, decimals=1, width=135)
            for title, classes in (shown | {"Other": rest}).items()
        ],
        help="Share of each run's reported time, in the time range. Compute includes forward, backward and "
        f"optimizer. The id links to the run's dashboard. {help_of(catalog.TRAINING_TIME)}",
        sort=["Compute"],
        height=6,
        empty="Needs the hooks or callbacks.",
    )


def _cache() -> list[Panel]:
    """Caches belong to the cluster and to none of its nodes."""
    lookups, none = catalog.CACHE_LOOKUPS.name, "No dataset cache is scraped."
    hits = f'sum by (host) (rate({lookups}{{status="hit"}}{queries.PER_SECOND}))'
    return [
        chart(
            "Cache hits",
            Line(f"{hits} / sum by (host) (rate({lookups}{{}}{queries.PER_SECOND}))", "{{host}}"),
            help=f"Share of hits. {help_of(catalog.CACHE_LOOKUPS)}",
            unit="percentunit",
            width=8,
            maximum=1,
            empty=none,
        ),
        chart(
            "Cache traffic",
            Line(f"sum by (host) (rate({catalog.CACHE_SENT.name}{{}}{queries.PER_SECOND}))", "{{host}} sent"),
            Line(f"-sum by (host) (rate({catalog.CACHE_FETCHED.name}{{}}{queries.PER_SECOND}))", "{{host}} fetched"),
            help="Sent to training processes above the line, fetched from the shard server below.",
            unit="binBps",
            width=8,
            minimum=None,
            empty=none,
        ),
        chart(
            "Cache disk",
            Line(f"{catalog.CACHE_DISK.name}{{}} / {catalog.CACHE_DISK_LIMIT.name}{{}}", "{{host}}"),
            help="Disk space taken by cached slices, as a share of its limit.",
            unit="percentunit",
            width=8,
            maximum=1,
            empty=none,
        ),
    ]

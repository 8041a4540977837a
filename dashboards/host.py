"""The dashboard of one machine: its GPUs one by one, CPU, memory, disks, network, processes, and pulsetrain itself."""

from dashboards import queries, tables
from dashboards.board import HOST, RUN, Board, Row, gpus_variable, host_variable
from dashboards.panels import (
    BLUE,
    GONE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    TEMPERATURE,
    Column,
    Key,
    Line,
    Panel,
    chart,
    chart_of,
    help_of,
    number,
    rows,
    states,
)
from pulsetrain import catalog
from pulsetrain.catalog import metric

SCOPE = queries.Scope(gpu=True)
GPU = "GPU {{gpu}}"
MIG = "GPU {{gpu}}: {{gpu_instance}}/{{compute_instance}}"


def board() -> Board:
    return Board(
        uid=HOST,
        title="GPU host",
        description="Everything of one machine: GPUs, CPU, memory, disks, network and processes.",
        variables=[host_variable(), gpus_variable()],
        header=_header(),
        rows=[
            Row("GPUs", [tables.gpus(SCOPE), *_gpus()]),
            Row("CPU and memory", _machine()),
            Row("Disks and network", _traffic()),
            Row("Processes", _processes()),
            Row("pulsetrain itself", _watching()),
            Row("MIG instances", _mig(), folded=True),
            Row("GPU $gpu", _one_gpu(), repeat="gpu", folded=True),
        ],
        events='host=~"$host"',
    )


def _header() -> list[Panel]:
    used, total = (SCOPE.now("host", f"memory_{what}_bytes") for what in ("used", "total"))
    return [
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
            help=f"Mean of the GPUs. {help_of(metric('gpu', 'utilization_percent'))}",
            unit="percent",
            decimals=0,
        ),
        number(
            "GPU power",
            f"sum({SCOPE.now('gpu', 'power_draw_watts')})",
            help=help_of(metric("gpu", "power_draw_watts")),
            unit="watt",
        ),
        number(
            "Hottest GPU",
            f"max({SCOPE.now('gpu', 'temperature_celsius')})",
            help=help_of(metric("gpu", "temperature_celsius")),
            unit="celsius",
            limits=TEMPERATURE,
        ),
        number(
            "CPU",
            SCOPE.now("host", "cpu_ratio"),
            help=help_of(metric("host", "cpu_ratio")),
            unit="percentunit",
            decimals=0,
        ),
        number(
            "Memory",
            f"{used} / {total}",
            help=help_of(metric("host", "memory_used_bytes")),
            unit="percentunit",
            decimals=0,
        ),
        number(
            "Runs",
            f"count(count by (run) ({catalog.RUN_INFO.name}{SCOPE.select('account')})) or vector(0)",
            help="Runs on this machine now.",
            unit="short",
        ),
    ]


def _gpus() -> list[Panel]:
    return [
        *tables.gpu_charts(SCOPE, GPU),
        states(
            "Throttled by",
            Line(queries.held_back(SCOPE), "GPU {{gpu}}: {{reason}}"),
            help=help_of(metric("gpu", "throttle_reasons")),
            width=24,
            empty="No GPU was throttled in this time range.",
        ),
    ]


def _machine() -> list[Panel]:
    return [
        chart(
            "CPU",
            Line(SCOPE.now("host", "cpu_ratio"), "in use", BLUE),
            Line(SCOPE.now("host", "cpu_iowait_ratio"), "waiting for I/O", ORANGE),
            help=help_of(metric("host", "cpu_ratio")),
            unit="percentunit",
            width=6,
            maximum=1,
        ),
        chart(
            "Cores",
            *(
                Line(f"{function}({SCOPE.now('host', 'cpu_core_ratio')})", legend, color)
                for function, legend, color in (
                    ("max", "busiest", ORANGE),
                    ("avg", "mean", BLUE),
                    ("min", "idlest", GRAY),
                )
            ),
            help=f"One core that is always busy may hold a program back. {help_of(metric('host', 'cpu_core_ratio'))}",
            unit="percentunit",
            width=6,
            maximum=1,
        ),
        chart(
            "Load",
            Line(SCOPE.now("host", "load_1m"), "1 min", BLUE),
            Line(SCOPE.now("host", "load_5m"), "5 min", SKY),
            Line(SCOPE.now("host", "load_15m"), "15 min", PURPLE),
            Line(SCOPE.now("host", "cpu_cores"), "cores", GRAY, True),
            help="Tasks that run or wait to run; the machine is full when it reaches the number of cores.",
            unit="short",
            width=6,
        ),
        chart(
            "Memory",
            Line(SCOPE.now("host", "memory_used_bytes"), "used", BLUE),
            Line(SCOPE.now("host", "swap_used_bytes"), "swap", RED),
            Line(SCOPE.now("host", "memory_total_bytes"), "installed", GRAY, True),
            help=help_of(metric("host", "memory_used_bytes")),
            unit="bytes",
            width=6,
        ),
        chart(
            "Power",
            Line(f"sum({SCOPE.now('gpu', 'power_draw_watts')})", "GPUs", BLUE),
            Line(SCOPE.rate("host", "cpu_energy_joules"), "CPUs", ORANGE),
            Line(SCOPE.rate("host", "dram_energy_joules"), "memory", GREEN),
            help="Of the parts that can be measured here. CPUs and memory need readable RAPL counters.",
            unit="watt",
            stacked=True,
        ),
        chart(
            "Container memory",
            Line(SCOPE.now("host", "container_memory_used_bytes"), "used", BLUE),
            Line(SCOPE.now("host", "container_memory_limit_bytes"), "limit", GRAY, True),
            help=f"Where pulsetrain runs in a container. {help_of(metric('host', 'container_memory_used_bytes'))}",
            unit="bytes",
            width=6,
            empty="pulsetrain is not running in a container.",
        ),
        chart(
            "Container CPU",
            Line(SCOPE.rate("host", "container_cpu_seconds"), "used", BLUE),
            Line(SCOPE.rate("host", "container_cpu_throttled_seconds"), "throttled", RED),
            Line(SCOPE.now("host", "container_cpu_limit_cores"), "limit", GRAY, True),
            help="Cores that the container keeps busy, and its limit.",
            unit="short",
            width=6,
            empty="pulsetrain is not running in a container.",
        ),
    ]


def _traffic() -> list[Panel]:
    return [
        chart(
            "Disks",
            Line(SCOPE.rate("host", "disk_device_read_bytes"), "{{device}} read"),
            Line(f"-({SCOPE.rate('host', 'disk_device_written_bytes')})", "{{device}} written"),
            help="Read above the line, written below.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
        chart(
            "Disk operations",
            Line(SCOPE.rate("host", "disk_device_reads"), "{{device}} read"),
            Line(f"-({SCOPE.rate('host', 'disk_device_writes')})", "{{device}} written"),
            help="Reads per second above the line, writes below.",
            unit="iops",
            width=8,
            minimum=None,
        ),
        chart(
            "Network",
            Line(SCOPE.rate("host", "network_device_received_bytes"), "{{device}} received"),
            Line(f"-({SCOPE.rate('host', 'network_device_sent_bytes')})", "{{device}} sent"),
            help="Received above the line, sent below.",
            unit="binBps",
            width=8,
            minimum=None,
        ),
    ]


def _processes() -> list[Panel]:
    on_gpu = f"{catalog.metric('process', 'gpu_memory_mb').name}{SCOPE.select('process')}"
    share = f"{catalog.metric('process', 'sm_ratio').name}{SCOPE.select('process')}"
    keys = [Key("pid", "PID", width=80), Key("user", "User", width=90), Key("command", "Command")]
    return [
        rows(
            "On GPUs",
            [Key("gpu", "GPU", width=60), *keys, Key("container", "Container"), Key("pod", "Pod")],
            [
                Column("GPU memory", f"max by (gpu, pid, user, command, container, pod) ({on_gpu})", "mbytes"),
                Column("GPU share", f"max by (gpu, pid, user, command, container, pod) ({share})", "percentunit"),
            ],
            help=help_of(metric("process", "gpu_memory_mb")),
            sort=["-GPU memory"],
            empty="No process on a GPU now.",
            width=12,
        ),
        rows(
            "Of runs",
            [*keys, Key("run", "Run", RUN)],
            [
                Column(title, f"max by (pid, user, command, run) ({expr})", unit)
                for title, expr, unit in (
                    ("CPU cores", f"{metric('process', 'cpu_cores').name}{SCOPE.select('process')}", "short"),
                    ("Memory", f"{metric('process', 'memory_bytes').name}{SCOPE.select('process')}", "bytes"),
                    ("Threads", f"{metric('process', 'threads').name}{SCOPE.select('process')}", "short"),
                )
            ],
            help="The busiest processes of the watched commands.",
            sort=["-CPU cores"],
            empty="No watched command is running.",
            width=12,
        ),
    ]


def _mig() -> list[Panel]:
    return [
        chart_of(metric("mig", "sm_active_ratio"), "Multiprocessors", Line(SCOPE.now("mig", "sm_active_ratio"), MIG)),
        chart_of(metric("mig", "memory_used_mb"), "Memory", Line(SCOPE.now("mig", "memory_used_mb"), MIG)),
    ]


def _one_gpu() -> list[Panel]:
    reasons = metric("gpu", "throttle_reasons")
    return [
        chart(
            "Activity",
            Line(f"{SCOPE.now('gpu', 'utilization_percent')} / 100", "any kernel", BLUE),
            Line(SCOPE.now("gpu", "sm_active_ratio"), "multiprocessors", GREEN),
            Line(SCOPE.now("gpu", "tensor_active_ratio"), "tensor cores", PURPLE),
            Line(SCOPE.now("gpu", "memory_controller_ratio"), "memory", ORANGE),
            help="How much of the GPU works: that some kernel runs says little about how much of it is in use.",
            unit="percentunit",
            width=6,
            maximum=1,
        ),
        chart(
            "Memory",
            Line(SCOPE.now("gpu", "memory_used_mb"), "used", BLUE),
            Line(SCOPE.now("gpu", "memory_total_mb"), "installed", GRAY, True),
            help=help_of(metric("gpu", "memory_used_mb")),
            unit="mbytes",
            width=6,
        ),
        chart(
            "Power",
            Line(SCOPE.now("gpu", "power_draw_watts"), "draw", BLUE),
            Line(SCOPE.now("gpu", "power_limit_watts"), "limit", GRAY, True),
            help=help_of(metric("gpu", "power_draw_watts")),
            unit="watt",
            width=6,
        ),
        chart(
            "Temperature",
            Line(SCOPE.now("gpu", "temperature_celsius"), "core", BLUE),
            Line(SCOPE.now("gpu", "memory_temperature_celsius"), "memory", ORANGE),
            help=help_of(metric("gpu", "temperature_celsius")),
            unit="celsius",
            width=6,
            limits=TEMPERATURE,
        ),
        chart(
            "Clocks",
            Line(SCOPE.now("gpu", "clock_sm_hertz"), "multiprocessors", BLUE),
            Line(SCOPE.now("gpu", "clock_memory_hertz"), "memory", ORANGE),
            Line(SCOPE.now("gpu", "clock_sm_max_hertz"), "highest", GRAY, True),
            help=help_of(metric("gpu", "clock_sm_hertz")),
            unit="hertz",
            width=6,
        ),
        states(
            "Throttled by",
            Line(queries.held_back(SCOPE), "{{reason}}"),
            help=help_of(reasons),
            width=6,
            empty="It was not throttled in this time range.",
        ),
        chart(
            "PCIe and NVLink",
            Line(SCOPE.now("gpu", "pcie_received_bytes_per_second"), "PCIe received", BLUE),
            Line(SCOPE.now("gpu", "pcie_sent_bytes_per_second"), "PCIe sent", SKY),
            Line(SCOPE.rate("gpu", "nvlink_received_bytes"), "NVLink received", ORANGE),
            Line(SCOPE.rate("gpu", "nvlink_sent_bytes"), "NVLink sent", PURPLE),
            help="Traffic to and from the GPU.",
            unit="binBps",
            width=6,
        ),
        chart(
            "Errors",
            Line(SCOPE.now("gpu", "xid_errors"), "XID", RED),
            Line(SCOPE.now("gpu", "ecc_corrected_errors"), "ECC, corrected", SKY),
            Line(SCOPE.now("gpu", "ecc_uncorrected_errors"), "ECC, uncorrected", ORANGE),
            Line(SCOPE.now("gpu", "remapped_rows_failed"), "rows not remapped", PURPLE),
            Line(SCOPE.now("gpu", "pcie_replays"), "PCIe replays", GRAY),
            help="Counts so far: a rising line is bad news. XID errors count from when pulsetrain started.",
            unit="short",
            width=6,
        ),
    ]


def _watching() -> list[Panel]:
    return [
        chart_of(
            metric("host", "source_read_seconds"),
            "Reading time",
            Line(SCOPE.now("host", "source_read_seconds"), "{{source}}"),
        ),
        chart_of(
            metric("host", "source_up"), "Sources up", Line(SCOPE.now("host", "source_up"), "{{source}}"), width=6
        ),
        chart(
            "pulsetrain CPU",
            Line(SCOPE.rate("host", "pulsetrain_cpu_seconds"), "of one core", BLUE),
            help=help_of(metric("host", "pulsetrain_cpu_seconds")),
            unit="percentunit",
            width=6,
        ),
    ]

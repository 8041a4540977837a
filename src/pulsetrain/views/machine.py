"""This machine as a compact table: its GPUs, the processes on them, and the host."""

from datetime import UTC, datetime

from pulsetrain.live import Live, SubjectState
from pulsetrain.rules.alert import gravest_first
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.sources.throttle import THROTTLING
from pulsetrain.units import MIB
from pulsetrain.views.text import (
    ABSENT,
    Style,
    bytes_text,
    cut,
    flow,
    in_one_unit,
    number,
    percent,
    running_time,
    table,
    used_of,
)
from pulsetrain.views.thresholds import (
    Limits,
    gpu_memory,
    gpu_temperature,
    grade,
    host_memory,
    host_memory_percent,
    parts_down,
)

COLORS = {"": "", "warn": "yellow", "bad": "red"}
SHORT = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "slowdown",
    "sw_thermal": "hot",
    "hw_thermal": "hot",
    "hw_power_brake": "power brake",
}
MOST_PROCESSES = 12
MOST_ALERTS = 8
SEVERITIES = {"info": "cyan", "warning": "yellow", "critical": "red"}
PROCESS_HEAD = ("GPU", "pid", "user", "memory", "SM", "CPU", "RAM", "time", "container", "command")
PROCESS_SPARE = (8, 6, 7)
"""Columns one can do without, the first of them first."""


def machine_lines(live: Live, host: str, style: Style, thresholds: Thresholds, missing: str = "") -> list[str]:
    """The whole table. `missing` says why there are no GPUs."""
    time = datetime.fromtimestamp(live.time, UTC)
    gpus = list(live.table("gpu"))
    simulated = any(gpu.subject.labels.get("simulated") for gpu in gpus)
    title = "  ".join(filter(None, (style(host, "bold"), f"{time:%Y-%m-%d %H:%M:%S} UTC", driver(live.host))))
    lines = [title + ("  " + style("simulated GPUs", "yellow") if simulated else "")]
    if gpus:
        lines += _gpu_table(gpus, style, thresholds)
    elif missing:
        lines += [style(line, "dim") for line in f"no GPU: {missing}".splitlines()]
    lines += _mig_table(list(live.table("mig")), style)
    lines += _process_table(live, style)
    down = [style(line, "red") for line in parts_down(live)]
    return [*lines, "", *_host_lines(live.host, style, thresholds), *down, *_alert_lines(live, style)]


def _alert_lines(live: Live, style: Style) -> list[str]:
    """The alerts that fire, the gravest first."""
    firing = gravest_first(live.alerts.values())
    lines = [
        f"{style(f'{alert.severity:<8}', SEVERITIES[alert.severity])}  {alert.details.get('rule')}: {alert.message}"
        for alert in firing[:MOST_ALERTS]
    ]
    hidden = len(firing) - len(lines)
    return ["", *lines, *([style(f"and {hidden} more", "dim")] if hidden else [])] if lines else []


def _gpu_table(gpus: list[SubjectState], style: Style, thresholds: Thresholds) -> list[str]:
    wide = style.width >= 100
    bar = 8 if wide else 4
    head: tuple[str, ...] = (
        "GPU",
        "name",
        "utilization",
        "",
        "memory",
        "power",
        "temp",
        "fan",
        "clock",
        "",
    )
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        value = gpu.number
        index, name = _label(gpu, "gpu_index"), cut(_label(gpu, "name").removeprefix("NVIDIA "), 28 if wide else 14)
        if value("up") == 0:
            rows.append((index, name, style("lost", "red", "bold"), *[""] * 7))
            continue
        busy = value("utilization_percent")
        used, total = value("memory_used_mb"), value("memory_total_mb")
        rows.append(
            (
                index,
                name,
                f"{style.bar(_scaled(busy, 0.01), bar, 'green')} {number(busy, '%'):>5}",
                _memory_bar(value("memory_percent"), gpu_memory(thresholds), bar, style),
                used_of(_scaled(used, MIB), _scaled(total, MIB)),
                power_of_limit(gpu),
                _colored(number(value("temperature_celsius"), "°C"), _temperature_grade(gpu, thresholds), style),
                "" if value("fan_speed_percent") is None else number(value("fan_speed_percent"), "%"),
                number(_scaled(value("clock_sm_hertz"), 1e-6), "MHz").replace(",", ""),
                style(", ".join(throttled(gpu)), "yellow"),
            )
        )
    if not wide:  # the memory's bar, fan and clock are what one can do without
        head, *rows = [(*row[:3], *row[4:7], row[9]) for row in (head, *rows)]
        return table(head, rows, style, "rllrrrl")
    return table(head, rows, style, "rllrrrrrrl")


def _label(state: SubjectState, name: str) -> str:
    """As text; a run folder from elsewhere may have lines without it."""
    value = state.subject.labels.get(name)
    return ABSENT if value is None else str(value)


def driver(host: SubjectState) -> str:
    """`driver 580.95.05, CUDA 13.0`, as far as it is known."""
    named = {"driver": host.values.get("gpu_driver_versions"), "CUDA": host.values.get("cuda_versions")}
    return ", ".join(f"{name} {max(found)}" for name, found in named.items() if isinstance(found, dict) and found)


def throttled(gpu: SubjectState) -> list[str]:
    """Why power or heat holds a GPU back, in short words."""
    reasons = gpu.values.get("throttle_reasons")
    if not isinstance(reasons, list):
        return []
    return list(dict.fromkeys(SHORT.get(word, word) for word in reasons if word in THROTTLING))


def _mig_table(instances: list[SubjectState], style: Style) -> list[str]:
    rows = [
        (
            "/".join(_label(mig, name) for name in ("gpu_index", "gpu_instance", "compute_instance")),
            _label(mig, "name").removeprefix("NVIDIA "),
            number(mig.number("multiprocessors")),
            used_of(_scaled(mig.number("memory_used_mb"), MIB), _scaled(mig.number("memory_total_mb"), MIB)),
            "" if mig.number("sm_active_ratio") is None else percent(mig.number("sm_active_ratio")),
        )
        for mig in instances
    ]
    return ["", *table(("MIG", "instance", "SMs", "memory", "SM util"), rows, style, "rlrrr")] if rows else []


def _process_table(live: Live, style: Style) -> list[str]:
    processes = [p for p in live.table("process") if p.subject.labels.get("gpu_index") is not None]
    processes.sort(key=lambda p: -(p.number("gpu_memory_mb") or 0))
    shown = processes[:MOST_PROCESSES]
    memory = in_one_unit([_scaled(process.number("gpu_memory_mb"), MIB) for process in shown], bytes_text, ABSENT)
    ram = in_one_unit([process.number("memory_bytes") for process in shown], bytes_text)
    rows = []
    for place, process in enumerate(shown):
        labels = process.subject.labels
        rows.append(
            (
                _label(process, "gpu_index"),
                _label(process, "pid"),
                _label(process, "user"),
                memory[place],
                percent(process.number("sm_ratio")),
                "" if (cores := process.number("cpu_cores")) is None else percent(cores),
                ram[place],
                "" if (start := process.number("start_time_seconds")) is None else running_time(live.time - start),
                str(labels.get("container") or ""),
                cut(str(labels.get("command") or ""), max(20, style.width - 60)),
            )
        )
    if not rows:
        return []
    lines = ["", *table(PROCESS_HEAD, rows, style, "rrlrrrrrll", PROCESS_SPARE)]
    hidden = len(processes) - MOST_PROCESSES
    return [*lines, style(f"and {hidden} more", "dim")] if hidden > 0 else lines


def _host_lines(host: SubjectState, style: Style, thresholds: Thresholds) -> list[str]:
    value = host.number
    load = number(value("load_1m"), digits=1)
    cpu = value("cpu_ratio")
    total, used = value("memory_total_bytes"), value("memory_used_bytes")
    memory = _memory_bar(host_memory_percent(host), host_memory(thresholds), 8, style)
    iowait = value("cpu_iowait_ratio")
    parts = [
        f"CPU {style.bar(cpu, 8, 'green')} {percent(cpu)} of {number(value('cpu_cores'))} cores",
        f"load {load}" if value("load_1m") is not None else "",
        f"iowait {percent(iowait)}" if iowait is not None else "",
        f"RAM {memory} {used_of(used, total)}",
        f"swap {used_of(value('swap_used_bytes'), value('swap_total_bytes'))}" if value("swap_total_bytes") else "",
    ]
    rates = {
        "disk read": "disk_read_bytes",
        "written": "disk_written_bytes",
        "network in": "network_received_bytes",
        "out": "network_sent_bytes",
    }
    traffic = [f"{what} {bytes_text(host.rates[field], '/s')}" for what, field in rates.items() if field in host.rates]
    return [*flow(parts, style.width), *flow(traffic, style.width), *flow(_container_parts(host), style.width)]


def _container_parts(host: SubjectState) -> list[str]:
    """What the container around us may use, where it is limited."""
    memory, cores = host.number("container_memory_limit_bytes"), host.number("container_cpu_limit_cores")
    used = host.number("container_memory_used_bytes")
    return [
        f"container memory {used_of(used, memory)}" if memory is not None else "",
        f"container CPU limit {number(cores, 'cores', 1)}" if cores is not None else "",
    ]


def _memory_bar(percent: float | None, limits: Limits, width: int, style: Style) -> str:
    return style.bar(_scaled(percent, 0.01), width, _grade(percent, limits) or "cyan")


def power_of_limit(gpu: SubjectState) -> str:
    """`320/700 W`; the draw alone where the limit is not known."""
    draw, limit = gpu.number("power_draw_watts"), gpu.number("power_limit_watts")
    if draw is None or limit is None:
        return number(draw, "W")
    return f"{draw:.0f}/{limit:.0f} W"


def _temperature_grade(gpu: SubjectState, thresholds: Thresholds) -> str:
    return _grade(gpu.number("temperature_celsius"), gpu_temperature(thresholds))


def _grade(value: float | None, limits: Limits) -> str:
    """The color of a value; none while it is normal."""
    return COLORS[grade(value, limits)]


def _colored(text: str, color: str, style: Style) -> str:
    return style(text, color) if color else text


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale

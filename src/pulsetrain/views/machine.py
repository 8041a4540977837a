"""This machine as a compact table: its GPUs, the processes on them, and the host."""

from datetime import UTC, datetime

from pulsetrain.config import Limits
from pulsetrain.live import Live, State
from pulsetrain.sources.throttle import THROTTLING
from pulsetrain.views.text import ABSENT, Style, bytes_text, cut, flow, number, percent, table, used_of
from pulsetrain.views.thresholds import DEFAULT, grade, host_memory_percent, memory_percent

MIB = 2**20
COLOURS = {"": "", "warn": "yellow", "bad": "red"}
SHORT = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "slowdown",
    "sw_thermal": "hot",
    "hw_thermal": "hot",
    "hw_power_brake": "power brake",
}
MOST_PROCESSES = 12


def machine_lines(live: Live, host: str, style: Style, missing: str = "") -> list[str]:
    """The whole table. `missing` says why there are no GPUs."""
    time = datetime.fromtimestamp(live.time, UTC)
    gpus = list(live.table("gpu"))
    simulated = any(gpu.subject.labels.get("simulated") for gpu in gpus)
    title = style(host, "bold") + f"  {time:%Y-%m-%d %H:%M:%S} UTC"
    lines = [title + ("  " + style("simulated GPUs", "yellow") if simulated else "")]
    if gpus:
        lines += _gpu_table(gpus, style)
    elif missing:
        lines += [style(line, "dim") for line in f"no GPU: {missing}".splitlines()]
    lines += _mig_table(list(live.table("mig")), style)
    lines += _process_table(live, style)
    return [*lines, "", *_host_lines(live.host, style)]


def _gpu_table(gpus: list[State], style: Style) -> list[str]:
    wide = style.width >= 100
    bar = 8 if wide else 4
    head: tuple[str, ...] = (
        "GPU",
        "name",
        "utilisation" if wide else "busy",
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
        labels, value = gpu.subject.labels, gpu.number
        name = cut(str(labels["name"]).removeprefix("NVIDIA "), 28 if wide else 14)
        if value("up") == 0:
            rows.append((str(labels["gpu_index"]), name, style("lost", "red", "bold"), *[""] * 7))
            continue
        busy = value("utilization_percent")
        used, total = value("memory_used_mb"), value("memory_total_mb")
        share = used / total if used is not None and total else None
        rows.append(
            (
                str(labels["gpu_index"]),
                name,
                f"{style.bar(None if busy is None else busy / 100, bar, 'green')} {number(busy, '%'):>5}",
                style.bar(share, bar, _grade(memory_percent(gpu), DEFAULT.memory_percent) or "cyan"),
                used_of(_scaled(used, MIB), _scaled(total, MIB)),
                _power(gpu),
                _coloured(number(value("temperature_celsius"), "°C"), _temperature_grade(gpu), style),
                "" if value("fan_speed_percent") is None else number(value("fan_speed_percent"), "%"),
                number(_scaled(value("clock_sm_hertz"), 1e-6), "MHz").replace(",", ""),
                style(", ".join(throttled(gpu)), "yellow"),
            )
        )
    if not wide:  # the memory's bar, fan and clock are what one can do without
        head, *rows = [(*row[:3], *row[4:7], row[9]) for row in (head, *rows)]
        return table(head, rows, style, "rllrrrl")
    return table(head, rows, style, "rllrrrrrrl")


def throttled(gpu: State) -> list[str]:
    """Why power or heat holds a GPU back, in short words."""
    reasons = gpu.values.get("throttle_reasons")
    if not isinstance(reasons, list):
        return []
    return list(dict.fromkeys(SHORT.get(word, word) for word in reasons if word in THROTTLING))


def _mig_table(instances: list[State], style: Style) -> list[str]:
    rows = [
        (
            f"{mig.subject.labels['gpu_index']}/{mig.subject.labels['gpu_instance']}/{mig.subject.labels['compute_instance']}",
            str(mig.subject.labels["name"]).removeprefix("NVIDIA "),
            number(mig.number("multiprocessors")),
            used_of(_scaled(mig.number("memory_used_mb"), MIB), _scaled(mig.number("memory_total_mb"), MIB)),
            "" if mig.number("sm_active_ratio") is None else percent(mig.number("sm_active_ratio")),
        )
        for mig in instances
    ]
    return ["", *table(("MIG", "instance", "SMs", "memory", "SM busy"), rows, style, "rlrrr")] if rows else []


def _process_table(live: Live, style: Style) -> list[str]:
    processes = [p for p in live.table("process") if p.subject.labels.get("gpu_index") is not None]
    processes.sort(key=lambda p: -(p.number("gpu_memory_mb") or 0))
    rows = []
    for process in processes[:MOST_PROCESSES]:
        labels = process.subject.labels
        rows.append(
            (
                str(labels["gpu_index"]),
                str(labels["pid"]),
                str(labels.get("user") or ABSENT),
                bytes_text(_scaled(process.number("gpu_memory_mb"), MIB)),
                percent(process.number("sm_ratio")),
                str(labels.get("container") or ""),
                cut(str(labels.get("command") or ""), max(20, style.width - 60)),
            )
        )
    if not rows:
        return []
    lines = ["", *table(("GPU", "pid", "user", "memory", "SM", "container", "command"), rows, style, "rrlrrll")]
    hidden = len(processes) - MOST_PROCESSES
    return [*lines, style(f"and {hidden} more", "dim")] if hidden > 0 else lines


def _host_lines(host: State, style: Style) -> list[str]:
    value = host.number
    load = number(value("load_1m"), digits=1)
    cpu = value("cpu_ratio")
    total, used = value("memory_total_bytes"), value("memory_used_bytes")
    share = used / total if used is not None and total else None
    colour = _grade(host_memory_percent(host), DEFAULT.host_memory_percent)
    iowait = value("cpu_iowait_ratio")
    parts = [
        f"CPU {style.bar(cpu, 8, 'green')} {percent(cpu)} of {number(value('cpu_cores'))} cores",
        f"load {load}" if value("load_1m") is not None else "",
        f"iowait {percent(iowait)}" if iowait is not None else "",
        f"RAM {style.bar(share, 8, colour or 'cyan')} {used_of(used, total)}",
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


def _container_parts(host: State) -> list[str]:
    """What the container around us may use, where it is limited."""
    memory, cores = host.number("container_memory_limit_bytes"), host.number("container_cpu_limit_cores")
    used = host.number("container_memory_used_bytes")
    return [
        f"container memory {used_of(used, memory)}" if memory is not None else "",
        f"container CPU limit {number(cores, 'cores', 1)}" if cores is not None else "",
    ]


def _power(gpu: State) -> str:
    draw, limit = gpu.number("power_draw_watts"), gpu.number("power_limit_watts")
    if draw is None or limit is None:
        return number(draw, "W")
    return f"{draw:.0f}/{limit:.0f} W"


def _temperature_grade(gpu: State) -> str:
    return _grade(gpu.number("temperature_celsius"), DEFAULT.temperature_celsius)


def _grade(value: float | None, limits: Limits) -> str:
    """The colour of a value; none while it is normal."""
    return COLOURS[grade(value, limits)]


def _coloured(text: str, colour: str, style: Style) -> str:
    return style(text, colour) if colour else text


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale

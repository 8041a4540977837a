"""The figures of a run in words, shared by the summary at its end and by its report."""

from collections import Counter
from collections.abc import Sequence

from pulsetrain.insight.alerts import RunAlert, gravest_first
from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.figures import DeviceEnergy, DeviceKind, Energy
from pulsetrain.insight.own_metrics import OwnMetric
from pulsetrain.insight.report import Report
from pulsetrain.insight.summary import GpuSummary, Summary, mean
from pulsetrain.runs.folder import Run
from pulsetrain.snapshot import Severity
from pulsetrain.units import MIB
from pulsetrain.views.outcomes import GOOD, outcome
from pulsetrain.views.terminal.braille import sparkline
from pulsetrain.views.text import (
    Style,
    bound,
    bytes_text,
    cut,
    duration,
    energy,
    grams,
    listed,
    money,
    number,
    percent,
    used_of,
)

METHODS = {
    "counter": "the GPUs' own counters",
    "polled power": "power, read many times a second",
    "power": "power readings",
    "rapl": "RAPL counters",
    "load": "CPU load",
    "size": "the size of the memory",
}
SIMULATED = {"counter": "counters of simulated GPUs", "power": "power of simulated GPUs"}
ORIGINS = {"measured": "measured by", "estimated": "estimated from", "assumed": "assumed from"}
DEVICES: dict[DeviceKind, str] = {"gpu": "GPUs", "cpu": "CPU", "dram": "memory"}
GPU_HEAD = ("GPU", "util", "peak", "memory peak", "free", "power", "hottest", "energy", "")
GPU_ALIGN = "lrrrrrrrl"
GPU_SPARE = (2, 4, 6, 5)
"""Columns one can do without, the first of them first."""
MOST_ALERTS = 3
"""Rules that the summary names."""
MOST_OTHERS = 2
"""How many of those who were on a GPU beside the run are named."""
MOST_OWN_METRICS = 8
LEAST_SHAPE = 3
"""Fewer values have no course to see."""
NO_CARBON = "set a region with --carbon-region DE"
SEVERITY = {"warning": "yellow", "critical": "red"}


def headline(report: Report, style: Style) -> str:
    """Name, outcome and length."""
    color = "green" if report.run.status in GOOD else "red"
    ended = style(outcome(report.run), color, "bold")
    return f"{style('pulsetrain', 'bold')}  {report.run.name} {ended} after {duration(report.seconds)}"


def why_no_gpus(run: Run) -> str:
    """The reason the machine gave; empty when it gave none."""
    reasons = [host.unavailable["nvidia"] for host in run.hosts.values() if "nvidia" in host.unavailable]
    return f"none watched: {reasons[0].removesuffix('.')}" if reasons else ""


def setting(value: str | float) -> str:
    """A value of a run's configuration: a whole number without a point."""
    return f"{value:g}" if isinstance(value, float) else value


def trouble(run: Run) -> list[str]:
    """The parts of pulsetrain that left something out or failed, with the host where there are several."""
    several = len(run.hosts) > 1
    return [f"{name}: {line}" if several else line for name, host in run.hosts.items() for line in host.troubled]


def alerts_line(report: Report) -> str:
    """`NonFinite (critical) after 8.0 s, to the end; GpuHot (warning, 3 times) after 1 min 05 s, for 2 min 10 s`."""
    times = Counter((alert.rule, alert.severity) for alert in report.alerts)
    first: dict[tuple[str, Severity], RunAlert] = {}
    for alert in gravest_first(report.alerts):
        first.setdefault((alert.rule, alert.severity), alert)
    named = []
    for (rule, severity), alert in [*first.items()][:MOST_ALERTS]:
        often = f", {times[rule, severity]} times" if times[rule, severity] > 1 else ""
        began = "" if alert.elapsed_seconds is None else f" after {duration(alert.elapsed_seconds)}"
        length = alert_length(alert, report.run)
        named.append(f"{rule} ({severity}{often}){began}, {f'for {length}' if alert.ended else length}")
    more = len(first) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])


def alert_length(alert: RunAlert, run: Run) -> str:
    """How long an alert fired, in words."""
    if alert.seconds is not None:
        return duration(alert.seconds) + (", then silenced" if alert.silenced else "")
    return "firing" if run.status == "running" else "to the end"


def gpu_label(host: str, gpu_index: int | None, several_hosts: bool) -> str:
    """`0`, or `node1:0` where there are several machines."""
    return f"{host}:{gpu_index}" if several_hosts else f"{gpu_index}"


def gpu_rows(report: Report, style: Style) -> list[tuple[str, ...]]:
    """A row for each GPU, and one for all of them."""
    gpus = report.summary.gpus
    several_hosts = len({gpu.host for gpu in gpus}) > 1
    total = report.energy.of_kind("gpu")
    whole = total.joules if total else None
    rows = [_gpu_row(gpu, _device(gpu, report.energy.devices), whole, several_hosts, style) for gpu in gpus]
    if len(rows) > 1:
        busy = mean(gpu.utilization_percent_mean for gpu in gpus)
        watts = [gpu.power_watts_mean for gpu in gpus if gpu.power_watts_mean is not None]
        power = number(sum(watts) if watts else None, "W")
        rows.append((f"all {len(rows)}", number(busy, "%"), "", "", "", power, "", energy_text(total), ""))
    return rows


def _gpu_row(
    gpu: GpuSummary, device: DeviceEnergy | None, whole: float | None, several_hosts: bool, style: Style
) -> tuple[str, ...]:
    notes = []
    if gpu.lost_samples:
        notes.append(style(f"lost for {gpu.lost_samples} of {gpu.samples} readings", "red"))
    if gpu.throttled_share and gpu.throttled_share >= 0.01:
        notes.append(style(f"throttled {percent(gpu.throttled_share)} of the time", "yellow"))
    if device and (whose := _whose(device)):
        notes.append(style(whose, "" if device.charged else "dim"))
    used, total = _bytes(gpu.memory_mb_peak), _bytes(gpu.memory_total_mb)
    free = None if used is None or total is None else total - used
    return (
        f"{gpu_label(gpu.host, gpu.gpu_index, several_hosts)} {cut(gpu.name.removeprefix('NVIDIA '), 28)}",
        number(gpu.utilization_percent_mean, "%"),
        number(gpu.utilization_percent_peak, "%"),
        used_of(used, total),
        bytes_text(free, whole=total),
        number(gpu.power_watts_mean, "W"),
        number(gpu.temperature_celsius_peak, "°C"),
        energy_text(device.total if device else None, whole),
        ", ".join(notes),
    )


def _whose(device: DeviceEnergy) -> str:
    """Who else was on a GPU, and whether it counts; empty for one that the run had to itself."""
    named = [cut(who, 40) for who in device.others[:MOST_OTHERS]]
    more = len(device.others) - len(named)
    others = listed([*named, f"{more} more"] if more > 0 else named)
    if not device.others:
        return "" if device.charged else "not used by the run, not charged"
    if device.used is not False:
        return f"shared with {others}"
    return f"used by {others}" + ("" if device.charged else ", not charged")


def _device(gpu: GpuSummary, devices: Sequence[DeviceEnergy]) -> DeviceEnergy | None:
    """What a GPU used."""
    for device in devices:
        same = device.uuid == gpu.uuid if gpu.uuid else device.gpu_index == gpu.gpu_index
        if device.device == "gpu" and device.host == gpu.host and same:
            return device
    return None


def own_metrics(metrics: Sequence[OwnMetric], style: Style) -> list[tuple[str, str]]:
    """Last and best values of what the program logged, each with its course; of many, the first few."""
    shown = metrics[:MOST_OWN_METRICS]
    width = max((len(metric.name) for metric in shown), default=0)
    lines = [f"{metric.name:<{width}}  {own_metric(metric, style)}" for metric in shown]
    if len(metrics) > len(shown):
        lines.append(f"and {len(metrics) - len(shown)} more")
    return [("" if number else "logged", line) for number, line in enumerate(lines)]


def own_metric(metric: OwnMetric, style: Style) -> str:
    """`0.91 (best 0.93)` and its course; where the name does not tell what is best, the least and the most."""
    text = f"{metric.last:.4g}"
    if metric.best is not None:
        text += f" (best {metric.best:.4g})"
    elif metric.lowest != metric.highest:
        text += f" ({metric.lowest:.4g} to {metric.highest:.4g})"
    if len(metric.shape) < LEAST_SHAPE or metric.lowest == metric.highest:
        return text
    return f"{text}  {sparkline(metric.shape, len(metric.shape), ascii=not style.blocks)}"


def job(summary: Summary, seconds: float) -> str:
    """What the command used of the machine."""
    if summary.job_cpu_seconds is None:
        return ""
    cores = summary.job_cpu_seconds / seconds if seconds > 0 else 0.0
    processes = summary.job_processes_peak or 0
    parts = [f"{cores:.1f} of {number(summary.cpu_cores)} cores on average"]
    if summary.job_memory_bytes_peak is not None:
        parts.append(f"memory peak {bytes_text(summary.job_memory_bytes_peak)}")
    if processes > 1:
        parts.append(f"up to {processes:.0f} processes")
    return ", ".join(parts)


def host(summary: Summary) -> str:
    """How busy the machine was."""
    if summary.cpu_ratio_mean is None:
        return ""
    memory = used_of(summary.memory_used_bytes_peak, summary.memory_total_bytes)
    mean_ratio, peak = percent(summary.cpu_ratio_mean), percent(summary.cpu_ratio_peak)
    return f"CPU {mean_ratio} on average, {peak} peak; memory peak {memory}"


def energy_text(value: Energy | None, whole: float | None = None) -> str:
    """An amount and its bound, in the unit of the whole."""
    return energy(None) if value is None else energy(value.joules, whole) + bound(value.joules, value.error_joules)


def how(value: Energy, simulated: bool) -> str:
    """How an amount of energy was obtained."""
    names = METHODS | SIMULATED if simulated else METHODS
    words = [names.get(word, word) for word in value.method.split(" + ")]
    return f"{ORIGINS[value.origin]} {listed(words)}"


def total_energy(report: Report) -> str:
    """The total, what it is made of and how that was obtained; why there is none, where GPUs could have told it."""
    used = report.energy
    if used.total is None:
        return "unknown: the GPUs report neither energy nor power" if report.summary.gpus else ""
    parts = [(DEVICES[kind], part) for kind in used.kinds if (part := used.of_kind(kind))]
    if len(parts) == 1:
        made = f", {parts[0][0]} only, {how(parts[0][1], report.run.simulated)}"
    else:
        whole = used.total.joules
        origins = {part.origin: part.origin for _, part in parts} | (
            {"measured": "simulated"} if report.run.simulated else {}
        )
        made = ": " + ", ".join(f"{name} {energy(part.joules, whole)} {origins[part.origin]}" for name, part in parts)
    return energy_text(used.total) + made + building(report)


def origins(report: Report) -> str:
    """How the total was obtained: `90 % measured, 10 % estimated`."""
    shares = report.energy.origin_shares
    names = {"measured": "simulated"} if report.run.simulated else {}
    if len(shares) == 1:
        return "".join(names.get(origin, origin) for origin in shares)
    return ", ".join(f"{_part(share)} {names.get(origin, origin)}" for origin, share in shares.items())


def _part(share: float) -> str:
    """A share of something that has other parts: neither nothing nor all."""
    return "< 1 %" if share < 0.005 else "> 99 %" if share > 0.995 else percent(share)


def building(report: Report) -> str:
    """What a total contains besides its devices."""
    return f", times PUE {report.energy.pue:.2f}" if report.energy.pue != 1 else ""


def emissions(carbon: Carbon) -> str:
    return f"{grams(carbon.grams)} CO2e{bound(carbon.grams, carbon.error_grams)}"


def intensity(carbon: Carbon) -> str:
    return f"{number(carbon.grams_per_kwh)} g/kWh in {carbon.region}"


def carbon_line(report: Report) -> str:
    """All in one line, or why there is none."""
    carbon = report.carbon
    if carbon is None:
        return f"not computed: {report.carbon_missing or NO_CARBON}"
    return f"{emissions(carbon)}, at {intensity(carbon)} ({carbon.quality}, {carbon.accounting})"


def cost_amount(cost: Cost) -> str:
    return money(cost.amount, cost.currency) + bound(cost.amount, cost.error)


def cost_line(report: Report) -> str:
    """All in one line; empty when nobody asked."""
    cost = report.cost
    if cost is None:
        return f"not computed: {report.cost_missing}" if report.cost_missing else ""
    end = f"; {money(cost.projected, cost.currency)} at the end of the planned steps" if cost.projected else ""
    return f"{cost_amount(cost)}, at {basis(cost)}{end}"


def basis(cost: Cost) -> str:
    """What was counted, and of when the price is."""
    return cost.basis if cost.dated is None or str(cost.dated) in cost.basis else f"{cost.basis} ({cost.dated})"


def _bytes(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else mebibytes * MIB

"""A run in a few lines: what is shown when it ends, and by `pulsetrain runs show`."""

from pulsetrain.insight.summary import GpuSummary, Summary
from pulsetrain.runs.folder import Run
from pulsetrain.views.text import ABSENT, Style, bytes_text, cut, duration, energy, number, percent, table, used_of

MIB = 2**20
OUTCOME = {
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "interrupted": "interrupted",
    "died": "cut off: pulsetrain was killed",
}
ENERGY_SOURCE = {"counter": "measured by the GPUs' own counters", "power": "estimated from power readings"}


def summary_lines(run: Run, summary: Summary, path: str, style: Style) -> list[str]:
    seconds = (run.end - run.start).total_seconds() if run.end else summary.seconds
    good = run.status in ("finished", "running")
    outcome = style(OUTCOME.get(run.status, run.status), "green" if good else "red", "bold")
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    lines = [f"{style('pulsetrain', 'bold')}  {run.name} {outcome}{code} after {duration(seconds)}"]
    if summary.gpus:
        lines += table(*_gpu_table(summary, style), style, "lrrrrrrl")
    facts = [
        ("job", _job(summary, seconds)),
        ("host", _host(summary)),
        ("energy", _energy(summary)),
        ("lost", f"{run.lost_samples} samples could not be written" if run.lost_samples else ""),
        ("run", path),
    ]
    return lines + [f"{style(f'{name:<7}', 'dim')} {text}" for name, text in facts if text]


def _gpu_table(summary: Summary, style: Style) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = ("GPU", "busy", "peak", "memory peak", "power", "hottest", "energy", "")
    several_hosts = len({gpu.host for gpu in summary.gpus}) > 1
    rows = [_gpu_row(gpu, several_hosts, style) for gpu in summary.gpus]
    if len(rows) > 1:
        means = [g.utilization_percent_mean for g in summary.gpus if g.utilization_percent_mean is not None]
        watts = [g.power_watts_mean for g in summary.gpus if g.power_watts_mean is not None]
        rows.append(
            (
                f"all {len(rows)}",
                number(sum(means) / len(means) if means else None, "%"),
                "",
                "",
                number(sum(watts) if watts else None, "W"),
                "",
                energy(summary.gpu_energy_joules),
                "",
            )
        )
    return head, rows


def _gpu_row(gpu: GpuSummary, with_host: bool, style: Style) -> tuple[str, ...]:
    notes = []
    if gpu.lost_samples:
        notes.append(style(f"lost for {gpu.lost_samples} of {gpu.samples} readings", "red"))
    if gpu.throttled_share and gpu.throttled_share >= 0.01:
        notes.append(style(f"throttled {percent(gpu.throttled_share)} of the time", "yellow"))
    memory = used_of(
        None if gpu.memory_mb_peak is None else gpu.memory_mb_peak * MIB,
        None if gpu.memory_total_mb is None else gpu.memory_total_mb * MIB,
    )
    index = f"{gpu.host}:{gpu.gpu_index}" if with_host else f"{gpu.gpu_index}"
    return (
        f"{index} {cut(gpu.name.removeprefix('NVIDIA '), 28)}",
        number(gpu.utilization_percent_mean, "%"),
        number(gpu.utilization_percent_peak, "%"),
        memory,
        number(gpu.power_watts_mean, "W"),
        number(gpu.temperature_celsius_peak, "°C"),
        energy(gpu.energy_joules),
        ", ".join(notes),
    )


def _job(summary: Summary, seconds: float) -> str:
    if summary.job_cpu_seconds is None:
        return ""
    cores = summary.job_cpu_seconds / seconds if seconds > 0 else 0.0
    processes = summary.job_processes_peak or 0
    many = f", up to {processes:.0f} processes" if processes > 1 else ""
    return (
        f"{cores:.1f} of {number(summary.cpu_cores)} cores on average, memory peak "
        f"{bytes_text(summary.job_memory_bytes_peak)}{many}"
    )


def _host(summary: Summary) -> str:
    if summary.cpu_ratio_mean is None:
        return ""
    memory = used_of(summary.memory_used_bytes_peak, summary.memory_total_bytes)
    mean, peak = percent(summary.cpu_ratio_mean), percent(summary.cpu_ratio_peak)
    return f"CPU {mean} on average, {peak} peak; memory peak {memory}"


def _energy(summary: Summary) -> str:
    cpu = f"CPU {energy(summary.cpu_energy_joules)} (RAPL)" if summary.cpu_energy_joules is not None else ""
    if not summary.gpus:
        return cpu
    sources = {gpu.energy_source for gpu in summary.gpus}
    if any(gpu.simulated for gpu in summary.gpus):
        how = "simulated"
    elif sources == {"none"}:
        return f"GPUs {ABSENT}, they tell neither energy nor power"
    else:
        how = "; ".join(ENERGY_SOURCE[source] for source in sorted(sources & ENERGY_SOURCE.keys()))
    return f"GPUs {energy(summary.gpu_energy_joules)} ({how})" + (f", {cpu}" if cpu else ", CPU not measured")

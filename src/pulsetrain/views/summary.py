"""A run in a few lines: what is shown when it ends, and by `pulsetrain runs show`."""

from pulsetrain.insight.summary import GpuSummary, Summary, TrainingSummary
from pulsetrain.runs.folder import Run
from pulsetrain.views.text import (
    ABSENT,
    Style,
    bytes_text,
    cut,
    duration,
    energy,
    milliseconds,
    number,
    percent,
    table,
    used_of,
)

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
    """The run's name and outcome, its GPUs as a table, and a line for everything else that is known."""
    seconds = (run.end - run.start).total_seconds() if run.end else summary.seconds
    good = run.status in ("finished", "running")
    outcome = style(OUTCOME.get(run.status, run.status), "green" if good else "red", "bold")
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    lines = [f"{style('pulsetrain', 'bold')}  {run.name} {outcome}{code} after {duration(seconds)}"]
    if summary.gpus:
        lines += table(*_gpu_table(summary, style), style, "lrrrrrrl")
    facts = [
        ("GPUs", "" if summary.gpus else _why_no_gpus(run)),
        *_training(summary.training),
        ("job", _job(summary, seconds)),
        ("host", _host(summary)),
        ("energy", _energy(summary)),
        ("lost", f"{run.lost_samples} samples could not be written" if run.lost_samples else ""),
        ("run", path),
    ]
    return lines + [f"{style(f'{name:<7}', 'dim')} {text}" for name, text in facts if text]


def _why_no_gpus(run: Run) -> str:
    reasons = [host.unavailable["nvidia"] for host in run.hosts.values() if "nvidia" in host.unavailable]
    return f"none watched: {reasons[0].removesuffix('.')}" if reasons else ""


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


def _training(training: TrainingSummary | None) -> list[tuple[str, str]]:
    """The training loop in up to three lines."""
    if training is None:
        return []
    steps = number(training.last_step if training.last_step is not None else training.steps)
    planned = f" of {number(training.total_steps)}" if training.total_steps else ""
    epochs = f" in {number(training.epoch, digits=1)} epochs" if training.epoch else ""
    ranks = f" on each of {training.ranks} ranks" if training.ranks > 1 else ""
    loss = _loss(training)
    lines = [("steps", f"{steps}{planned}{epochs}{ranks}" + (f", loss {loss}" if loss else ""))]
    if training.step_seconds_p50 is not None:
        rates = [
            f"{milliseconds(training.step_seconds_p50)} a step (p95 {milliseconds(training.step_seconds_p95)})",
            f"{number(training.samples_per_second)} samples/s" if training.samples_per_second else "",
            f"{number(training.tokens_per_second)} tokens/s" if training.tokens_per_second else "",
            f"{percent(training.mfu_ratio)} of the peak FLOPs (estimated)" if training.mfu_ratio else "",
        ]
        lines.append(("speed", ", ".join(filter(None, rates))))
    shares = {
        "waiting for data": training.data_wait_share,
        "forward": training.forward_share,
        "backward": training.backward_share,
        "optimizer": training.optimizer_share,
        "other": training.other_share,
    }
    parts = [f"{name} {percent(share)}" for name, share in shares.items() if share is not None]
    return [*lines, ("time", ", ".join(parts))] if parts else lines


def _loss(training: TrainingSummary) -> str:
    if training.loss_first is None or training.loss_last is None:
        text = ""
    else:
        text = f"{training.loss_first:.4g} -> {training.loss_last:.4g}"
    if training.nonfinite_losses:
        text += f" ({training.nonfinite_losses} times not a number)"
    return text.strip()


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

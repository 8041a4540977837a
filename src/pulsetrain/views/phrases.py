"""The figures of a run in words, shared by the summary at its end and by its report."""

from collections.abc import Iterable, Sequence

from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.figures import DeviceEnergy, Energy
from pulsetrain.insight.report import Report
from pulsetrain.insight.summary import GpuSummary, Summary, TrainingSummary
from pulsetrain.runs.folder import Run
from pulsetrain.views.text import (
    Style,
    bound,
    bytes_text,
    cut,
    duration,
    energy,
    grams,
    milliseconds,
    money,
    number,
    percent,
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
DEVICES = {"gpu": "GPUs", "cpu": "CPU", "dram": "memory"}
GPU_HEAD = ("GPU", "busy", "peak", "memory peak", "free", "power", "hottest", "energy", "")
GPU_ALIGN = "lrrrrrrrl"
GPU_SPARE = (2, 4, 6, 5)
"""Columns one can do without, the first of them first."""
NO_CARBON = "name a region, --carbon-region DE"
SEVERITY = {"warning": "yellow", "error": "red"}


def run_seconds(report: Report) -> float:
    """From start to end; so far, of a run that goes on or was cut off."""
    run = report.run
    return (run.end - run.start).total_seconds() if run.end else report.summary.seconds


def outcome(run: Run) -> str:
    """`finished`, or `failed (exit code 1)`."""
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    return OUTCOME.get(run.status, run.status) + code


def headline(report: Report, style: Style) -> str:
    """Name, outcome and length."""
    colour = "green" if report.run.status in ("finished", "running") else "red"
    ended = style(outcome(report.run), colour, "bold")
    return f"{style('pulsetrain', 'bold')}  {report.run.name} {ended} after {duration(run_seconds(report))}"


def why_no_gpus(run: Run) -> str:
    """The reason the machine gave; empty when it gave none."""
    reasons = [host.unavailable["nvidia"] for host in run.hosts.values() if "nvidia" in host.unavailable]
    return f"none watched: {reasons[0].removesuffix('.')}" if reasons else ""


def gpu_label(host: str, gpu_index: int | None, several_hosts: bool) -> str:
    """`0`, or `node1:0` where there are several machines."""
    return f"{host}:{gpu_index}" if several_hosts else f"{gpu_index}"


def gpu_rows(report: Report, style: Style) -> list[tuple[str, ...]]:
    """A row for each GPU, and one for all of them."""
    gpus = report.summary.gpus
    several_hosts = len({gpu.host for gpu in gpus}) > 1
    total = kind_energy(report.energy.devices, "gpu")
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
    if device and not device.charged:
        notes.append(style("not used by the run, not charged", "dim"))
    used, total = _bytes(gpu.memory_mb_peak), _bytes(gpu.memory_total_mb)
    free = None if used is None or total is None else total - used
    return (
        f"{gpu_label(gpu.host, gpu.gpu_index, several_hosts)} {cut(gpu.name.removeprefix('NVIDIA '), 28)}",
        number(gpu.utilization_percent_mean, "%"),
        number(gpu.utilization_percent_peak, "%"),
        used_of(used, total),
        bytes_text(free),
        number(gpu.power_watts_mean, "W"),
        number(gpu.temperature_celsius_peak, "°C"),
        energy_text(device.total if device else None, whole),
        ", ".join(notes),
    )


def _device(gpu: GpuSummary, devices: Sequence[DeviceEnergy]) -> DeviceEnergy | None:
    """The account of a GPU."""
    for device in devices:
        same = device.uuid == gpu.uuid if gpu.uuid else device.gpu_index == gpu.gpu_index
        if device.device == "gpu" and device.host == gpu.host and same:
            return device
    return None


def steps(training: TrainingSummary) -> str:
    """How many steps of how many, in how many epochs, on how many ranks."""
    done = number(training.last_step if training.last_step is not None else training.steps)
    planned = f" of {number(training.total_steps)}" if training.total_steps else ""
    epochs = f" in {number(training.epoch, digits=1)} epochs" if training.epoch else ""
    ranks = f" on each of {training.ranks} ranks" if training.ranks > 1 else ""
    return f"{done}{planned}{epochs}{ranks}"


def loss(training: TrainingSummary) -> str:
    """The first and the last, and how often it was no number."""
    text = ""
    if training.loss_first is not None and training.loss_last is not None:
        text = f"{training.loss_first:.4g} -> {training.loss_last:.4g}"
    if training.nonfinite_losses:
        often = "once" if training.nonfinite_losses == 1 else f"{training.nonfinite_losses} times"
        text += f" ({often} not a number)"
    return text.strip()


def step_time(training: TrainingSummary) -> str:
    """`12 ms a step (p95 15 ms)`."""
    if training.step_seconds_p50 is None:
        return ""
    return f"{milliseconds(training.step_seconds_p50)} a step (p95 {milliseconds(training.step_seconds_p95)})"


def rates(training: TrainingSummary) -> str:
    """Samples and tokens a second. The figures are those of one rank: all do the same steps."""
    parts = [
        f"{number(training.samples_per_second)} samples/s" if training.samples_per_second else "",
        f"{number(training.tokens_per_second)} tokens/s" if training.tokens_per_second else "",
    ]
    text = ", ".join(filter(None, parts))
    return f"{text} on each rank" if text and training.ranks > 1 else text


def flops(training: TrainingSummary) -> str:
    return f"{percent(training.mfu_ratio)} of the peak FLOPs (estimated)" if training.mfu_ratio else ""


def shares(training: TrainingSummary) -> str:
    """What the time of a step went into."""
    parts = {
        "waiting for data": training.data_wait_share,
        "forward": training.forward_share,
        "backward": training.backward_share,
        "optimizer": training.optimizer_share,
        "other": training.other_share,
    }
    return ", ".join(f"{name} {percent(share)}" for name, share in parts.items() if share is not None)


def job(summary: Summary, seconds: float) -> str:
    """What the command used of the machine."""
    if summary.job_cpu_seconds is None:
        return ""
    cores = summary.job_cpu_seconds / seconds if seconds > 0 else 0.0
    processes = summary.job_processes_peak or 0
    many = f", up to {processes:.0f} processes" if processes > 1 else ""
    return (
        f"{cores:.1f} of {number(summary.cpu_cores)} cores on average, memory peak "
        f"{bytes_text(summary.job_memory_bytes_peak)}{many}"
    )


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
    return f"{ORIGINS[value.origin]} {' and '.join(filter(None, [', '.join(words[:-1]), words[-1]]))}"


def kind_energy(devices: Iterable[DeviceEnergy], kind: str) -> Energy | None:
    """The charged devices of a kind together. An error that is not known for one is not known for the sum."""
    known = [device.total for device in devices if device.device == kind and device.charged and device.total]
    if not known:
        return None
    errors = [value.error_joules for value in known]
    origins = {value.origin for value in known}
    return Energy(
        joules=sum(value.joules for value in known),
        error_joules=None if None in errors else sum(filter(None, errors)),
        origin="assumed" if "assumed" in origins else "estimated" if "estimated" in origins else "measured",
        method=" + ".join(sorted({word for value in known for word in value.method.split(" + ")})),
    )


def known_kinds(devices: Iterable[DeviceEnergy]) -> list[str]:
    """The kinds of devices that the total stands for."""
    kinds = {device.device for device in devices if device.charged and device.total}
    return [kind for kind in DEVICES if kind in kinds]


def total_energy(report: Report) -> str:
    """The total, what it is made of and how that was obtained; why there is none, where GPUs could have told it."""
    account = report.energy
    if account.total is None:
        return "not known: the GPUs tell neither energy nor power" if report.summary.gpus else ""
    kinds = known_kinds(account.devices)
    parts = [(DEVICES[kind], part) for kind in kinds if (part := kind_energy(account.devices, kind))]
    if len(parts) == 1:
        made = f" of the {parts[0][0]} alone, {how(parts[0][1], report.run.simulated)}"
    else:
        whole = account.total.joules
        origins = {part.origin: part.origin for _, part in parts} | (
            {"measured": "simulated"} if report.run.simulated else {}
        )
        made = ": " + ", ".join(f"{name} {energy(part.joules, whole)} {origins[part.origin]}" for name, part in parts)
    return energy_text(account.total) + made + building(report)


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


def mean(values: Iterable[float | None]) -> float | None:
    """Of what is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _bytes(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else mebibytes * MIB

"""What a report says, once: sections of facts, tables and remarks. Text, Markdown and HTML are renderings of them."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pulsetrain.insight.carbon import GreenerStart
from pulsetrain.insight.energy.figures import DeviceEnergy, Portion
from pulsetrain.insight.report import Report
from pulsetrain.runs.folder import Host, Run
from pulsetrain.views import phrases
from pulsetrain.views.text import (
    Style,
    bound,
    bytes_text,
    duration,
    energy,
    grams,
    milliseconds,
    money,
    number,
    percent,
)

MOST_NAMED = 3
"""Devices that a remark names one by one."""
DISAGREEMENT_RATIO = 0.02
"""Counter and power that lie further apart are worth a remark."""
MOST_EPOCHS = 10
MOST_EVENTS = 20
PER_STEPS, PER_SAMPLES = 1_000, 1_000_000

Fact = tuple[str, str]
Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows under a head. `align` has a letter for each column, l or r; `spare` are those one can do without."""

    head: Row
    rows: Sequence[Row]
    align: str
    spare: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """One subject of the report. Any part may be empty, but not all."""

    title: str
    facts: list[Fact] = field(default_factory=list)
    table: Table | None = None
    remarks: list[str] = field(default_factory=list)


def sections(report: Report, style: Style) -> list[Section]:
    """All that is known, in the order in which one asks. `style` colours what is amiss."""
    found = [
        _run(report),
        _gpus(report, style),
        _training(report),
        _machine(report),
        _energy(report),
        *_carbon_and_cost(report),
        _phases(report),
        _epochs(report),
        _events(report, style),
        _record(report),
    ]
    return [
        Section(section.title, [fact for fact in section.facts if fact[1]], section.table, section.remarks)
        for section in found
        if any(value for _, value in section.facts) or section.table or section.remarks
    ]


def _run(report: Report) -> Section:
    run, training = report.run, report.summary.training
    speed = [phrases.rates(training), phrases.step_time(training)] if training else []
    facts = [
        ("command", shlex.join(run.command)),
        ("started", f"{run.start.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        *(("machine", machine) for machine in _machines(run)),
        ("speed", ", ".join(filter(None, speed))),
        ("tags", ", ".join(f"{key}={value}" for key, value in run.tags.items())),
        ("folder", report.path),
    ]
    remarks = ["The GPUs are simulated: nothing about them is a measurement."] if run.simulated else []
    return Section("Run", facts, remarks=remarks)


def _machines(run: Run) -> Iterator[str]:
    for name, host in run.hosts.items():
        parts = [
            *_boards(host),
            f"{host.cpu_cores} cores" if host.cpu_cores else "",
            f"{bytes_text(host.memory_bytes)} memory" if host.memory_bytes else "",
            host.system,
        ]
        yield f"{name}: {', '.join(filter(None, parts))}" if any(parts) else name


def _boards(host: Host) -> list[str]:
    names = Counter(str(gpu.get("name", "GPU")).removeprefix("NVIDIA ") for gpu in host.gpus)
    return [f"{count} x {name}" for name, count in names.items()]


def _gpus(report: Report, style: Style) -> Section:
    if not report.summary.gpus:
        return Section("GPUs", [("GPUs", phrases.why_no_gpus(report.run))])
    rows = phrases.gpu_rows(report, style)
    return Section("GPUs", table=Table(phrases.GPU_HEAD, rows, phrases.GPU_ALIGN, phrases.GPU_SPARE))


def _training(report: Report) -> Section:
    training = report.summary.training
    if training is None:
        return Section("Training")
    median, slow = training.step_seconds_p50, training.step_seconds_p95
    facts = [
        ("steps", phrases.steps(training)),
        ("loss", phrases.loss(training)),
        ("step time", f"median {milliseconds(median)}, p95 {milliseconds(slow)}" if median is not None else ""),
        ("of a step", phrases.shares(training)),
        ("throughput", phrases.rates(training)),
        ("FLOPs", phrases.flops(training)),
    ]
    return Section("Training", facts)


def _machine(report: Report) -> Section:
    seconds = phrases.run_seconds(report)
    own = report.summary.pulsetrain_cpu_seconds
    facts = [
        ("job", phrases.job(report.summary, seconds)),
        ("host", phrases.host(report.summary)),
        ("pulsetrain", f"{own:.1f} s of CPU time, {100 * own / seconds:.2f} % of a core" if own and seconds else ""),
    ]
    return Section("Machine", facts)


def _energy(report: Report) -> Section:
    account = report.energy
    whole = account.total.joules if account.total else None
    facts = [
        *_energy_parts(report),
        ("idle", _idle(account.devices, whole)),
        ("per step", energy(account.joules_per_step) if account.joules_per_step is not None else ""),
        ("per sample", energy(account.joules_per_sample) if account.joules_per_sample is not None else ""),
        ("per token", energy(account.joules_per_token) if account.joules_per_token is not None else ""),
    ]
    remarks = [*_disagreements(account.devices), *_device_notes(account.devices)]
    return Section("Energy", facts, remarks=[*remarks, *account.also_counted_in])


def _energy_parts(report: Report) -> Iterator[Fact]:
    """The total, and below it what it is made of."""
    account = report.energy
    kinds = phrases.known_kinds(account.devices)
    if account.total is None or len(kinds) == 1:
        yield "total", phrases.total_energy(report)
        return
    yield "total", phrases.energy_text(account.total) + phrases.building(report)
    for kind in kinds:
        if part := phrases.kind_energy(account.devices, kind):
            amount, origin = phrases.energy_text(part, account.total.joules), phrases.how(part, report.run.simulated)
            yield phrases.DEVICES[kind], f"{amount}, {origin}"


def _idle(devices: list[DeviceEnergy], total: float | None) -> str:
    """What the GPUs used for nothing."""
    known = [device for device in devices if device.device == "gpu" and device.charged]
    idle = [device.idle_joules for device in known if device.idle_joules is not None]
    active = [device.active_joules for device in known if device.active_joules is not None]
    whole = sum(idle) + sum(active)
    if not idle or not active or not whole:
        return ""
    share = percent(sum(idle) / whole)
    spent, used = energy(sum(idle), total), energy(sum(active), total)
    return f"{spent} while no kernel ran, {share} of the GPUs' energy; active {used}"


def _disagreements(devices: Sequence[DeviceEnergy]) -> Iterator[str]:
    """Where power at the ticks tells another story than the counter; one sentence, however many GPUs."""
    far = [(device, device.disagreement_ratio) for device in devices if device.disagreement_ratio is not None]
    far = [(device, ratio) for device, ratio in far if abs(ratio) > DISAGREEMENT_RATIO]
    for above in (True, False):
        ratios = {_device_name(device, devices): abs(100 * ratio) for device, ratio in far if (ratio > 0) is above}
        if not ratios:
            continue
        low, high = min(ratios.values()), max(ratios.values())
        span = f"{high:.1f} %" if len(ratios) == 1 else f"{low:.1f} to {high:.1f} %"
        side = "above" if above else "below"
        yield f"{_names(list(ratios))}: power added up lies {span} {side} the counter, which is counted."


def _device_notes(devices: Sequence[DeviceEnergy]) -> Iterator[str]:
    """What is said of several devices stands once."""
    by_note: dict[str, list[str]] = {}
    for device in devices:
        for note in device.notes:
            by_note.setdefault(note, []).append(_device_name(device, devices))
    yield from (f"{_names(names)}: {note}" for note, names in by_note.items())


def _device_name(device: DeviceEnergy, devices: Sequence[DeviceEnergy]) -> str:
    several_hosts = len({other.host for other in devices}) > 1
    if device.device == "gpu":
        return f"GPU {phrases.gpu_label(device.host, device.gpu_index, several_hosts)}"
    name = phrases.DEVICES[device.device] + (f" of {device.host}" if several_hosts else "")
    return name[0].upper() + name[1:]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{names[0]} and {len(names) - 1} more"


def _carbon_and_cost(report: Report) -> list[Section]:
    if report.carbon is None and report.cost is None:
        missing = [("carbon", phrases.carbon_line(report)), ("cost", phrases.cost_line(report))]
        return [Section("Carbon and cost", missing)]
    return [_carbon(report), _cost(report)]


def _carbon(report: Report) -> Section:
    carbon = report.carbon
    if carbon is None:
        return Section("Carbon", [("carbon", phrases.carbon_line(report))])
    facts = [
        ("emissions", phrases.emissions(carbon)),
        ("intensity", f"{phrases.intensity(carbon)}, mean over the run's energy"),
        ("source", f"{carbon.provider}; {carbon.accounting} emissions, {carbon.quality} values"),
        ("greener", _greener(carbon.greener) if carbon.greener else ""),
    ]
    return Section("Carbon", facts, remarks=carbon.notes)


def _greener(greener: GreenerStart) -> str:
    if greener.grams >= greener.grams_now or not greener.grams_now:
        return "now is as good a time as any in the forecast"
    saved = percent(1 - greener.grams / greener.grams_now)
    return (
        f"begun at {greener.start.astimezone(UTC):%Y-%m-%d %H:%M} UTC, such a run would emit {grams(greener.grams)}, "
        f"{saved} less than now ({grams(greener.grams_now)})"
    )


def _cost(report: Report) -> Section:
    cost = report.cost
    if cost is None:
        return Section("Cost", [("cost", phrases.cost_line(report))])
    facts = [
        ("so far" if report.run.status == "running" else "amount", phrases.cost_amount(cost)),
        ("basis", phrases.basis(cost)),
        ("at the end", f"{money(cost.projected, cost.currency)}, of the planned steps" if cost.projected else ""),
        ("per step", _per(cost.per_step, PER_STEPS, "steps", cost.currency)),
        ("per sample", _per(cost.per_sample, PER_SAMPLES, "samples", cost.currency)),
    ]
    return Section("Cost", facts, remarks=cost.notes)


def _per(amount: float | None, count: int, what: str, currency: str) -> str:
    """Of so many that the amount is one people can read."""
    return "" if amount is None else f"{money(amount * count, currency)} for {count:,} {what}"


def _phases(report: Report) -> Section:
    phases = report.energy.phases
    if len(phases) < 2:
        return Section("Phases")
    seconds = sum(phase.seconds for phase in phases)
    joules = sum(phase.joules for phase in phases)
    known = report.energy.total is not None
    rows = [
        (
            phase.name,
            duration(phase.seconds),
            percent(phase.seconds / seconds) if seconds else "",
            _portion_energy(phase, joules) if known else "",
            percent(phase.joules / joules) if known and joules else "",
            number(phase.steps) if phase.steps else "",
            energy(phase.joules / phase.steps) if known and phase.steps else "",
        )
        for phase in phases
    ]
    head = ("phase", "time", "of time", "energy", "of energy", "steps", "per step")
    return Section("Phases", table=Table(head, rows, "lrrrrrr", (6, 2)), remarks=_without_pue(report))


def _epochs(report: Report) -> Section:
    epochs = report.energy.epochs
    if len(epochs) < 2:
        return Section("Epochs")
    known = report.energy.total is not None
    most = max(epoch.joules for epoch in epochs)
    rows = [
        (
            epoch.name,
            duration(epoch.seconds),
            _portion_energy(epoch, most) if known else "",
            number(epoch.steps) if epoch.steps else "",
            number(epoch.samples) if epoch.samples else "",
            energy(epoch.joules / epoch.samples) if known and epoch.samples else "",
        )
        for epoch in epochs
    ]
    remarks = _without_pue(report)
    if len(rows) > MOST_EPOCHS:
        remarks = [*remarks, f"The first and the last {MOST_EPOCHS // 2} of {len(rows)} epochs; --json has them all."]
        rows = rows[: MOST_EPOCHS // 2] + rows[-(MOST_EPOCHS // 2) :]
    head = ("epoch", "time", "energy", "steps", "samples", "per sample")
    return Section("Epochs", table=Table(head, rows, "lrrrrr", (5, 4)), remarks=remarks)


def _without_pue(report: Report) -> list[str]:
    return ["Energy of the devices alone, without PUE."] if report.energy.pue != 1 else []


def _portion_energy(portion: Portion, whole: float) -> str:
    return energy(portion.joules, whole) + bound(portion.joules, portion.error_joules)


def _events(report: Report, style: Style) -> Section:
    events = [event for event in report.events if event.get("severity") in phrases.SEVERITY]
    if not events:
        return Section("Events")
    rows = [_event_row(event, style) for event in events[:MOST_EVENTS]]
    more = len(events) - len(rows)
    remarks = [f"And {more} more, in events.jsonl."] if more else []
    return Section("Events", table=Table(("time (UTC)", "severity", "what happened"), rows, "lll"), remarks=remarks)


def _event_row(event: dict[str, Any], style: Style) -> Row:
    severity, time = str(event["severity"]), event.get("timestamp")
    when = f"{time:%Y-%m-%d %H:%M:%S}" if isinstance(time, datetime) else str(time)[:19].replace("T", " ")
    return when, style(severity, phrases.SEVERITY[severity]), str(event.get("message", ""))


def _record(report: Report) -> Section:
    damaged, lost = report.damaged_lines, report.run.lost_samples
    remarks = [
        f"{number(damaged)} damaged lines could not be read and are left out." if damaged else "",
        f"{number(lost)} samples could not be written." if lost else "",
    ]
    return Section("Record", remarks=[remark for remark in remarks if remark])

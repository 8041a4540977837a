"""What a report says, once: sections of facts, tables and remarks. Text, Markdown and HTML are renderings of them."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pulsetrain.insight.alerts import gravest_first
from pulsetrain.insight.carbon import GreenerStart
from pulsetrain.insight.energy.figures import DeviceEnergy, Portion, RunEnergy
from pulsetrain.insight.listing import flat_settings
from pulsetrain.insight.report import Report
from pulsetrain.rules.alert import KINDS as ALERT_KINDS
from pulsetrain.runs.folder import Host, Run
from pulsetrain.views import node_phrases, phrases, provenance_phrases, time_phrases, verdict_phrases
from pulsetrain.views import training_phrases as words
from pulsetrain.views.chart_list import OWN_METRICS, TIME
from pulsetrain.views.charts import MOST_OWN_METRICS
from pulsetrain.views.provenance_phrases import account_source
from pulsetrain.views.terminal.braille import sparkline
from pulsetrain.views.text import (
    Style,
    bound,
    bytes_text,
    duration,
    energy,
    grams,
    in_one_unit,
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
class ReportTable:
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
    table: ReportTable | None = None
    remarks: list[str] = field(default_factory=list)


def sections(report: Report, style: Style) -> list[Section]:
    """All that is known, in the order in which one asks. `style` colors what is amiss."""
    found = [
        _run(report),
        _verdict(report, style),
        _gpus(report, style),
        _training(report),
        *_nodes(report, style),
        _time(report),
        _own_metrics(report, style),
        _machine(report),
        _energy(report),
        *_carbon_and_cost(report),
        _phases(report),
        _epochs(report),
        _alerts(report, style),
        _events(report, style),
        _record(report),
    ]
    return [
        Section(section.title, [fact for fact in section.facts if fact[1]], section.table, section.remarks)
        for section in found
        if any(value for _, value in section.facts) or section.table or section.remarks
    ]


def _verdict(report: Report, style: Style) -> Section:
    """The main finding with all that shows it, and a line for each further one."""
    verdict = report.verdict
    if verdict is None:
        return Section("Verdict")
    main = verdict.main
    facts = [("verdict", verdict.headline)]
    if main is not None:
        facts += [
            ("finding", f"{verdict_phrases.finding_title(main, style)}, confidence {main.confidence}"),
            ("do", main.advice),
            ("cost", verdict_phrases.cost_text(main.cost, report)),
            ("evidence", verdict_phrases.evidence_text(main)),
        ]
    facts += [
        ("also", verdict_phrases.finding_text(finding, report, style))
        for finding in verdict.findings
        if finding is not main and finding.summary not in verdict.headline
    ]
    facts += [("size", hint) for hint in verdict.sizing]
    return Section("Verdict", facts)


def _run(report: Report) -> Section:
    run, training = report.run, report.summary.training
    speed = [words.rates(training), words.step_time(training)] if training else []
    facts = [
        ("command", shlex.join(run.command)),
        ("started", f"{run.start.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        *(("machine", machine) for machine in _machines(run)),
        ("speed", ", ".join(filter(None, speed))),
        ("project", run.project),
        ("tags", ", ".join(f"{key}={value}" for key, value in run.tags.items())),
        ("config", ", ".join(f"{key}={phrases.setting(value)}" for key, value in flat_settings(run.config).items())),
        *provenance_phrases.facts(run),
        ("note", run.note),
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
    return Section("GPUs", table=ReportTable(phrases.GPU_HEAD, rows, phrases.GPU_ALIGN, phrases.GPU_SPARE))


def _training(report: Report) -> Section:
    training = report.summary.training
    if training is None:
        return Section("Training", remarks=report.missing)
    facts = [
        ("steps", words.steps(training)),
        ("loss", words.loss(training)),
        ("updates", words.updates(training)),
        ("step time", words.step_time(training)),
        ("of a step", words.shares(training)),
        ("throughput", words.rates(training)),
        ("FLOPs", words.flops(training)),
        ("rest", words.left_out(training)),
    ]
    return Section("Training", facts, remarks=report.missing)


def _nodes(report: Report, style: Style) -> list[Section]:
    """Each host and each rank of a run that has several."""
    found = report.nodes
    if found is None:
        return []
    nodes = Section("Nodes")
    if len(found.nodes) > 1:
        rows = node_phrases.node_rows(found, style)
        table = ReportTable(node_phrases.NODE_HEAD, rows, node_phrases.NODE_ALIGN, node_phrases.NODE_SPARE)
        nodes = Section("Nodes", table=table, remarks=node_phrases.node_remarks(found))
    if len(found.ranks) < 2:
        return [nodes]
    facts = [
        ("skew", node_phrases.skew_text(found)),
        *(("late", text) for text in node_phrases.late_texts(found)),
        *(("held up", text) for text in node_phrases.held_up_texts(found)),
    ]
    rows = node_phrases.rank_rows(found)
    more = len(found.ranks) - node_phrases.MOST_RANKS
    remarks = [f"The ranks that stand out, of {len(found.ranks)}; --json has them all."] if more > 0 else []
    table = ReportTable(node_phrases.RANK_HEAD, rows, node_phrases.RANK_ALIGN, node_phrases.RANK_SPARE)
    return [nodes, Section("Ranks", facts, table, remarks)]


def _time(report: Report) -> Section:
    """What every instant of every rank went into."""
    ledger = report.ledger
    if ledger is None:
        return Section(TIME)
    ranks = len({(rank.host, rank.rank) for rank in ledger.ranks})
    facts = [
        ("goodput", time_phrases.goodput(ledger)),
        ("start-up", time_phrases.startup(ledger)),
        ("ranks", f"{ranks}; times are summed over them" if ranks > 1 else ""),
    ]
    rows = time_phrases.time_rows(report, ledger)
    table = ReportTable(time_phrases.TIME_HEAD, rows, time_phrases.TIME_ALIGN, time_phrases.TIME_SPARE)
    return Section(TIME, facts, table, remarks=time_phrases.attempts(ledger.ranks))


def _own_metrics(report: Report, style: Style) -> Section:
    """What the program logged under names of its own."""
    if not report.own_metrics:
        return Section(OWN_METRICS)
    rows = [
        (
            metric.name,
            f"{metric.last:.4g}",
            f"{metric.best:.4g}" if metric.best is not None else "",
            f"{metric.lowest:.4g}",
            f"{metric.highest:.4g}",
            number(metric.count),
            sparkline(metric.shape, len(metric.shape), ascii=not style.blocks),
        )
        for metric in report.own_metrics[:MOST_OWN_METRICS]
    ]
    more = len(report.own_metrics) - len(rows)
    head = ("name", "last", "best", "lowest", "highest", "values", "trend")
    remarks = [f"And {more} more; all are in `pulsetrain export`."] if more > 0 else []
    return Section(OWN_METRICS, table=ReportTable(head, rows, "lrrrrrl", spare=(3, 4, 5)), remarks=remarks)


def _machine(report: Report) -> Section:
    seconds = report.seconds
    own = report.summary.pulsetrain_cpu_seconds
    facts = [
        ("job", phrases.job(report.summary, seconds)),
        ("host", phrases.host(report.summary)),
        ("pulsetrain", f"{own:.1f} s of CPU time, {100 * own / seconds:.2f} % of a core" if own and seconds else ""),
    ]
    return Section("Machine", facts)


def _energy(report: Report) -> Section:
    used = report.energy
    facts = [
        *_energy_parts(report),
        ("idle", _idle(used)),
        ("per step", energy(used.joules_per_step) if used.joules_per_step is not None else ""),
        ("per sample", energy(used.joules_per_sample) if used.joules_per_sample is not None else ""),
        ("per token", energy(used.joules_per_token) if used.joules_per_token is not None else ""),
    ]
    remarks = [*_disagreements(used.devices), *_device_notes(used.devices)]
    return Section("Energy", facts, remarks=[*remarks, *used.also_counted_in])


def _energy_parts(report: Report) -> Iterator[Fact]:
    """The total, and below it what it is made of."""
    used = report.energy
    if used.total is None or len(used.kinds) == 1:
        yield "total", phrases.total_energy(report)
        return
    yield "total", f"{phrases.energy_text(used.total)}{phrases.building(report)}, {phrases.origins(report)}"
    for kind in used.kinds:
        if part := used.of_kind(kind):
            amount, origin = phrases.energy_text(part, used.total.joules), phrases.how(part, report.run.simulated)
            yield phrases.DEVICES[kind], f"{amount}, {origin}"


def _idle(used: RunEnergy) -> str:
    """What the GPUs used for nothing."""
    idle, active = used.gpu_idle_joules, used.gpu_active_joules
    if idle is None or active is None or not idle + active:
        return ""
    total = used.total.joules if used.total else None
    share = percent(idle / (idle + active))
    return f"{energy(idle, total)} while no kernel ran, {share} of the GPUs' energy; active {energy(active, total)}"


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
        yield f"{_names(list(ratios))}: integrated power is {span} {side} the counter; the counter is used."


def _device_notes(devices: Sequence[DeviceEnergy]) -> Iterator[str]:
    """What is said of several devices is given once."""
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
        (
            "intensity",
            f"{phrases.intensity(carbon)}, mean over the run's energy{account_source(report, 'carbon_region')}",
        ),
        ("source", f"{carbon.provider}; {carbon.accounting} emissions, {carbon.quality} values"),
        ("greener", _greener(carbon.greener) if carbon.greener else ""),
    ]
    return Section("Carbon", facts, remarks=carbon.notes)


def _greener(greener: GreenerStart) -> str:
    if greener.grams >= greener.grams_now or not greener.grams_now:
        return "now is as good a time as any in the forecast"
    saved = percent(1 - greener.grams / greener.grams_now)
    return (
        f"started at {greener.start.astimezone(UTC):%Y-%m-%d %H:%M} UTC, such a run would emit {grams(greener.grams)}, "
        f"{saved} less than now ({grams(greener.grams_now)})"
    )


def _cost(report: Report) -> Section:
    cost = report.cost
    if cost is None:
        return Section("Cost", [("cost", phrases.cost_line(report))])
    facts = [
        ("so far" if report.run.status == "running" else "amount", phrases.cost_amount(cost)),
        ("basis", phrases.basis(cost) + account_source(report, "price")),
        (
            "projected",
            f"{money(cost.projected, cost.currency)} at the end of the planned steps" if cost.projected else "",
        ),
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
        )
        for phase in phases
    ]
    head = ("phase", "time", "of time", "energy", "of energy", "steps")
    return Section("Phases", table=ReportTable(head, rows, "lrrrrr", (2,)), remarks=_without_pue(report))


def _epochs(report: Report) -> Section:
    epochs = report.energy.epochs
    if len(epochs) < 2:
        return Section("Epochs")
    known = report.energy.total is not None
    most = max(epoch.joules for epoch in epochs)
    per_sample = [epoch.joules / epoch.samples if known and epoch.samples else None for epoch in epochs]
    rows = [
        (
            epoch.name,
            duration(epoch.seconds),
            _portion_energy(epoch, most) if known else "",
            number(epoch.steps) if epoch.steps else "",
            number(epoch.samples) if epoch.samples else "",
            each,
        )
        for epoch, each in zip(epochs, in_one_unit(per_sample, energy), strict=True)
    ]
    remarks = _without_pue(report)
    if len(rows) > MOST_EPOCHS:
        remarks = [*remarks, f"The first and the last {MOST_EPOCHS // 2} of {len(rows)} epochs; --json has them all."]
        rows = rows[: MOST_EPOCHS // 2] + rows[-(MOST_EPOCHS // 2) :]
    head = ("epoch", "time", "energy", "steps", "samples", "per sample")
    return Section("Epochs", table=ReportTable(head, rows, "lrrrrr", (5, 4)), remarks=remarks)


def _without_pue(report: Report) -> list[str]:
    return ["Energy of the devices alone, without PUE."] if report.energy.pue != 1 else []


def _portion_energy(portion: Portion, whole: float) -> str:
    return energy(portion.joules, whole) + bound(portion.joules, portion.error_joules)


def _alerts(report: Report, style: Style) -> Section:
    if not report.alerts:
        return Section("Alerts")
    found = gravest_first(report.alerts)[:MOST_EVENTS]
    rows = [
        (
            style(alert.severity, phrases.SEVERITY.get(alert.severity, "dim")),
            alert.rule,
            "" if alert.elapsed_seconds is None else duration(alert.elapsed_seconds),
            phrases.alert_length(alert, report.run),
            alert.message,
        )
        for alert in found
    ]
    more = len(report.alerts) - len(found)
    advice = dict.fromkeys(f"{alert.rule}: {alert.advice}" for alert in found if alert.advice)
    remarks = [*advice, *([f"And {more} more, in events.jsonl."] if more else [])]
    head = ("severity", "alert", "after", "for", "what")
    return Section("Alerts", table=ReportTable(head, rows, "llrll"), remarks=remarks)


def _events(report: Report, style: Style) -> Section:
    events = [
        event
        for event in report.events
        if event.get("severity") in phrases.SEVERITY and event.get("kind") not in ALERT_KINDS
    ]
    if not events:
        return Section("Events")
    rows = [_event_row(event, style) for event in events[:MOST_EVENTS]]
    more = len(events) - len(rows)
    remarks = [f"And {more} more, in events.jsonl."] if more else []
    return Section(
        "Events", table=ReportTable(("time (UTC)", "severity", "what happened"), rows, "lll"), remarks=remarks
    )


def _event_row(event: dict[str, Any], style: Style) -> Row:
    severity, time = str(event["severity"]), event.get("timestamp")
    when = f"{time:%Y-%m-%d %H:%M:%S}" if isinstance(time, datetime) else str(time)[:19].replace("T", " ")
    return when, style(severity, phrases.SEVERITY[severity]), str(event.get("message", ""))


def _record(report: Report) -> Section:
    damaged, lost, unlisted = report.damaged_lines, report.run.lost_samples, report.names_without_column
    remarks = [
        f"{number(damaged)} damaged lines could not be read and were skipped." if damaged else "",
        f"{number(lost)} samples could not be written." if lost else "",
        *(f"A part of pulsetrain had trouble: {line}." for line in phrases.trouble(report.run)),
        f"The program logs {number(unlisted)} more names than tables have columns for; their values are in `other`."
        if unlisted
        else "",
    ]
    return Section("Record", remarks=[remark for remark in remarks if remark])

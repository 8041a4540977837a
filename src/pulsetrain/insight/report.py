"""Everything known about a run, in one document. Text, Markdown, HTML and JSON are renderings of it."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from pulsetrain import intensity
from pulsetrain.insight import carbon, cost
from pulsetrain.insight.alerts import RunAlert, alerts_of
from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.curve import EnergyCurve
from pulsetrain.insight.energy.figures import RunEnergy
from pulsetrain.insight.energy.reading import RunMeters
from pulsetrain.insight.facts import Facts, read_facts
from pulsetrain.insight.host_clocks import align_hosts
from pulsetrain.insight.missing import missing_figures
from pulsetrain.insight.nodes import RunNodes, read_nodes
from pulsetrain.insight.own_metrics import OwnMetric, courses, read_own_metrics
from pulsetrain.insight.prices import load_prices, parse_price
from pulsetrain.insight.projection import TrainingProgress, Use
from pulsetrain.insight.rank_timeline import RankTimeline
from pulsetrain.insight.steps import StepFacts, read_steps
from pulsetrain.insight.summary import Summary, summarize
from pulsetrain.insight.time_ledger import Rates, TimeLedger, read_timelines, time_ledger
from pulsetrain.insight.verdict import judge
from pulsetrain.insight.verdict.case import Case
from pulsetrain.rules.finding import Verdict
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import SCHEMA, CountingOptions, Home, Run, RunFolder


class Report(msgspec.Struct, kw_only=True):
    """A run and what became of it."""

    schema: int = SCHEMA
    run: Run
    path: str
    account: CountingOptions
    """How it was counted."""
    summary: Summary
    loss: OwnMetric | None = None
    """Its course; None where there is none."""
    own_metrics: list[OwnMetric] = []
    """What the program logged under names of its own."""
    energy: RunEnergy
    missing: list[str] = []
    """Why figures of the training are missing."""
    carbon: Carbon | None = None
    carbon_missing: str = ""
    """Why there is none, and what to do."""
    cost: Cost | None = None
    cost_missing: str = ""
    verdict: Verdict | None = None
    """What held it back."""
    ledger: TimeLedger | None = None
    """What the time of its ranks was spent on; None when nothing of a training loop was seen."""
    nodes: RunNodes | None = None
    """Its hosts and ranks; None for a run of one host and one rank."""
    alerts: list[RunAlert] = []
    """What fired while it ran."""
    events: list[dict[str, Any]] = []
    damaged_lines: int = 0
    names_without_column: int = 0
    """Names that the program logged beyond those that tables have columns for."""

    @property
    def seconds(self) -> float:
        """The length of the run, from start to end; so far, of one that is in progress or was cut off."""
        return _length(self.run, self.summary)


@dataclass(frozen=True)
class Study:
    """A run that was read once: its report, and the facts behind it, which are too many for a document."""

    report: Report
    facts: Facts
    timelines: Sequence[RankTimeline] = ()
    """Where the time of each rank went, from moment to moment; the ledger of the report adds them up."""


def make_report(
    folder: RunFolder, counting: CountingOptions | None = None, *, thresholds: Thresholds = DEFAULTS
) -> Report:
    """The report of a run, counted as it was recorded, or in another way. Of one in progress: so far."""
    with closing(Database([folder])) as database:
        return study(database, folder, counting, thresholds=thresholds).report


def study(
    database: Database,
    folder: RunFolder,
    counting: CountingOptions | None = None,
    *,
    refresh_carbon: bool = False,
    thresholds: Thresholds = DEFAULTS,
) -> Study:
    """The report and the facts of a run, which is the only one in this database.

    The network is asked only for a region that the run was not recorded with, and to refresh.
    """
    run = folder.load()
    counting = counting or run.account
    clocks = align_hosts(database, run)
    steps = read_steps(database)
    summary = summarize(database, steps, thresholds.idle_percent)
    meters = RunMeters(database, run, steps, charge=counting.charge, idle_percent=thresholds.idle_percent)
    energy, curve = meters.energy(pue=counting.pue or 1.0, others=_beside(folder)), meters.curve
    _set_mean_power(summary, energy)
    emitted, no_carbon = _carbon(folder, counting, energy, curve, refresh_carbon)
    paid, no_cost = _cost(run, counting, summary, energy, _progress(run, summary, steps, energy, curve))
    timelines = read_timelines(database, run, _length(run, summary))
    events = _events(database)
    report = Report(
        run=run,
        path=str(folder),
        account=counting,
        summary=summary,
        loss=next(iter(courses(database, ["loss"])), None),
        own_metrics=read_own_metrics(database),
        energy=energy,
        missing=missing_figures(database, steps),
        carbon=emitted,
        carbon_missing=no_carbon,
        cost=paid,
        cost_missing=no_cost,
        ledger=time_ledger(timelines, _rates(meters, energy, emitted, paid, counting, _length(run, summary))),
        alerts=alerts_of(events),
        events=events,
        damaged_lines=database.damaged_lines,
        names_without_column=database.names_without_column,
    )
    facts = read_facts(database, run, summary, steps, curve, thresholds)
    report.nodes = read_nodes(database, folder, run, energy, clocks, facts.stragglers, report.seconds)
    report.verdict = judge(_case(report, facts, thresholds))
    return Study(report, facts, timelines)


def _case(report: Report, facts: Facts, thresholds: Thresholds) -> Case:
    return Case(
        run=report.run,
        seconds=report.seconds,
        summary=report.summary,
        energy=report.energy,
        carbon=report.carbon,
        cost=report.cost,
        ledger=report.ledger,
        missing=tuple(report.missing),
        nodes=report.nodes,
        facts=facts,
        limits=thresholds,
    )


def _rates(
    meters: RunMeters,
    energy: RunEnergy,
    emitted: Carbon | None,
    paid: Cost | None,
    counting: CountingOptions,
    seconds: float,
) -> Rates:
    """What a joule or a second of the run emitted and cost."""
    joules = energy.total.joules if energy.total else 0.0
    by_energy = bool(paid and counting.price and parse_price(counting.price, load_prices()).unit == "kWh")
    return Rates(
        energy=meters.curve,
        shifts=meters.shifts,
        pue=energy.pue,
        grams_per_joule=emitted.grams / joules if emitted and joules else None,
        money_per_joule=paid.amount / joules if paid and by_energy and joules else None,
        money_per_second=paid.amount / seconds if paid and not by_energy and seconds else None,
    )


def _length(run: Run, summary: Summary) -> float:
    return summary.seconds if run.seconds is None else run.seconds


def _set_mean_power(summary: Summary, energy: RunEnergy) -> None:
    """The mean power of a GPU is its energy by time: readings at ticks may miss what lies between them."""
    joules = {(device.host, device.gpu_index): device.total.joules for device in energy.devices if device.total}
    for gpu in summary.gpus:
        if (gpu.host, gpu.gpu_index) in joules and summary.seconds > 0 and not gpu.lost_samples:
            gpu.power_watts_mean = joules[gpu.host, gpu.gpu_index] / summary.seconds


def _events(database: Database) -> list[dict[str, Any]]:
    rows = database.rows("SELECT * EXCLUDE (run) FROM events ORDER BY timestamp")
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _beside(folder: RunFolder) -> list[RunFolder]:
    """The other runs in the same place, which may have watched the same GPUs."""
    return [other for other in Home(folder.path.resolve().parent).runs() if other.path.name != folder.path.name]


def _carbon(
    folder: RunFolder, counting: CountingOptions, energy: RunEnergy, curve: EnergyCurve, refresh: bool
) -> tuple[Carbon | None, str]:
    if not counting.carbon_region:
        return None, "no region is set (--carbon-region DE)"
    if energy.total is None or len(curve.times) < 2:
        return None, "the energy of the run is not known"
    start, end = (datetime.fromtimestamp(float(curve.walls[place]), UTC) for place in (0, -1))
    intensities = intensity.run_intensity_of(folder.path, counting.carbon_region, start, end, refresh=refresh)

    def joules_between(begin: datetime, until: datetime) -> float:
        return energy.pue * curve.used_between(begin, until)

    return carbon.emissions(intensities, joules_between, start, end, error_joules=energy.total.error_joules)


def _cost(
    run: Run, counting: CountingOptions, summary: Summary, energy: RunEnergy, progress: TrainingProgress | None
) -> tuple[Cost | None, str]:
    if not counting.price:
        return None, "no price is set (--price '0.30 EUR/kWh')"
    price = parse_price(counting.price, load_prices())
    total = energy.total
    use = Use(
        seconds=_length(run, summary),
        hosts=len(run.hosts),
        gpus=sum(device.device == "gpu" and device.charged for device in energy.devices),
        joules=total.joules if total else None,
        error_joules=total.error_joules if total else None,
    )
    found = cost.cost(price, use, progress, simulated=run.simulated)
    return found, "" if found else cost.why_unknown(price)


def _progress(
    run: Run, summary: Summary, steps: StepFacts | None, energy: RunEnergy, curve: EnergyCurve
) -> TrainingProgress | None:
    """The rest is assumed to run as after the warm-up, validations and pauses included."""
    training = summary.training
    if training is None:
        return None
    step_joules = None
    if steps and energy.total:
        joules = energy.pue * float(curve.joules_between(steps.warm_at, steps.ended))
        step_joules = joules / (steps.total - steps.warm_up)
    return TrainingProgress(
        steps=training.steps,
        last_step=training.last_step,
        total_steps=training.total_steps if run.status == "running" else None,  # else no more will come
        step_seconds=steps.pace_seconds if steps else None,
        step_joules=step_joules,
        samples=training.all_ranks_samples,
    )

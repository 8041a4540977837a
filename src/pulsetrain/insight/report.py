"""Everything known about a run, in one document. Text, Markdown, HTML and JSON are renderings of it."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from pulsetrain import intensity
from pulsetrain.insight import carbon, cost
from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy.account import EnergyAccount
from pulsetrain.insight.energy.curve import Curve
from pulsetrain.insight.energy.figures import RunEnergy
from pulsetrain.insight.prices import load_prices, parse_price
from pulsetrain.insight.summary import Summary, summarise
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Account, Home, Run, RunFolder


class Report(msgspec.Struct, kw_only=True):
    """A run and what became of it."""

    run: Run
    path: str
    account: Account
    """How it was counted."""
    summary: Summary
    energy: RunEnergy
    carbon: Carbon | None = None
    carbon_missing: str = ""
    """Why there is none, and what to do."""
    cost: Cost | None = None
    cost_missing: str = ""
    events: list[dict[str, Any]] = []
    damaged_lines: int = 0


def make_report(folder: RunFolder, account: Account | None = None, *, refresh_carbon: bool = False) -> Report:
    """The report of a run, counted as it was recorded, or by another account. One that goes on: so far.

    The network is asked only for a region that the run was not recorded with, and to refresh.
    """
    run = folder.load()
    account = account or run.account
    database = Database([folder])
    try:
        summary = summarise(database)
        meters = EnergyAccount(database, run, charge=account.charge or "all")
        energy = meters.energy(pue=account.pue or 1.0, others=_beside(folder))
        _set_mean_power(summary, energy)
        emitted, no_carbon = _carbon(folder, account, energy, meters.curve, refresh_carbon)
        paid, no_cost = _cost(run, account, summary, energy)
        return Report(
            run=run,
            path=str(folder.path),
            account=account,
            summary=summary,
            energy=energy,
            carbon=emitted,
            carbon_missing=no_carbon,
            cost=paid,
            cost_missing=no_cost,
            events=_events(database),
            damaged_lines=database.damaged_lines,
        )
    finally:
        database.close()


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
    folder: RunFolder, account: Account, energy: RunEnergy, curve: Curve, refresh: bool
) -> tuple[Carbon | None, str]:
    if not account.carbon_region:
        return None, "no region is named (--carbon-region DE)"
    if energy.total is None or len(curve.times) < 2:
        return None, "the energy of the run is not known"
    start, end = (datetime.fromtimestamp(float(curve.walls[place]), UTC) for place in (0, -1))
    record = intensity.record_of(folder.path, account.carbon_region, start, end, refresh=refresh)

    def joules_between(begin: datetime, until: datetime) -> float:
        elapsed = curve.elapsed_at(np.array([begin.timestamp(), until.timestamp()]))
        return energy.pue * float(curve.joules_between(*elapsed))

    return carbon.account(record, joules_between, start, end, error_joules=energy.total.error_joules)


def _cost(run: Run, account: Account, summary: Summary, energy: RunEnergy) -> tuple[Cost | None, str]:
    if not account.price:
        return None, "no price is named (--price '0.30 EUR/kWh')"
    price = parse_price(account.price, load_prices())
    total = energy.total
    use = cost.Use(
        seconds=(run.end - run.start).total_seconds() if run.end else summary.seconds,
        hosts=len(run.hosts),
        gpus=sum(device.device == "gpu" and device.charged for device in energy.devices),
        joules=total.joules if total else None,
        error_joules=total.error_joules if total else None,
    )
    found = cost.cost(price, use, _progress(run, summary, energy), simulated=run.simulated)
    return found, "" if found else cost.why_unknown(price)


def _progress(run: Run, summary: Summary, energy: RunEnergy) -> cost.Progress | None:
    training = summary.training
    if training is None:
        return None
    return cost.Progress(
        steps=training.steps,
        last_step=training.last_step,
        total_steps=training.total_steps if run.status == "running" else None,  # else no more will come
        step_seconds=training.step_seconds_p50,
        step_joules=energy.joules_per_step,
        samples=training.samples,
    )

"""What a run cost: by machine and hour, by GPU and hour, or by the kilowatt-hour. Unknown stays unknown."""

from datetime import date

import msgspec

from pulsetrain.insight.prices import Price
from pulsetrain.insight.projection import TrainingProgress, Use, projected_use
from pulsetrain.units import JOULES_PER_KWH, SECONDS_PER_HOUR


class Cost(msgspec.Struct, kw_only=True):
    """The price of a run so far, and to its end where that can be foreseen."""

    amount: float
    currency: str
    """Empty when the user named none."""
    basis: str
    """In words: `a2-highgpu-1g in europe-west4, 3.748 USD/h (on demand, 2026-08-21)`, `0.30 EUR/kWh`."""
    dated: date | None = None
    """When the price was looked up."""
    error: float | None = None
    """Of a price by the kilowatt-hour: the error of the energy. Time is exact."""
    projected: float | None = None
    """At the end of the planned steps, where their number is known and some are left."""
    per_step: float | None = None
    """The whole amount, start and pauses too, by the steps of this run."""
    per_sample: float | None = None
    notes: list[str] = []


def cost(price: Price, use: Use, progress: TrainingProgress | None = None, *, simulated: bool = False) -> Cost | None:
    """What a run costs at this price; None when what the price is for is not known, and `why_unknown` tells it."""
    amount = _amount(price, use)
    if amount is None:
        return None
    end = projected_use(use, progress) if progress else None
    return Cost(
        amount=amount,
        currency=price.currency,
        basis=price.basis + _times(price, use),
        dated=price.dated,
        error=_error(price, use),
        projected=_amount(price, end) if end else None,
        per_step=_share(amount, progress.steps if progress else None),
        per_sample=_share(amount, progress.samples if progress else None),
        notes=["its GPUs are simulated: nobody pays for them"] if simulated else [],
    )


def why_unknown(price: Price) -> str:
    """Why there is no cost at this price."""
    lacking = "the energy of the run is not known" if price.unit == "kWh" else "no GPU is charged to the run"
    return f"{lacking}, and the price is {price.basis}"


def _amount(price: Price, use: Use) -> float | None:
    hours = use.seconds / SECONDS_PER_HOUR
    if price.unit == "kWh":
        return None if use.joules is None else price.amount * use.joules / JOULES_PER_KWH
    if price.unit == "GPUh":
        return price.amount * use.gpus * hours if use.gpus else None
    return price.amount * use.hosts * hours


def _error(price: Price, use: Use) -> float | None:
    if price.unit != "kWh" or use.error_joules is None:
        return None
    return price.amount * use.error_joules / JOULES_PER_KWH


def _times(price: Price, use: Use) -> str:
    """How many there are of what the price is for."""
    if price.unit == "GPUh" and use.gpus > 1:
        return f", {use.gpus} GPUs"
    return f", {use.hosts} machines" if price.unit == "h" and use.hosts > 1 else ""


def _share(amount: float, count: float | None) -> float | None:
    return amount / count if count else None

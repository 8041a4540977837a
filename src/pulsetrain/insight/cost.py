"""What a run cost: by machine and hour, by GPU and hour, or by the kilowatt-hour. Unknown stays unknown."""

from datetime import date

import msgspec


class Cost(msgspec.Struct, kw_only=True):
    """The price of a run so far, and to its end where that can be foreseen."""

    amount: float
    currency: str
    basis: str
    """In words: `a2-highgpu-1g in europe-west4, 3.748 USD/h (on demand, 2026-08-21)`, `0.30 EUR/kWh`."""
    dated: date | None = None
    """When the price was looked up."""
    projected: float | None = None
    """At the end of the planned steps, where their number is known."""
    per_step: float | None = None
    per_sample: float | None = None
    notes: list[str] = []

"""What a run emitted: each interval's energy times the carbon intensity of its own time."""

from datetime import datetime
from typing import Literal

import msgspec


class Carbon(msgspec.Struct, kw_only=True):
    """The emissions of a run's energy."""

    grams: float
    error_grams: float | None = None
    """From the error of the energy alone: intensity itself has none that is known."""
    grams_per_kwh: float
    """The mean over the run, weighted by energy."""
    region: str
    """As a person would say it: `South England`, `Germany`, `Google Cloud europe-west4`."""
    provider: str
    """Where the figures come from, and their year or licence where they want to be named."""
    accounting: Literal["operational", "lifecycle", "marginal", "unknown"]
    """Kinds of intensity that must not be compared with each other."""
    quality: Literal["actual", "forecast", "annual", "constant", "last known", "mixed"]
    slots: list["CarbonSlot"] = []
    notes: list[str] = []
    """Why a fallback was used, and how old it is."""
    greener: "GreenerStart | None" = None


class CarbonSlot(msgspec.Struct, kw_only=True):
    """Energy and emissions of one stretch of time with one intensity."""

    start: datetime
    end: datetime
    grams_per_kwh: float
    quality: str
    joules: float
    grams: float


class GreenerStart(msgspec.Struct, kw_only=True):
    """The best moment in the coming 48 hours for a run of this energy and length."""

    start: datetime
    grams: float
    grams_now: float
    """If it were started now."""

"""Carbon intensity by time: what a value is, what gives values, and how two answers become one."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from pulsetrain.errors import PulsetrainError

MAX_GRAMS_PER_KWH = 3000.0
"""The worst coal is at about 1200: what lies above this is not an intensity but a mistake."""

Accounting = Literal["operational", "lifecycle", "marginal", "unknown"]
"""What is counted: burning fuel; building plants and bringing fuel too; what one kWh more would cause."""
Quality = Literal["actual", "estimated", "forecast", "annual", "constant", "last known"]


class IntensityError(PulsetrainError):
    """A provider gave no values, or none that can be believed."""

    def __init__(self, message: str, *, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        """Of the HTTP answer, where there was one."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The intensity of one stretch of time. Times are in UTC."""

    start: datetime
    end: datetime
    grams_per_kwh: float
    quality: Quality
    fetched: datetime
    """When the provider said so."""


class FixedIntensity(msgspec.Struct, frozen=True, kw_only=True):
    """One value for all times: a yearly average, or the user's own."""

    grams_per_kwh: float
    quality: Literal["annual", "constant"]
    region: str
    source: str
    accounting: Accounting


class ProviderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's values are. It is kept in the run folder, so that a run can be counted without the provider."""

    spec: str
    """What finds the same provider again; the name of its cache too."""
    region: str
    source: str
    """Who says so, with year and license."""
    accounting: Accounting
    fixed: FixedIntensity | None = None
    """What holds when there are no values by time. It may be counted in another way than those."""


class Provider(Protocol):
    """Where values come from. Nothing is asked before `slots` or `forecast` is called."""

    about: ProviderFacts
    has_slots: bool
    """False for a table or a constant: `about.fixed` says it all."""
    has_forecast: bool

    def slots(self, start: datetime, end: datetime) -> list[Slot]:
        """What is known of a stretch of time up to now. IntensityError if that is nothing."""

    def forecast(self, hours: float = 48.0) -> list[Slot]:
        """The coming hours, as far as they are foreseen."""


def checked(grams_per_kwh: float, source: str) -> float:
    """The value, if it can be one."""
    if not 0.0 <= grams_per_kwh <= MAX_GRAMS_PER_KWH:
        raise IntensityError(f"{source} gave {grams_per_kwh:g} g/kWh, which is impossible.")
    return grams_per_kwh


def overlapping(slots: Iterable[Slot], start: datetime, end: datetime) -> list[Slot]:
    """Those that have a part between start and end, in order of time."""
    return sorted((slot for slot in slots if slot.end > start and slot.start < end), key=lambda slot: slot.start)


def gaps(slots: Iterable[Slot], start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The stretches between start and end that no slot covers."""
    covered = start
    for slot in overlapping(slots, start, end):
        if slot.start > covered:
            yield covered, slot.start
        covered = max(covered, slot.end)
    if covered < end:
        yield covered, end


def merged(old: Iterable[Slot], new: Iterable[Slot]) -> list[Slot]:
    """One slot for each start, the newer one; but a forecast never replaces what really was."""
    by_start = {slot.start: slot for slot in old}
    for slot in new:
        before = by_start.get(slot.start)
        if before is None or slot.quality == "actual" or before.quality != "actual":
            by_start[slot.start] = slot
    return [by_start[start] for start in sorted(by_start)]


def chunks(start: datetime, end: datetime, longest: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """A stretch of time in pieces that a provider accepts in one question."""
    while start < end:
        yield start, min(start + longest, end)
        start += longest

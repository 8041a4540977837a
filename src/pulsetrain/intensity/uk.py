"""Great Britain: the Carbon Intensity API of NESO, nationally, by region, or by postcode. It needs no account."""

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from pulsetrain.intensity import http, tables
from pulsetrain.intensity.slots import IntensityError, ProviderFacts, Slot, checked, chunks, merged, overlapping

URL = "https://api.carbonintensity.org.uk"
SOURCE = "Carbon Intensity API (National Energy System Operator, CC BY 4.0)"
SLOT = timedelta(minutes=30)
LONGEST = timedelta(days=13)
"""The API takes ranges of up to 14 days; one less, because it may begin a slot early."""
NATIONAL = "Great Britain"
REGIONS = {
    1: "North Scotland",
    2: "South Scotland",
    3: "North West England",
    4: "North East England",
    5: "Yorkshire",
    6: "North Wales",
    7: "South Wales",
    8: "West Midlands",
    9: "East Midlands",
    10: "East England",
    11: "South West England",
    12: "South England",
    13: "London",
    14: "South East England",
    15: "England",
    16: "Scotland",
    17: "Wales",
}
NATIONAL_ID = 18
_POSTCODE = re.compile(r"([A-Z]{1,2}\d[A-Z\d]?)(?:\s*\d[A-Z]{2})?")


class _Intensity(msgspec.Struct):
    forecast: float | None = None
    actual: float | None = None
    """Null for the future, and never there in a region."""


class _Entry(msgspec.Struct):
    """A slot, or a region with slots: the API nests them differently from one path to the next."""

    start: str = msgspec.field(name="from", default="")
    to: str = ""
    intensity: _Intensity | None = None
    data: list["_Entry"] = []


class _Answer(msgspec.Struct):
    data: list[_Entry] | _Entry


class Uk:
    """One place. Nationally, forecasts become actual values within the hour; a region has forecasts alone."""

    has_slots = True
    has_forecast = True

    def __init__(self, spec: str, region: str, where: str = "", url: str | None = None) -> None:
        """`where` is the end of a path: `regionid/13`, `postcode/SW1A`, or nothing for the whole country."""
        self.about = ProviderFacts(
            spec=spec, region=region, source=SOURCE, accounting="operational", fixed=tables.countries()["GB"]
        )
        base = url or os.environ.get("PULSETRAIN_CARBON_UK_URL", URL)
        self._path = f"{base.rstrip('/')}{'/regional' if where else ''}/intensity"
        self._where = f"/{where}" if where else ""

    def slots(self, start: datetime, end: datetime) -> list[Slot]:
        first, last = _slot_start(start), _slot_start(end - timedelta(microseconds=1)) + SLOT
        found: list[Slot] = []
        for begin, stop in chunks(first, last, LONGEST):
            found = merged(found, self._ask(f"{_minute(begin)}/{_minute(stop)}"))
        return self._between(found, start, end)

    def forecast(self, hours: float = 48.0) -> list[Slot]:
        now = datetime.now(UTC)
        return self._between(self._ask(f"{_minute(now)}/fw48h"), now, now + timedelta(hours=hours))

    def _ask(self, time: str) -> list[Slot]:
        answer = http.get(f"{self._path}/{time}{self._where}", _Answer)
        fetched = datetime.now(UTC)
        entries = answer.data if isinstance(answer.data, list) else [answer.data]
        return [slot for entry in _leaves(entries) if (slot := _slot(entry, fetched))]

    def _between(self, slots: Iterable[Slot], start: datetime, end: datetime) -> list[Slot]:
        found = overlapping(slots, start, end)
        if not found:
            raise IntensityError(f"{SOURCE} has no values of {self.about.region} for {_minute(start)}.")
        return found


def find(text: str, url: str | None = None) -> Uk | None:
    """`uk`, or the name of a region."""
    if text.lower() == "uk":
        return Uk("uk", NATIONAL, url=url)
    return next((_region(number, url) for number, name in REGIONS.items() if name.lower() == text.lower()), None)


def find_within(text: str, url: str | None = None) -> Uk | None:
    """What follows `uk:`: a region by number or name, or a postcode, of which the first half is used."""
    if text.isdecimal():
        number = int(text)
        if number == NATIONAL_ID:
            return find("uk", url)
        return _region(number, url) if number in REGIONS else None
    if postcode := _POSTCODE.fullmatch(text.upper()):
        outward = postcode[1]
        return Uk(f"uk:{outward}", f"{outward}, Great Britain", f"postcode/{outward}", url)
    return find(text, url)


def _region(number: int, url: str | None) -> Uk:
    return Uk(f"uk:{number}", REGIONS[number], f"regionid/{number}", url)


def _leaves(entries: Iterable[_Entry]) -> Iterator[_Entry]:
    for entry in entries:
        if entry.data:
            yield from _leaves(entry.data)
        else:
            yield entry


def _slot(entry: _Entry, fetched: datetime) -> Slot | None:
    """None where the API knows the time but not the value."""
    try:
        start, end = datetime.fromisoformat(entry.start), datetime.fromisoformat(entry.to)
    except ValueError:
        raise IntensityError(f"{SOURCE} gave an invalid time: {entry.start!r} to {entry.to!r}.") from None
    if start.utcoffset() != timedelta(0) or end - start != SLOT:
        raise IntensityError(f"{SOURCE} gave an invalid slot: {entry.start} to {entry.to}.")
    if entry.intensity is None:
        raise IntensityError(f"{SOURCE} gave a slot without an intensity: {entry.start}.")
    actual, forecast = entry.intensity.actual, entry.intensity.forecast
    value = forecast if actual is None else actual
    if value is None:
        return None
    return Slot(
        start=start,
        end=end,
        grams_per_kwh=checked(value, SOURCE),
        quality="forecast" if actual is None else "actual",
        fetched=fetched,
    )


def _slot_start(time: datetime) -> datetime:
    time = time.astimezone(UTC)
    return time.replace(minute=time.minute // 30 * 30, second=0, microsecond=0)


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%MZ}"

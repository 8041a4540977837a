"""Most of the world by the hour: Electricity Maps. It needs a token, which ELECTRICITYMAPS_TOKEN holds."""

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from pulsetrain.intensity import http, tables
from pulsetrain.intensity.slots import IntensityError, ProviderFacts, Slot, checked, chunks, merged, overlapping

URL = "https://api.electricitymaps.com/v3"
SOURCE = "Electricity Maps"
VARIABLE = "ELECTRICITYMAPS_TOKEN"
SLOT = timedelta(hours=1)
HISTORY = timedelta(hours=24)
"""How far back a free token may look."""
LONGEST = timedelta(days=10)


class _Row(msgspec.Struct, rename="camel"):
    datetime: Annotated[datetime, msgspec.Meta(tz=True)]
    carbon_intensity: float | None
    is_estimated: bool = False
    emission_factor_type: str = "lifecycle"


class _Answer(msgspec.Struct):
    zone: str
    history: list[_Row] = []
    data: list[_Row] = []
    forecast: list[_Row] = []


class ElectricityMaps:
    """One zone: `DE`, `US-CAL-CISO`."""

    has_slots = True
    has_forecast = True

    def __init__(self, zone: str, url: str = URL, token: str | None = None) -> None:
        self.about = ProviderFacts(
            spec=f"electricitymaps:{zone}",
            region=f"{zone} (Electricity Maps)",
            source=SOURCE,
            accounting="lifecycle",
            fixed=tables.countries().get(zone.partition("-")[0]),
        )
        self._zone = zone
        self._url = url.rstrip("/")
        self._token = token or os.environ.get(VARIABLE)

    def slots(self, start: datetime, end: datetime) -> list[Slot]:
        """The last day, which is free; and what lies before, with a plan that allows it."""
        day_ago = datetime.now(UTC) - HISTORY + SLOT
        recent = self._ask("history", {}) if end > day_ago else []
        try:
            found = merged(self._past(start, min(end, day_ago)), recent) if start < day_ago else recent
        except IntensityError as error:
            if error.status not in (401, 403) or not recent:
                raise
            found = recent  # this plan has no more: what was recorded before stays as it was
        found = overlapping(found, start, end)
        if not found:
            raise IntensityError(f"{SOURCE} has no values of {self._zone} for {start:%Y-%m-%d %H:%M} UTC.")
        return found

    def forecast(self, hours: float = 48.0) -> list[Slot]:
        now = datetime.now(UTC)
        found = self._ask("forecast", {"horizonHours": "48"})
        return overlapping(found, now, now + timedelta(hours=hours))

    def _past(self, start: datetime, end: datetime) -> list[Slot]:
        found: list[Slot] = []
        for begin, stop in chunks(start - SLOT, end, LONGEST):  # an hour earlier: values stand at the start of theirs
            found = merged(found, self._ask("past-range", {"start": _second(begin), "end": _second(stop)}))
        return found

    def _ask(self, what: str, params: dict[str, str]) -> list[Slot]:
        if not self._token:
            raise IntensityError(f"{SOURCE} needs a token.", hint=f"Set {VARIABLE}; electricitymaps.com issues one.")
        answer = http.get(
            f"{self._url}/carbon-intensity/{what}",
            _Answer,
            # Without the last one, a zone that it does not know silently becomes the one that you ask from.
            params={
                "zone": self._zone,
                "emissionFactorType": "lifecycle",
                "shouldUseFallbackCallerLookup": "false",
                **params,
            },
            secret={"auth-token": self._token},
        )
        if answer.zone != self._zone:
            raise IntensityError(f"{SOURCE} was asked for {self._zone} and answered for {answer.zone}.")
        rows = answer.forecast if what == "forecast" else [*answer.history, *answer.data]
        return _slots(rows, forecast=what == "forecast")


def find_zone(text: str) -> ElectricityMaps | None:
    """What follows `electricitymaps:`."""
    return ElectricityMaps(text.upper()) if re.fullmatch(r"[A-Z]{2}(-[A-Z0-9]+)*", text.upper()) else None


def _slots(rows: Iterable[_Row], *, forecast: bool) -> list[Slot]:
    fetched = datetime.now(UTC)
    found = []
    for row in rows:
        if row.emission_factor_type != "lifecycle":
            raise IntensityError(
                f"{SOURCE} gave {row.emission_factor_type} values where lifecycle ones were asked for."
            )
        if row.carbon_intensity is None:
            continue
        start = row.datetime.astimezone(UTC)
        found.append(
            Slot(
                start=start,
                end=start + SLOT,
                grams_per_kwh=checked(row.carbon_intensity, SOURCE),
                quality="forecast" if forecast else "estimated" if row.is_estimated else "actual",
                fetched=fetched,
            )
        )
    return found


def _second(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

"""Marginal emissions, every five minutes: WattTime. It needs WATTTIME_USERNAME and WATTTIME_PASSWORD."""

import os
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from pulsetrain.intensity import http
from pulsetrain.intensity.slots import IntensityError, ProviderFacts, Slot, checked, chunks, merged, overlapping

URL = "https://api.watttime.org"
SOURCE = "WattTime"
GRAMS_PER_KWH = {"lbs_co2_per_mwh": 0.45359237}
"""What one of the API's units is: a pound is 453.59237 g, a MWh 1000 kWh."""
LONGEST = timedelta(days=30)
TOKEN_SECONDS = 25 * 60
"""A login holds for 30 minutes."""


class _Login(msgspec.Struct):
    token: str


class _Point(msgspec.Struct):
    point_time: Annotated[datetime, msgspec.Meta(tz=True)]
    value: float
    imputed_data_used: bool = False


class _Meta(msgspec.Struct):
    region: str
    signal_type: str
    units: str
    data_point_period_seconds: Annotated[int, msgspec.Meta(gt=0, le=3600)]


class _Answer(msgspec.Struct):
    data: list[_Point]
    meta: _Meta


class WattTime:
    """One grid region: `CAISO_NORTH`."""

    has_slots = True
    has_forecast = True

    def __init__(self, region: str, url: str = URL, username: str | None = None, password: str | None = None) -> None:
        self.about = ProviderFacts(
            spec=f"watttime:{region}", region=f"{region} (WattTime)", source=SOURCE, accounting="marginal"
        )
        self._region = region
        self._url = url.rstrip("/")
        self._username = username or os.environ.get("WATTTIME_USERNAME")
        self._password = password or os.environ.get("WATTTIME_PASSWORD")
        self._token = ""
        self._token_until = 0.0

    def slots(self, start: datetime, end: datetime) -> list[Slot]:
        found: list[Slot] = []
        for begin, stop in chunks(start - timedelta(hours=1), end, LONGEST):  # to have the slot that start lies in
            found = merged(found, self._ask("historical", {"start": _second(begin), "end": _second(stop)}))
        found = overlapping(found, start, end)
        if not found:
            raise IntensityError(f"{SOURCE} has no values of {self._region} for {start:%Y-%m-%d %H:%M} UTC.")
        return found

    def forecast(self, hours: float = 48.0) -> list[Slot]:
        now = datetime.now(UTC)
        return overlapping(self._ask("forecast", {"horizon_hours": "48"}), now, now + timedelta(hours=hours))

    def _ask(self, what: str, params: dict[str, str]) -> list[Slot]:
        answer = http.get(
            f"{self._url}/v3/{what}",
            _Answer,
            params={"region": self._region, "signal_type": "co2_moer", **params},
            secret={"Authorization": f"Bearer {self._login()}"},
        )
        meta = answer.meta
        if (meta.region, meta.signal_type) != (self._region, "co2_moer") or meta.units not in GRAMS_PER_KWH:
            raise IntensityError(f"{SOURCE} answered with {meta.signal_type} of {meta.region} in {meta.units}.")
        fetched = datetime.now(UTC)
        length = timedelta(seconds=meta.data_point_period_seconds)
        return [
            Slot(
                start=(start := point.point_time.astimezone(UTC)),
                end=start + length,
                grams_per_kwh=checked(point.value * GRAMS_PER_KWH[meta.units], SOURCE),
                quality="forecast" if what == "forecast" else "estimated" if point.imputed_data_used else "actual",
                fetched=fetched,
            )
            for point in answer.data
        ]

    def _login(self) -> str:
        if not self._username or not self._password:
            raise IntensityError(
                f"{SOURCE} needs a login.",
                hint="Set WATTTIME_USERNAME and WATTTIME_PASSWORD; docs.watttime.org explains how.",
            )
        if time.monotonic() > self._token_until:
            self._token = http.get(f"{self._url}/login", _Login, login=(self._username, self._password)).token
            self._token_until = time.monotonic() + TOKEN_SECONDS
        return self._token


def find_region(text: str) -> WattTime | None:
    """What follows `watttime:`."""
    return WattTime(text.upper()) if re.fullmatch(r"[A-Z0-9_-]+", text.upper()) else None


def _second(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

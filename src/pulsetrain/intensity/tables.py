"""One value for all times: yearly averages of countries and Google Cloud regions, shipped; or the user's own number."""

import re
from datetime import datetime
from functools import cache

from pulsetrain.intensity.slots import MAX_GRAMS_PER_KWH, FixedIntensity, ProviderFacts, Slot

COUNTRY_YEAR = 2024
COUNTRIES: dict[str, tuple[str, int] | tuple[str, int, int]] = {
    "AE": ("United Arab Emirates", 468),
    "AR": ("Argentina", 345),
    "AT": ("Austria", 103),
    "AU": ("Australia", 554),
    "BE": ("Belgium", 118),
    "BR": ("Brazil", 106),
    "CA": ("Canada", 185),
    "CH": ("Switzerland", 37),
    "CL": ("Chile", 266),
    "CN": ("China", 558),
    "CZ": ("Czechia", 414),
    "DE": ("Germany", 342),
    "DK": ("Denmark", 143),
    "EE": ("Estonia", 341),
    "EG": ("Egypt", 575),
    "ES": ("Spain", 146),
    "EU": ("European Union", 213),
    "FI": ("Finland", 72),
    "FR": ("France", 44),
    "GB": ("United Kingdom", 216),
    "GR": ("Greece", 320),
    "HK": ("Hong Kong", 682, 2023),
    "HU": ("Hungary", 183),
    "ID": ("Indonesia", 682, 2023),
    "IE": ("Ireland", 280),
    "IL": ("Israel", 567, 2023),
    "IN": ("India", 709),
    "IS": ("Iceland", 28, 2023),
    "IT": ("Italy", 288),
    "JP": ("Japan", 484),
    "KE": ("Kenya", 85),
    "KR": ("South Korea", 416),
    "LU": ("Luxembourg", 135),
    "MX": ("Mexico", 483),
    "MY": ("Malaysia", 604),
    "NL": ("Netherlands", 253),
    "NO": ("Norway", 31),
    "NZ": ("New Zealand", 120),
    "PL": ("Poland", 615),
    "PT": ("Portugal", 112),
    "QA": ("Qatar", 603),
    "RO": ("Romania", 246),
    "SA": ("Saudi Arabia", 692),
    "SE": ("Sweden", 36),
    "SG": ("Singapore", 499),
    "TH": ("Thailand", 555),
    "TR": ("Türkiye", 470),
    "TW": ("Taiwan", 635),
    "US": ("United States", 384),
    "VN": ("Vietnam", 486),
    "WORLD": ("World", 473),
    "ZA": ("South Africa", 714),
}
"""Grams per kWh by ISO code, and the year where it is not `COUNTRY_YEAR`."""

GOOGLE_CLOUD_YEAR = 2024
GOOGLE_CLOUD = {
    "africa-south1": 657,
    "asia-east1": 439,
    "asia-east2": 505,
    "asia-northeast1": 453,
    "asia-northeast2": 296,
    "asia-northeast3": 357,
    "asia-south1": 679,
    "asia-south2": 532,
    "asia-southeast1": 367,
    "asia-southeast2": 561,
    "australia-southeast1": 498,
    "australia-southeast2": 454,
    "europe-central2": 643,
    "europe-north1": 39,
    "europe-north2": 3,
    "europe-southwest1": 89,
    "europe-west1": 103,
    "europe-west10": 276,
    "europe-west12": 202,
    "europe-west2": 106,
    "europe-west3": 276,
    "europe-west4": 209,
    "europe-west6": 15,
    "europe-west8": 202,
    "europe-west9": 16,
    "me-central2": 382,
    "me-west1": 434,
    "northamerica-northeast1": 5,
    "northamerica-northeast2": 59,
    "northamerica-south1": 305,
    "southamerica-east1": 67,
    "southamerica-west1": 238,
    "us-central1": 413,
    "us-east1": 576,
    "us-east4": 323,
    "us-east5": 323,
    "us-south1": 303,
    "us-west1": 79,
    "us-west2": 169,
    "us-west3": 555,
    "us-west4": 357,
}
"""Grams per kWh of the grid at the place, without what the operator buys elsewhere."""


class FixedProvider:
    """One value for all times."""

    has_slots = False
    has_forecast = False

    def __init__(self, spec: str, fixed: FixedIntensity) -> None:
        self.about = ProviderFacts(
            spec=spec, region=fixed.region, source=fixed.source, accounting=fixed.accounting, fixed=fixed
        )

    def slots(self, start: datetime, end: datetime) -> list[Slot]:
        return []

    def forecast(self, hours: float = 48.0) -> list[Slot]:
        return []


@cache
def countries() -> dict[str, FixedIntensity]:
    return {code: _country(*row) for code, row in COUNTRIES.items()}


def _country(name: str, grams_per_kwh: int, year: int = COUNTRY_YEAR) -> FixedIntensity:
    return FixedIntensity(
        grams_per_kwh=grams_per_kwh,
        quality="annual",
        region=name,
        source=f"average of {year} (Ember, through co2.js, CC BY 4.0)",
        accounting="lifecycle",
    )


@cache
def google_cloud() -> dict[str, FixedIntensity]:
    return {
        region: FixedIntensity(
            grams_per_kwh=grams_per_kwh,
            quality="annual",
            region=f"Google Cloud {region}",
            source=f"average of {GOOGLE_CLOUD_YEAR} (GoogleCloudPlatform/region-carbon-info, Apache-2.0)",
            accounting="operational",
        )
        for region, grams_per_kwh in GOOGLE_CLOUD.items()
    }


def find_country(text: str) -> FixedProvider | None:
    """A country by its ISO code or its name."""
    for code, fixed in countries().items():
        if text.lower() in (code.lower(), fixed.region.lower()):
            return FixedProvider(code, fixed)
    return None


def find_google_cloud(text: str) -> FixedProvider | None:
    """What follows `gcp:`."""
    fixed = google_cloud().get(text.lower())
    return FixedProvider(f"gcp:{text.lower()}", fixed) if fixed else None


def find_constant(text: str) -> FixedProvider | None:
    """A number of the user's own, in g/kWh."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) > MAX_GRAMS_PER_KWH:
        return None
    fixed = FixedIntensity(
        grams_per_kwh=float(text),
        quality="constant",
        region="an unspecified region",
        source="your own value",
        accounting="unknown",
    )
    return FixedProvider(text, fixed)

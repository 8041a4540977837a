"""Price and carbon region of a machine, from where it is. What is not in a list stays unknown."""

from collections.abc import Iterable

from pulsetrain import intensity
from pulsetrain.errors import UsageError
from pulsetrain.insight.prices import load_prices
from pulsetrain.runs.description import Place
from pulsetrain.runs.folder import CountingOptions

_COUNTRIES = {
    "aws": {
        "af-south-1": "ZA",
        "ap-east-1": "HK",
        "ap-northeast-1": "JP",
        "ap-northeast-2": "KR",
        "ap-northeast-3": "JP",
        "ap-south-1": "IN",
        "ap-south-2": "IN",
        "ap-southeast-1": "SG",
        "ap-southeast-2": "AU",
        "ap-southeast-3": "ID",
        "ap-southeast-4": "AU",
        "ca-central-1": "CA",
        "ca-west-1": "CA",
        "eu-central-1": "DE",
        "eu-central-2": "CH",
        "eu-north-1": "SE",
        "eu-south-1": "IT",
        "eu-south-2": "ES",
        "eu-west-1": "IE",
        "eu-west-2": "GB",
        "eu-west-3": "FR",
        "il-central-1": "IL",
        "me-central-1": "AE",
        "sa-east-1": "BR",
        "us-east-1": "US",
        "us-east-2": "US",
        "us-west-1": "US",
        "us-west-2": "US",
    },
    "azure": {
        "australiaeast": "AU",
        "brazilsouth": "BR",
        "canadacentral": "CA",
        "canadaeast": "CA",
        "centralindia": "IN",
        "centralus": "US",
        "eastus": "US",
        "eastus2": "US",
        "francecentral": "FR",
        "germanywestcentral": "DE",
        "israelcentral": "IL",
        "italynorth": "IT",
        "japaneast": "JP",
        "koreacentral": "KR",
        "northcentralus": "US",
        "northeurope": "IE",
        "norwayeast": "NO",
        "polandcentral": "PL",
        "qatarcentral": "QA",
        "southafricanorth": "ZA",
        "southcentralus": "US",
        "southeastasia": "SG",
        "spaincentral": "ES",
        "swedencentral": "SE",
        "switzerlandnorth": "CH",
        "uaenorth": "AE",
        "uksouth": "GB",
        "ukwest": "GB",
        "westeurope": "NL",
        "westus": "US",
        "westus2": "US",
        "westus3": "US",
    },
}
"""Whose yearly average counts for a region that has no figure of its own."""


def account_of(place: Place, boards: Iterable[str]) -> CountingOptions:
    """What the place says about price and carbon. `boards` are the names of the machine's GPUs."""
    return CountingOptions(carbon_region=_carbon_region(place), price=_price(place, list(boards)))


def _carbon_region(place: Place) -> str | None:
    if place.cloud == "gcp":
        spec = f"gcp:{place.region}"
        try:
            intensity.find(spec)
        except UsageError:
            return None
        return spec
    return _COUNTRIES.get(place.cloud, {}).get(place.region.lower())


def _price(place: Place, boards: list[str]) -> str | None:
    if not place.machine_type or not place.region:
        return None
    kind = ":spot" if place.spot else ""
    machines = [place.machine_type]
    if len(boards) == 1:  # an N1 machine has what GPUs one chose for it
        machines += [f"{place.machine_type}+{word}" for word in boards[0].replace("-", " ").split()]
    specs = [f"{place.cloud}:{machine}@{place.region}{kind}".lower() for machine in machines]
    prices = load_prices()
    return next((prices[spec].spec for spec in specs if spec in prices), None)

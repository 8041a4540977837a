"""Carbon intensity of electricity: where figures come from, one file each; this is the registry.

provider = find("South England")                    # what a user says; UsageError if it is unknown
updater = IntensityUpdater(run_folder, provider, start)   # start() and stop(): carbon.json, kept up during a run
intensity = load_run_intensity(run_folder)                # for insight.carbon.account, without a network
"""

import difflib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pulsetrain.errors import UsageError
from pulsetrain.intensity import electricity_maps, tables, uk, watttime
from pulsetrain.intensity.run_intensity import (
    IntensityUpdater,
    RunIntensity,
    load_run_intensity,
    look_up,
    refresh_run_intensity,
)
from pulsetrain.intensity.slots import FixedIntensity, IntensityError, Provider, Slot

__all__ = [
    "Choice",
    "IntensityError",
    "IntensityUpdater",
    "Provider",
    "RunIntensity",
    "Slot",
    "choices",
    "find",
    "load_run_intensity",
    "look_up",
    "refresh_run_intensity",
    "run_intensity_of",
]

_PLAIN: tuple[Callable[[str], Provider | None], ...] = (uk.find, tables.find_country, tables.find_constant)
_PREFIXED: dict[str, Callable[[str], Provider | None]] = {
    "uk": uk.find_within,
    "gcp": tables.find_google_cloud,
    "electricitymaps": electricity_maps.find_zone,
    "watttime": watttime.find_region,
}


class Choice(NamedTuple):
    """Something that a user can say."""

    spec: str
    name: str
    what: str


def find(spec: str) -> Provider:
    """The provider that the user means. Nothing is asked over the network, and a missing token is not an error yet."""
    prefix, colon, rest = spec.strip().partition(":")
    if colon:
        look = _PREFIXED.get(prefix.lower())
        found = look(rest.strip()) if look else None
    else:
        found = next((provider for look in _PLAIN if (provider := look(prefix))), None)
    if found:
        return found
    raise UsageError(f"unknown carbon region {spec!r}.", hint=f"{_near(spec)}List them: --carbon-region ''")


def run_intensity_of(folder: Path, spec: str, start: datetime, end: datetime, *, refresh: bool = False) -> RunIntensity:
    """What a report counts a run with: what its folder has, for which nothing is asked over the network.

    For another region, or to refresh, the provider is asked. Only refreshed values of the run's own region are kept.
    """
    provider = find(spec)
    known = load_run_intensity(folder)
    own = known is None or known.provider.spec == provider.about.spec
    if refresh and own:
        return refresh_run_intensity(folder, provider, start, end)
    return known if known and own else look_up(provider, start, end)


def choices() -> list[Choice]:
    """All that can be said, for `--carbon-region ''`."""
    live = "operational, every half hour, with a forecast"
    return [
        Choice("uk", uk.NATIONAL, live),
        *(Choice(name, f"the same as uk:{number}", live) for number, name in uk.REGIONS.items()),
        Choice("uk:SW1A", "by the first half of a postcode", live),
        Choice(
            "electricitymaps:DE",
            "a zone of Electricity Maps",
            f"lifecycle, every hour; needs {electricity_maps.VARIABLE}",
        ),
        Choice("watttime:CAISO_NORTH", "a region of WattTime", "marginal, every 5 minutes; needs a login"),
        *(Choice(code, fixed.region, _value(fixed)) for code, fixed in tables.countries().items()),
        *(Choice(f"gcp:{name}", fixed.region, _value(fixed)) for name, fixed in tables.google_cloud().items()),
        Choice("250", "a constant of your own", "g/kWh"),
    ]


def _value(fixed: FixedIntensity) -> str:
    return f"{fixed.accounting}, {fixed.source.partition(' (')[0]}: {fixed.grams_per_kwh:g} g/kWh"


def _near(spec: str) -> str:
    """`Did you mean ...? `, if something is like it."""
    named = {choice.spec.lower().partition(":")[2]: choice.spec for choice in choices() if ":" in choice.spec}
    named |= {word.lower(): choice.spec for choice in choices() for word in (choice.spec, choice.name)}
    close = difflib.get_close_matches(spec.strip().lower(), named, n=3, cutoff=0.6)
    meant = list(dict.fromkeys(named[word] for word in close))
    return f"Did you mean {', '.join(meant)}? " if meant else ""

"""What a unit costs: as the user says it, or from a list of machines by the hour. Only what is known has a price."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pulsetrain.errors import UsageError

FILE_NAME = "prices.toml"
FORMS = "'0.30 EUR/kWh', '2.50 USD/GPUh', '3.20 USD/h' for the whole machine, or gcp:MACHINE@REGION from the list"
ENTRY_HINT = 'Write [gcp.on_demand] or [gcp.spot], and below it "a2-highgpu-1g" = { europe-west4 = 3.75 }.'
_SAID = re.compile(
    r"(?P<amount>\d*\.?\d+)\s*(?P<currency>[a-z]{3})?\s*/\s*(?P<unit>kwh|gpu[ -]?h|h)(?:(?:ou)?r)?", re.I
)
_LISTED = re.compile(r"(?P<provider>[^:@]+):(?P<machine>[^:@]+)@(?P<region>[^:@]+)(?P<spot>:spot)?", re.I)

Unit = Literal["kWh", "GPUh", "h"]
_UNITS: dict[str, Unit] = {"kwh": "kWh", "gpuh": "GPUh", "h": "h"}


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What one kilowatt-hour, one hour of one GPU, or one hour of one machine costs."""

    amount: float
    unit: Unit
    currency: str
    """Empty when the user named none."""
    basis: str
    """In words, for a report."""
    dated: date | None = None
    """When it was looked up."""


class ListedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of a price list."""

    provider: str
    machine: str
    region: str
    spot: bool
    per_hour: float
    currency: str
    dated: date | None

    @property
    def spec(self) -> str:
        """How a user names it: `gcp:a2-highgpu-1g@europe-west4`, and `:spot` behind it."""
        return f"{self.provider}:{self.machine}@{self.region}{':spot' if self.spot else ''}"

    @property
    def price(self) -> Price:
        terms = ["spot" if self.spot else "on demand", *([self.dated.isoformat()] if self.dated else [])]
        basis = f"{self.machine} in {self.region}, {self.per_hour:g} {self.currency}/h ({', '.join(terms)})"
        return Price(amount=self.per_hour, unit="h", currency=self.currency, basis=basis, dated=self.dated)


Prices = Mapping[str, ListedPrice]
"""The lists in force, by spec in lower case."""


def load_prices() -> Prices:
    """The prices we ship, and before them, entry by entry, those of the user's own file."""
    shipped = resources.files("pulsetrain.insight").joinpath(FILE_NAME).read_text(encoding="utf-8")
    prices = _parse_list(shipped, FILE_NAME)
    own = own_file()
    if own.is_file() or os.environ.get("PULSETRAIN_PRICES"):
        try:
            prices |= _parse_list(own.read_text(encoding="utf-8"), str(own))
        except OSError as error:
            raise UsageError(f"{own} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{own} is not valid TOML: {error}.") from None
    return prices


def own_file() -> Path:
    """Where the user's own prices stand, or would: $PULSETRAIN_PRICES, else $PULSETRAIN_HOME/prices.toml."""
    named = os.environ.get("PULSETRAIN_PRICES")
    home = os.environ.get("PULSETRAIN_HOME") or "~/.pulsetrain"
    return Path(named or Path(home, FILE_NAME)).expanduser()


def parse_price(spec: str, prices: Prices) -> Price:
    """What the user said after `--price`."""
    spec = spec.strip()
    if said := _SAID.fullmatch(spec):
        unit = _UNITS[re.sub("[ -]", "", said["unit"].lower())]
        currency = (said["currency"] or "").upper()
        basis = f"{said['amount']}{currency and ' ' + currency}/{unit}"
        return Price(amount=float(said["amount"]), unit=unit, currency=currency, basis=basis)
    if found := prices.get(spec.lower()):
        return found.price
    if wanted := _LISTED.fullmatch(spec):
        raise _unknown(wanted, prices)
    raise UsageError(f"invalid --price {spec!r}.", hint=f"Write {FORMS}. --price '' lists the machines.")


def price_rows(prices: Prices) -> list[tuple[str, float, str, date | None]]:
    """What can be named after `--price`: spec, price by the hour, currency, date."""
    return [(entry.spec, entry.per_hour, entry.currency, entry.dated) for entry in prices.values()]


def _unknown(wanted: re.Match[str], prices: Prices) -> UsageError:
    """Why a machine has no price, which ones near to it have, and how to add it."""
    provider, machine, region, spot = (wanted[part] for part in ("provider", "machine", "region", "spot"))
    same = [p for p in prices.values() if (p.provider, p.machine.lower()) == (provider.lower(), machine.lower())]
    regions = [p.region for p in same if p.spot is bool(spot)]
    if regions:
        message, known = f"no known price for {machine} in {region}.", _known(region, regions)
    elif same:
        message, known = f"no {'spot' if spot else 'on-demand'} price is known for {machine}.", ""
    else:
        machines = list(dict.fromkeys(f"{p.provider}:{p.machine}" for p in prices.values()))
        message, known = f"no known price for {provider}:{machine}.", _known(f"{provider}:{machine}", machines)
    entry = f'[{provider}.{"spot" if spot else "on_demand"}] "{machine}" = {{ {region} = PRICE }}'
    return UsageError(message, hint=f"{known}Add your own price to {own_file()}: {entry}")


def _known(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1)
    return f"Did you mean {near[0]}? " if near else f"Known: {', '.join(words)}. "


class _Head(msgspec.Struct):
    """What holds for every price of a file."""

    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
    dated: date | None = msgspec.field(default=None, name="date")


_PerHour = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


def _parse_list(text: str, file: str) -> dict[str, ListedPrice]:
    """The entries of a price list; `file` is how errors call it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not valid TOML: {error}.") from None
    fields = {name: document.pop(name) for name in ("currency", "date") if name in document}
    try:
        head = msgspec.convert(fields, _Head)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {error}.", hint='Start it with currency = "USD" and date = 2026-08-21.') from None
    entries = {}
    for path, value in _leaves(document):
        where = f"{file}: {'.'.join(path)}"
        if len(path) != 4 or path[1] not in ("on_demand", "spot"):
            raise UsageError(f"{where} is not a machine price.", hint=ENTRY_HINT)
        provider, kind, machine, region = path
        try:
            per_hour = msgspec.convert(value, _PerHour)
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}: {error}.") from None
        entry = ListedPrice(
            provider=provider,
            machine=machine,
            region=region,
            spot=kind == "spot",
            per_hour=per_hour,
            currency=head.currency,
            dated=head.dated,
        )
        entries[entry.spec.lower()] = entry
    return entries


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested tables, with the keys that lead to it."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value

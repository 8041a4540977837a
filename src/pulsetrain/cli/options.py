"""Options that several commands share."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pulsetrain.cli import logs as log_lines
from pulsetrain.runs.folder import Account
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.outputs.prometheus import Exporter
    from pulsetrain.outputs.push.target import Target

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not of the form key=value")
        tags[key] = text
    return tags


interval = click.option(
    "--interval",
    type=click.FloatRange(0.1, 60.0),
    default=1.0,
    show_default=True,
    envvar="PULSETRAIN_INTERVAL",
    metavar="SECONDS",
    help="Time between readings.",
)


def machine(function: Callable[..., Any]) -> Callable[..., Any]:
    """--gpus and --simulate, handed on as one argument `machine`."""

    @click.option(
        "--gpus",
        "--gpu",
        envvar="PULSETRAIN_GPUS",
        metavar="LIST",
        help="GPUs to watch: indices or UUIDs separated by commas, or all.",
    )
    @click.option(
        "--simulate",
        envvar="PULSETRAIN_SIMULATE",
        metavar="SPEC",
        help="Simulated GPUs instead of real ones, such as 8xH100 or 2xL4,1xA100.",
    )
    @wraps(function)
    def call(*args: Any, gpus: str | None, simulate: str | None, **others: Any) -> Any:
        return function(*args, machine=Options(gpus=gpus, simulate=simulate), **others)

    return call


def _region(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Known before anything starts; '' lists all and ends."""
    from pulsetrain import intensity
    from pulsetrain.views.text import Style, table

    if value == "":
        head = ("--carbon-region", "where", "what")
        click.echo("\n".join(table(head, intensity.choices(), Style(sys.stdout), "lll")))
        ctx.exit()
    if value:
        intensity.find(value)
    return value


def _price(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Known before anything starts; '' lists all and ends."""
    from pulsetrain.insight import prices
    from pulsetrain.views.text import Style, table

    if value is None:
        return None
    known = prices.load_prices()
    if value == "":
        rows = [
            (spec, f"{price:.3f} {currency}/h", str(day or ""))
            for spec, price, currency, day in prices.price_rows(known)
        ]
        click.echo("\n".join(table(("--price", "", "looked up"), rows, Style(sys.stdout), "lrl")))
        click.echo(f"or {prices.FORMS}; your own list: {prices.own_file()}")
        ctx.exit()
    prices.parse_price(value, known)
    return value


@dataclass(frozen=True)
class Accounting:
    """How a run is to be counted: what was said now, and what the settings file says."""

    said: Account
    settings: Account

    def of_new(self) -> Account:
        return self.said.over(self.settings)

    def of_recorded(self, recorded: Account) -> Account:
        """What a run was recorded with stands before a settings file that may have changed since."""
        return self.said.over(recorded).over(self.settings)


def _source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def account(function: Callable[..., Any]) -> Callable[..., Any]:
    """--carbon-region, --price, --pue and --charge, handed on as one argument `account`."""

    @click.option(
        "--carbon-region",
        envvar="PULSETRAIN_CARBON_REGION",
        metavar="REGION",
        callback=_region,
        help="Whose electricity it is: DE, 'South England', gcp:europe-west4, ...; '' lists them.",
    )
    @click.option(
        "--price",
        envvar="PULSETRAIN_PRICE",
        metavar="PRICE",
        callback=_price,
        help="What it costs: '0.30 EUR/kWh', '2.50 USD/GPUh', gcp:g2-standard-4@us-central1, ...; '' lists them.",
    )
    @click.option(
        "--pue",
        type=click.FloatRange(1.0, 10.0),
        envvar="PULSETRAIN_PUE",
        metavar="FACTOR",
        help="Power usage effectiveness of the building, to count its cooling too.",
    )
    @click.option(
        "--charge",
        type=click.Choice(["all", "used"]),
        envvar="PULSETRAIN_CHARGE",
        help="Count the energy of all watched GPUs, or of those that the command's processes used.",
    )
    @wraps(function)
    def call(
        *args: Any, carbon_region: str | None, price: str | None, pue: float | None, charge: Any, **others: Any
    ) -> Any:
        given = {"carbon_region": carbon_region, "price": price, "pue": pue, "charge": charge}
        from_file = {name for name in given if _source(name) is ParameterSource.DEFAULT_MAP}
        said = Account(**{name: value for name, value in given.items() if name not in from_file})
        settings = Account(**{name: value for name, value in given.items() if name in from_file})
        return function(*args, account=Accounting(said, settings), **others)

    return call


NAMES = ("native", "dcgm", "nvidia_smi")


@dataclass(frozen=True)
class Exporting:
    """Whether and how what is seen is offered to Prometheus."""

    port: int | None
    address: str
    names: tuple[str, ...]
    web_config: str | None

    def listen(self, interval: float) -> "Exporter | None":
        """Take the port; None when nobody asked for it."""
        if self.port is None:
            return None
        from pulsetrain.outputs import web_config
        from pulsetrain.outputs.prometheus import Exporter

        web = web_config.load(Path(self.web_config)) if self.web_config else None
        return Exporter(self.address, self.port, names=self.names, interval=interval, web=web)


def _names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if unknown := [name for name in names if name not in NAMES]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(NAMES)}")
    return names


def prometheus(function: Callable[..., Any]) -> Callable[..., Any]:
    """--prometheus-port, --prometheus-address, --names and --web-config, handed on as one argument `exporting`."""

    @click.option(
        "--prometheus-port",
        type=click.IntRange(0, 65535),
        envvar="PULSETRAIN_PROMETHEUS_PORT",
        metavar="PORT",
        help="Serve /metrics for Prometheus on this port; 0 takes a free one and says which.",
    )
    @click.option(
        "--prometheus-address",
        default="127.0.0.1",
        show_default=True,
        envvar="PULSETRAIN_PROMETHEUS_ADDRESS",
        metavar="ADDRESS",
        help="Where to listen; 0.0.0.0 lets other machines in.",
    )
    @click.option(
        "--names",
        default="native",
        show_default=True,
        envvar="PULSETRAIN_NAMES",
        metavar="LIST",
        callback=_names,
        help="How metrics are called there: native, dcgm, nvidia_smi, or several of them.",
    )
    @click.option(
        "--web-config",
        envvar="PULSETRAIN_WEB_CONFIG",
        metavar="FILE",
        help="TLS and passwords there: the web-config.yml that Prometheus' exporters use.",
    )
    @wraps(function)
    def call(
        *args: Any,
        prometheus_port: int | None,
        prometheus_address: str,
        names: tuple[str, ...],
        web_config: str | None,
        **others: Any,
    ) -> Any:
        exporting = Exporting(prometheus_port, prometheus_address, names, web_config)
        return function(*args, exporting=exporting, **others)

    return call


def _push(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> "list[Target]":
    """Known before anything starts."""
    from pulsetrain import config
    from pulsetrain.outputs.push.target import parse_targets

    return parse_targets(values, config.load(config.find()).push)


push = click.option(
    "--push",
    multiple=True,
    envvar="PULSETRAIN_PUSH",
    metavar="TARGET",
    callback=_push,
    help="Send readings to a server: remote-write:URL, victoriametrics:URL, pushgateway:URL, otlp:URL, or the NAME of "
    "a section [push.NAME]; may be repeated. '' is none.",
)
name = click.option("--name", envvar="PULSETRAIN_NAME", help="What to call the run; the command's name by default.")
tag = click.option(
    "--tag", multiple=True, callback=_tags, metavar="KEY=VALUE", help="A mark on the run; may be repeated."
)
directory = click.option(
    "--dir",
    "directory",
    envvar="PULSETRAIN_DIR",
    metavar="FOLDER",
    help="Where runs are kept. [default: $PULSETRAIN_HOME/runs, ~/.pulsetrain/runs]",
)
quiet = click.option(
    "--quiet", "-q", is_flag=True, envvar="PULSETRAIN_QUIET", help="Say nothing but warnings and errors."
)
json_output = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="PULSETRAIN_LOG_FORMAT",
    expose_value=False,
    callback=lambda ctx, param, value: log_lines.configure(log_format=value),
    help="Log lines for people, or as JSON.",
)
log_level = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    envvar="PULSETRAIN_LOG_LEVEL",
    expose_value=False,
    callback=lambda ctx, param, value: log_lines.configure(level=value),
    help="The least severe log lines to show. [default: warning]",
)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, shown in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


logs = together(log_format, log_level)
recording = together(name, tag, directory)

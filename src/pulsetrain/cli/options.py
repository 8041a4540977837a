"""Options that several commands share."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import asdict

from pulsetrain.cli import logs as log_lines
from pulsetrain.outputs import OutputOptions
from pulsetrain.outputs.push import KINDS
from pulsetrain.outputs.trackers import KINDS as TRACKERS
from pulsetrain.runs.folder import CountingOptions, Run
from pulsetrain.sources import Options
from pulsetrain.watching.options import WatchOptions

if TYPE_CHECKING:
    from pulsetrain.alerts.actions import AlertAction
    from pulsetrain.outputs.push.target import PushTarget

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter("a tag must have the form key=value")  # it may be a secret, and is not shown
        tags[key] = text
    return tags


def interval_of(seconds: float) -> Decorator:
    """--interval, with this default."""
    return click.option(
        "--interval",
        type=click.FloatRange(0.1, 60.0),
        default=seconds,
        show_default=True,
        envvar="PULSETRAIN_INTERVAL",
        metavar="SECONDS",
        help="Time between readings.",
    )


interval = interval_of(1.0)


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
        help="Use simulated GPUs instead of real ones, such as 8xH100 or 2xL4,1xA100.",
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

    said: CountingOptions
    settings: CountingOptions

    def of_new(self) -> CountingOptions:
        return self.said.over(self.settings)

    def of_recorded(self, run: Run) -> CountingOptions:
        """What a run was recorded with takes precedence over a settings file that may have changed since.

        What only the place of its machine said comes last.
        """
        by_user = {name: None if name in run.account_sources else value for name, value in asdict(run.account).items()}
        return self.said.over(CountingOptions(**by_user)).over(self.settings).over(run.account)


def _source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def account(function: Callable[..., Any]) -> Callable[..., Any]:
    """--carbon-region, --price, --pue and --charge, handed on as one argument `account`."""

    @click.option(
        "--carbon-region",
        envvar="PULSETRAIN_CARBON_REGION",
        metavar="REGION",
        callback=_region,
        help="Carbon intensity of a grid: DE, 'South England', gcp:europe-west4, ...; '' lists them.",
    )
    @click.option(
        "--price",
        envvar="PULSETRAIN_PRICE",
        metavar="PRICE",
        callback=_price,
        help="Price: '0.30 EUR/kWh', '2.50 USD/GPUh', gcp:g2-standard-4@us-central1, ...; '' lists them.",
    )
    @click.option(
        "--pue",
        type=click.FloatRange(1.0, 10.0),
        envvar="PULSETRAIN_PUE",
        metavar="FACTOR",
        help="Power usage effectiveness of the data center, to include its cooling.",
    )
    @click.option(
        "--charge",
        type=click.Choice(["all", "used"]),
        envvar="PULSETRAIN_CHARGE",
        help="Count the energy of all watched GPUs, or only of those that the command's processes used. "
        "[default: all, or used if others use the GPUs too]",
    )
    @wraps(function)
    def call(
        *args: Any, carbon_region: str | None, price: str | None, pue: float | None, charge: Any, **others: Any
    ) -> Any:
        given = {"carbon_region": carbon_region, "price": price, "pue": pue, "charge": charge}
        from_file = {name for name in given if _source(name) is ParameterSource.DEFAULT_MAP}
        said = CountingOptions(**{name: value for name, value in given.items() if name not in from_file})
        settings = CountingOptions(**{name: value for name, value in given.items() if name in from_file})
        return function(*args, account=Accounting(said, settings), **others)

    return call


NAMES = ("native", "dcgm", "nvidia_smi")


def _names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if unknown := [name for name in names if name not in NAMES]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(NAMES)}")
    return names


def prometheus(function: Callable[..., Any]) -> Callable[..., Any]:
    """--prometheus-port, --prometheus-address, --names and --web-config, handed on as one argument `outputs`."""

    @click.option(
        "--prometheus-port",
        type=click.IntRange(0, 65535),
        envvar="PULSETRAIN_PROMETHEUS_PORT",
        metavar="PORT",
        help="Serve /metrics for Prometheus on this port; 0 picks a free one and prints it.",
    )
    @click.option(
        "--prometheus-address",
        default="127.0.0.1",
        show_default=True,
        envvar="PULSETRAIN_PROMETHEUS_ADDRESS",
        metavar="ADDRESS",
        help="Address to listen on; 0.0.0.0 lets other machines connect.",
    )
    @click.option(
        "--names",
        default="native",
        show_default=True,
        envvar="PULSETRAIN_NAMES",
        metavar="LIST",
        callback=_names,
        help="Metric naming scheme: native, dcgm, nvidia_smi, or several of them.",
    )
    @click.option(
        "--web-config",
        envvar="PULSETRAIN_WEB_CONFIG",
        metavar="FILE",
        help="TLS and passwords for /metrics: a web-config.yml as used by Prometheus exporters.",
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
        outputs = OutputOptions(
            names=names,
            prometheus_port=prometheus_port,
            prometheus_address=prometheus_address,
            web_config=web_config,
        )
        return function(*args, outputs=outputs, **others)

    return call


def _push(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> "list[PushTarget]":
    """Known before anything starts."""
    from pulsetrain import settings
    from pulsetrain.outputs.push.target import parse_targets

    return parse_targets(values, settings.in_force().config.push)


push = click.option(
    "--push",
    multiple=True,
    envvar="PULSETRAIN_PUSH",
    metavar="TARGET",
    callback=_push,
    help=f"Send readings to a server: {', '.join(f'{kind}:URL' for kind in KINDS)}, or the NAME of a section "
    "[push.NAME]; may be repeated. '' means none.",
)


def _on_alert(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> "list[AlertAction]":
    """Known before anything starts."""
    from pulsetrain.alerts.actions import parse_action

    return [parse_action(value) for value in values]


on_alert = click.option(
    "--on-alert",
    multiple=True,
    metavar="RULE=ACTION",
    callback=_on_alert,
    help="What to do when a rule fires: stop, checkpoint (SIGUSR1) or run:COMMAND; may be repeated.",
)
name = click.option("--name", envvar="PULSETRAIN_NAME", help="Name of the run. [default: from the command]")
project = click.option("--project", envvar="PULSETRAIN_PROJECT", help="Project that the run belongs to.")
tag = click.option("--tag", multiple=True, callback=_tags, metavar="KEY=VALUE", help="Tag the run; may be repeated.")
directory = click.option(
    "--dir",
    "directory",
    envvar="PULSETRAIN_DIR",
    metavar="FOLDER",
    help="Where runs are kept. [default: $PULSETRAIN_HOME/runs, ~/.pulsetrain/runs]",
)
shared = click.option(
    "--shared", is_flag=True, envvar="PULSETRAIN_SHARED", help="Let your group read the run; by default only you can."
)
private = click.option(
    "--private",
    is_flag=True,
    envvar="PULSETRAIN_PRIVATE",
    help="Record no command lines and nothing about the code; docs/privacy.md.",
)


class _Place(click.ParamType[str]):
    """One place, also where its path has blanks."""

    name = "place"

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [rv]


send_to = click.option(
    "--to",
    "send_to",  # which `export --to` is not
    envvar="PULSETRAIN_TO",
    metavar="PLACE",
    multiple=True,
    type=_Place(),
    help="Send the run while it is recorded to a folder, drive:, gs://, s3://, ssh:// or https:// (docs/transfer.md), "
    f"or a tracker: {', '.join(f'{kind}:' for kind in TRACKERS)} (docs/trackers.md). Repeatable; '' means nowhere.",
)
quiet = click.option("--quiet", "-q", is_flag=True, envvar="PULSETRAIN_QUIET", help="Print only warnings and errors.")
json_output = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="PULSETRAIN_LOG_FORMAT",
    expose_value=False,
    callback=lambda ctx, param, value: log_lines.configure(log_format=value),
    help="Write log lines as text or as JSON.",
)
log_level = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "critical"]),
    default="warning",
    envvar="PULSETRAIN_LOG_LEVEL",
    expose_value=False,
    callback=lambda ctx, param, value: log_lines.configure(level=value),
    help="Lowest severity of log lines to show. [default: warning]",
)


def _complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: names and ids of the newest runs."""
    from pulsetrain import settings
    from pulsetrain.errors import PulsetrainError
    from pulsetrain.runs.folder import Home

    directories = (above.params.get("directory") for above in (ctx, ctx.parent) if above)
    found = ["last"]
    with contextlib.suppress(PulsetrainError, OSError):  # there is nobody to tell
        directory = next(filter(None, directories), None) or settings.in_force().config.dir
        for folder in reversed(list(Home.find(directory).runs())[-MOST_COMPLETED:]):
            with contextlib.suppress(PulsetrainError):
                found += [folder.load().name, folder.name]
    return [word for word in dict.fromkeys(found) if word.startswith(incomplete)]


MOST_COMPLETED = 100
run = click.argument("run", default="last", shell_complete=_complete_runs)
run_required = click.argument("run", shell_complete=_complete_runs)
some_runs = click.argument("run", nargs=-1, required=True, shell_complete=_complete_runs)
runs_to_compare = click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True, shell_complete=_complete_runs)
runs_to_show = click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=_complete_runs)
run_to_show = click.argument("what", nargs=-1, metavar="[RUN]", shell_complete=_complete_runs)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, shown in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


logs = together(log_format, log_level)


def watching(function: Callable[..., Any], interval: Decorator = interval) -> Callable[..., Any]:
    """All that `run`, `attach`, `watch` and `bench` have in common, handed on as one argument `watching`."""

    @together(
        name, project, tag, directory, send_to, shared, private, interval, machine, account, prometheus, push, on_alert
    )
    @wraps(function)
    def call(
        *args: Any,
        name: str | None,
        project: str | None,
        tag: dict[str, str],
        directory: str | None,
        send_to: Sequence[str],
        shared: bool,
        private: bool,
        interval: float,
        machine: Options,
        account: Accounting,
        outputs: OutputOptions,
        push: "list[PushTarget]",
        on_alert: "list[AlertAction]",
        **others: Any,
    ) -> Any:
        from pulsetrain import settings
        from pulsetrain.alerts.notify_urls import notify_urls

        configured = settings.in_force().config
        options = WatchOptions(
            sources=machine,
            interval_seconds=interval,
            name=name,
            project=project or "",
            tags=tag,
            directory=directory,
            to=[place for place in send_to if place],
            shared=shared,
            private=private,
            account=account.of_new(),
            thresholds=configured.thresholds,
            outputs=replace(outputs, push=push),
            notify=configured.notify,
            notify_urls=notify_urls(configured.notify),
            on_alert=on_alert,
        )
        return function(*args, watching=options, **others)

    return call

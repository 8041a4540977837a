"""Options that several commands share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from pulsetrain.cli import logs as log_lines
from pulsetrain.sources import Options

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

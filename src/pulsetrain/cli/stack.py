"""`pulsetrain stack`: Prometheus, Grafana, Alertmanager and exporters, in containers or as installed servers."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import Unavailable, UsageError
from pulsetrain.runs.folder import SCHEMA

if TYPE_CHECKING:
    from pulsetrain.deploy.files import WriteResult
    from pulsetrain.deploy.stack.health import ScrapeTarget, ServiceHealth
    from pulsetrain.deploy.stack.settings import StackSettings, StackState
    from pulsetrain.deploy.stack.stack import Stack

READY_SECONDS = 60.0

_folder = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


def _ports(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int] | None:
    from pulsetrain.deploy.stack.services import SERVICES

    ports = {}
    for value in values:
        name, _, port = value.partition("=")
        if name not in SERVICES:
            raise click.BadParameter(f"unknown server {name!r}; choose from {', '.join(SERVICES)}")
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{value!r} does not have the form {name}=PORT")
        ports[name] = int(port)
    return ports or None


def _switch(name: str, text: str) -> options.Decorator:
    """On, off, or not said: then as it was."""
    return click.option(name, default=None, help=text)


def _many(name: str, argument: str, metavar: str, text: str, **more: Any) -> options.Decorator:
    return click.option(name, argument, multiple=True, metavar=metavar, help=f"{text} Repeatable.", **more)


def _plan(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what a stack is to be, handed on as one argument `given`: those that were given."""

    @_switch("--native/--docker", "Use servers installed on this machine instead of containers.")
    @click.option("--address", metavar="IP", help="Address that servers listen on, instead of 127.0.0.1.")
    @_many("--port", "ports", "SERVER=PORT", "Use another port for a server.", callback=_ports)
    @_many("--target", "targets", "HOST:PORT", "Scrape an exporter on another machine.")
    @click.option("--targets-file", type=_FILE, help="File with targets, or with Prometheus target groups.")
    @_switch("--local/--no-local", "Whether to scrape this machine's own exporter, on port 9400.")
    @_switch("--kubernetes/--no-kubernetes", "Find pods annotated with prometheus.io/scrape.")
    @click.option("--kubeconfig", type=_FILE, help="Kubeconfig file, to reach the cluster from outside.")
    @_switch("--gpu/--no-gpu", "Run the DCGM and nvidia-smi exporters. [default: if there is a GPU]")
    @_switch("--victoriametrics/--no-victoriametrics", "Keep samples for ten years in VictoriaMetrics.")
    @click.option("--thresholds", type=_FILE, help="TOML file with thresholds for the alerts.")
    @click.option("--external-url", metavar="URL", help="Public URL of Grafana, for links in alerts.")
    @click.option("--webhook", metavar="URL", help="Webhook to send alerts to.")
    @click.option("--slack", metavar="URL", help="Slack webhook to send alerts to.")
    @click.option("--force", is_flag=True, help="Overwrite files that you edited.")
    @wraps(function)
    def call(folder: Path, force: bool, **options: Any) -> Any:
        given = {name: value for name, value in options.items() if value not in (None, ())}
        return function(folder, given, force)

    return call


@click.group(short_help="Set up Prometheus, Grafana and alerts.")
def stack() -> None:
    """Prometheus, Grafana with dashboards, Alertmanager with rules, and exporters, set up in a folder DIR.

    DIR remembers the options of its stack: you need not give them again.
    """


@stack.command()
@_folder
@_plan
def config(folder: Path, given: dict[str, Any], force: bool) -> None:
    """Write the files into DIR and start nothing."""
    from pulsetrain.deploy.stack.stack import Stack

    made = Stack(folder)
    settings = _settings(made.settings, given)
    _tell_written(made.configure(settings, force=force), made.folder)
    _warn(settings)


@stack.command()
@_folder
@_plan
def up(folder: Path, given: dict[str, Any], force: bool) -> int:
    """Write the files into DIR and start the servers, or update those already running."""
    from pulsetrain.deploy.stack.stack import Stack

    made = Stack(folder)
    settings = _settings(made.settings, given)
    start = _up_native if settings.native else _up_docker
    found = start(made, settings, force)
    click.echo("\n".join(_table(found)))
    if any(health.service == "grafana" for health in found):
        click.echo(f"Grafana's user is admin; the password is in {made.password_file}")
    if settings.local:
        click.echo("To show this machine there, start its exporter: pulsetrain watch --prometheus-port 9400")
    _warn(settings)
    return _exit_code(found)


@stack.command()
@_folder
@click.option("--volumes", is_flag=True, help="Delete all recorded data too.")
def down(folder: Path, volumes: bool) -> None:
    """Stop the servers of DIR. Their data is kept."""
    from pulsetrain.deploy.stack.compose import Docker
    from pulsetrain.deploy.stack.native import Native
    from pulsetrain.deploy.stack.settings import load_state

    state = load_state(folder)
    if state.settings.native:
        stopped = Native(folder.absolute(), state.settings).down(volumes)
        click.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    else:
        Docker(folder.absolute(), state.project).down(volumes)


@stack.command()
@_folder
@options.json_output
def status(folder: Path, as_json: bool) -> int:
    """Show the servers of DIR, their addresses, whether they work, and what Prometheus scrapes.

    Exits with 1 when a server does not work.
    """
    from pulsetrain.deploy.stack.health import targets
    from pulsetrain.deploy.stack.settings import load_state

    state = load_state(folder)
    found = _health_of_own(folder.absolute(), state)
    scraped = targets(state.settings) if any(one.ready for one in found if one.service == "prometheus") else []
    if as_json:
        document = {"schema": SCHEMA, "services": found, "targets": scraped}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        click.echo("\n".join([*_table(found), *_target_lines(scraped)]))
    return _exit_code(found)


def _health_of_own(folder: Path, state: "StackState") -> "list[ServiceHealth]":
    """Which servers of the stack work. One that answers at its address and is another stack's does not."""
    from pulsetrain.deploy.stack.compose import Docker
    from pulsetrain.deploy.stack.health import health, of_stack
    from pulsetrain.deploy.stack.native import Native

    found = health(state.settings)
    if state.settings.native:
        return of_stack(found, Native(folder, state.settings).running())
    if not any(one.ready for one in found):
        return found
    try:
        return of_stack(found, Docker(folder, state.project).running())
    except Unavailable as error:
        return of_stack(found, (), f"another program may be listening there; only Docker can tell. {error.message}")


def _settings(saved: "StackSettings", given: dict[str, Any]) -> "StackSettings":
    """What the stack was, with what is asked for now."""
    from pulsetrain.deploy.stack.settings import parse_target

    for target in given.get("targets", ()):
        parse_target(target)
    if "kubeconfig" in given:
        given.setdefault("kubernetes", True)
    ports = saved.ports | given.get("ports", {})
    settings = msgspec.structs.replace(saved, **given | {"ports": ports})
    used = [settings.port(service.name) for service in settings.services]
    if len(set(used)) < len(used):
        raise UsageError("two servers cannot have the same port.", hint="Choose others with --port SERVER=PORT.")
    return settings


def _up_docker(made: "Stack", settings: "StackSettings", force: bool) -> "list[ServiceHealth]":
    from pulsetrain.deploy.stack.compose import Docker
    from pulsetrain.deploy.stack.health import wait_until_ready
    from pulsetrain.deploy.stack.stack import check_ports

    docker = Docker(made.folder, made.project)
    running = docker.running()
    check_ports(settings, {made.settings.port(name) for name in running})
    written = made.configure(settings, force=force)
    _tell_written(written, made.folder)
    docker.up(sorted(_readers(written) & running))
    found = wait_until_ready(settings, READY_SECONDS, hopeless=lambda: False)
    for one in found:
        if not one.ready:
            click.echo(f"error: {one.service} does not work; see {docker.command('logs', one.service)}", err=True)
    return found


def _up_native(made: "Stack", settings: "StackSettings", force: bool) -> "list[ServiceHealth]":
    from pulsetrain.deploy.stack.health import wait_until_ready
    from pulsetrain.deploy.stack.native import Native
    from pulsetrain.deploy.stack.stack import check_ports

    native = Native(made.folder, settings)
    if not settings.services:
        raise UsageError(
            "none of the servers is installed on this machine.", hint="Debian and Ubuntu: apt install prometheus"
        )
    check_ports(settings, {made.settings.port(name) for name in native.running()})
    written = made.configure(settings, force=force)
    _tell_written(written, made.folder)
    for service in settings.asked_for:
        if service not in settings.services:
            click.echo(f"skipped: {service.name} is not installed ({service.package})")
    native.up(_readers(written))
    found = wait_until_ready(settings, READY_SECONDS, hopeless=native.ended)
    for name, line in native.ended().items():
        click.echo(f"error: {name} exited: {line}\n  hint: its log is {native.log(name)}", err=True)
    return found


def _readers(written: "WriteResult") -> set[str]:
    """The servers that must be restarted to read their files: each has a folder of its name.

    A file that the user edited may be new to them too.
    """
    return {file.partition("/")[0] for file in [*written.touched, *written.kept]}


def _tell_written(written: "WriteResult", folder: Path) -> None:
    words = {"written": written.new, "changed": written.changed, "removed": written.removed}
    told = [f"{len(files)} {word}" for word, files in words.items() if files]
    click.echo(f"{folder}: {', '.join(told)}" if told else f"{folder}: unchanged")
    for name in written.kept:
        click.echo(f"  kept with your edits: {name} (--force overwrites it)")


def _warn(settings: "StackSettings") -> None:
    from pulsetrain.deploy.stack.settings import LOOPBACK

    if settings.address not in (LOOPBACK, "::1", "localhost"):
        names = ", ".join(s.name for s in settings.services if s.asked_by_people and s.name != "grafana")
        click.echo(
            f"warning: anyone who can reach {settings.address} can read and change {names}: they have no password.\n"
            "  Grafana has one, but it is sent unencrypted.\n"
            "  hint: listen on 127.0.0.1 and use an SSH tunnel, or put a TLS proxy in front.",
            err=True,
        )


def _table(found: "list[ServiceHealth]") -> list[str]:
    from pulsetrain.views.text import Style, table

    style = Style(sys.stdout)
    rows = [
        (one.service, one.url, style("ready", "green") if one.ready else style(f"not ready: {one.detail}", "red"))
        for one in found
    ]
    return table(("server", "address", "state"), rows, style, "lll")


def _target_lines(scraped: "list[ScrapeTarget]") -> list[str]:
    from pulsetrain.views.text import Style

    if not scraped:
        return []
    style = Style(sys.stdout)
    lost = [target for target in scraped if not target.up]
    return [
        "",
        f"{len(scraped) - len(lost)} of {len(scraped)} targets are up in Prometheus",
        *(style(f"  {target.address} ({target.job}) is down: {_short(target.error)}", "yellow") for target in lost),
    ]


def _short(error: str) -> str:
    """Prometheus tells every layer that an error came through; the last one is why."""
    return error.rpartition(": ")[2]


def _exit_code(found: "list[ServiceHealth]") -> int:
    return 0 if all(one.ready for one in found) else 1

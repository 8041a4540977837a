"""`pulsetrain serve`: the web page of all runs and of this machine."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.rules.thresholds import Thresholds
    from pulsetrain.runs.folder import Home
    from pulsetrain.serving.web_config import WebConfig
    from pulsetrain.views.live.machines import WatchedMachine
    from pulsetrain.views.web.collecting import Collecting
    from pulsetrain.views.web.fleet import Fleet
    from pulsetrain.watching.session import Session

NOT_ENCRYPTED = "traffic is not encrypted; set up TLS with --web-config, or use an SSH tunnel"


@click.command(short_help="Show runs and this machine in the browser.")
@options.runs_to_show
@click.option(
    "--host", "address", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 picks a free port and prints it."
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--token", "wants_token", is_flag=True, help="Require a token even on this machine, in case others log in here."
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another host name for the page, such as a proxy's.")
@click.option(
    "--web-config", metavar="FILE", envvar="PULSETRAIN_WEB_CONFIG", help="TLS and logins; docs/prometheus.md."
)
@click.option("--allow-delete", is_flag=True, help="Let the page delete runs that have ended; requires a token.")
@click.option("--collector", is_flag=True, help="Accept runs that other machines send; docs/transfer.md.")
@click.option(
    "--quota",
    type=click.FloatRange(0.001, 1e6),
    default=10.0,
    show_default=True,
    metavar="GB",
    help="With --collector: maximum size of one run.",
)
@click.option("--connect", multiple=True, metavar="HOST:PORT", help="Also show machines that serve /metrics.")
@click.option(
    "--from", "fleet", metavar="URL", help="Show a fleet from a Prometheus-compatible server: http://victoria:8428."
)
@click.option("--no-machine", is_flag=True, help="Show runs only; do not read this machine.")
@options.interval
@options.machine
@options.directory
@options.quiet
@options.logs
def serve(
    runs: tuple[str, ...],
    address: str,
    port: int,
    open_browser: bool,
    wants_token: bool,
    allow_host: tuple[str, ...],
    web_config: str | None,
    allow_delete: bool,
    collector: bool,
    quota: float,
    connect: tuple[str, ...],
    fleet: str | None,
    no_machine: bool,
    interval: float,
    machine: Options,
    directory: str | None,
    quiet: bool,
) -> None:
    """Serve a web page with all runs, live and recorded, and this machine; also a JSON API with its description.

    A RUN is an id or the start of one, a name, a path, or `last`; if any are given, only those are shown. By default,
    only this machine can reach the page. On any other address, the page requires the token in the printed link.

    \b
        pulsetrain serve --open
        pulsetrain serve --host 0.0.0.0 --web-config web.yml
        pulsetrain serve --from http://victoria:8428
    """
    from pulsetrain import settings
    from pulsetrain.cli.messages import to_terminal
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.runs.folder import Home
    from pulsetrain.serving.web_config import WebConfig, load
    from pulsetrain.views.web.security import is_loopback
    from pulsetrain.views.web.server import WebServer
    from pulsetrain.views.web.site import Site

    home = Home.find(directory)
    folders = [home.resolve(run) for run in runs]
    protection = load(Path(web_config)) if web_config else WebConfig()
    token = _token(address, protection, wanted=wants_token or allow_delete)
    machines = _machines(connect, machine, interval, none=no_machine)
    thresholds = settings.in_force().config.thresholds
    site = Site(
        home,
        folders,
        machines=machines,
        fleet=_fleet(fleet, thresholds),
        thresholds=thresholds,
        allow_delete=allow_delete,
    )
    collecting = _collecting(home, quota) if collector else None
    server = WebServer(
        site, address, port, token=token, protection=protection, allowed_hosts=allow_host, collecting=collecting
    )
    stop = stop_on_signals()
    for one in machines:
        one.start()
    server.start()
    if not is_loopback(address) and protection.tls is None:
        to_terminal([f"pulsetrain: warning: {NOT_ENCRYPTED}"])
    if not quiet:
        to_terminal([f"serving {home.path} at {' or '.join(server.links)}"])
        to_terminal([f"collecting: run --to {server.url}, with {collecting.how}"] if collecting else [])
        to_terminal(["stop with Ctrl-C"])
    if open_browser:
        _open(server.link)
    stop.wait()
    server.close()
    if collecting:
        collecting.close()


@contextmanager
def serve_beside(session: "Session") -> Iterator[None]:
    """The page beside a run that is being recorded, on this machine alone; when the port is taken, another is used."""
    from pulsetrain.cli.messages import to_terminal
    from pulsetrain.errors import PulsetrainError
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.web.server import PORT, WebServer
    from pulsetrain.views.web.site import Site

    assert session.recording
    folder = session.recording.folder
    site = Site(Home(folder.path.parent), thresholds=session.options.thresholds)
    try:
        server = WebServer(site, port=PORT)
    except PulsetrainError:
        server = WebServer(site, port=0)
    server.start()
    to_terminal([f"watch it at {server.link}run/{folder.path.name}"])
    try:
        yield
    finally:
        server.close()


def _token(address: str, protection: "WebConfig", *, wanted: bool) -> str | None:
    """None where nobody else can reach the page, or logins protect it."""
    from pulsetrain.views.web.security import checked_token, is_loopback, new_token

    given = os.environ.get("PULSETRAIN_TOKEN")
    if given:
        return checked_token(given)
    open_to_others = not is_loopback(address) and protection.may_pass is None
    return new_token() if wanted or open_to_others else None


def _collecting(home: "Home", quota: float) -> "Collecting":
    from pulsetrain.transfer.receiving import Receiver, collector_token
    from pulsetrain.views.web.collecting import Collecting
    from pulsetrain.views.web.security import checked_token

    token, how = collector_token(checked_token)
    return Collecting(Receiver(home, quota_bytes=int(quota * 1e9)), token, how)


def _fleet(url: str | None, thresholds: "Thresholds") -> "Fleet | None":
    if url is None:
        return None
    from pulsetrain.views.web.fleet import Fleet

    return Fleet(url, thresholds)


def _machines(connect: Sequence[str], machine: Options, interval: float, *, none: bool) -> "list[WatchedMachine]":
    from pulsetrain.views.live.machines import WatchedMachine

    found = []
    if connect:
        from pulsetrain.views.live.remote import RemoteFeed

        found = [WatchedMachine(RemoteFeed(address, interval)) for address in connect]
    if none:
        return found
    from pulsetrain.views.live.feeds import LocalFeed
    from pulsetrain.watching.options import WatchOptions
    from pulsetrain.watching.session import Session

    session = Session(WatchOptions(sources=machine.all_by_default(), interval_seconds=interval))
    session.open()
    return [WatchedMachine(LocalFeed(session), local=True), *found]


def _open(link: str) -> None:
    """In the user's browser, where there is one."""
    import webbrowser

    if not webbrowser.open(link):
        click.echo("no browser found: open the link yourself", err=True)
        sys.stderr.flush()

"""`pulsetrain top`: this machine, a run, or other machines, as a dashboard in the terminal."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, RunFolder, host_name
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.views.live.machines import WatchedMachine
    from pulsetrain.views.terminal.state import Scene

MOST_RUNS = 200
"""How many of the newest runs are searched for one in progress."""


@click.command(short_help="Live dashboard of a machine or a run.")
@options.run_to_show
@click.option(
    "--connect",
    multiple=True,
    metavar="HOST:PORT",
    help="Show other machines on which pulsetrain serves /metrics; you may list several.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="TIMES",
    help="Replay a recorded run as if it were live.",
)
@click.option("--once", is_flag=True, help="Print one frame as text.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print JSON, one line for each machine.")
@click.option(
    "--palette",
    type=click.Choice(["terminal", "okabe-ito", "cividis", "plain"]),
    default="terminal",
    show_default=True,
    envvar="PULSETRAIN_PALETTE",
    help="Colors. NO_COLOR=1 means plain.",
)
@options.interval
@options.machine
@options.directory
def top(
    what: tuple[str, ...],
    connect: tuple[str, ...],
    speed: float | None,
    once: bool,
    as_json: bool,
    palette: str,
    interval: float,
    machine: Options,
    directory: str | None,
) -> None:
    """Show a run, this machine, or other machines, live. The last line shows the keys; ? lists them all.

    RUN is an id or the start of one, a name, a path, or `last`. Without one, it shows the run that this machine is
    recording now, or this machine if there is none.

    \b
        pulsetrain top
        pulsetrain top last --once
        pulsetrain top --connect gpu01:9400 gpu02:9400
    """
    from pulsetrain import settings
    from pulsetrain.views.terminal import palette as palettes
    from pulsetrain.views.terminal.state import WINDOWS, Scene, ViewState

    if not connect and len(what) > 1:
        raise click.UsageError("one run at a time; `pulsetrain compare` shows several")
    if as_json and not once:
        raise click.UsageError("--json needs --once; `pulsetrain watch --json` prints a line for each reading")
    home = Home.find(directory)
    machines, missing = _machines(what, connect, speed, home, machine, interval)
    of_run = any(one.folder for one in machines)
    over = of_run and not any(one.feed.live for one in machines)
    scene = Scene(
        machines,
        ViewState(view="run" if of_run else "machine", window=WINDOWS[-1] if over and speed is None else WINDOWS[1]),
        settings.in_force().config.thresholds,
        braille=_shows_braille(),
        gpus=frozenset(filter(None, (machine.gpus or "").replace("all", "").split(","))),
        missing=missing,
    )
    colors = palettes.chosen(palette)
    if not once and not _is_terminal():
        _plain(scene)
        return
    for one in machines:
        one.start()
    if once:
        from pulsetrain.views.terminal.once import print_json, print_once

        if as_json:
            print_json(machines)
        else:
            print_once(scene, colors)
    else:
        _dashboard(scene, home, colors)


def _machines(
    what: Sequence[str], connect: Sequence[str], speed: float | None, home: Home, machine: Options, interval: float
) -> "tuple[list[WatchedMachine], Callable[[], str]]":
    """What is to be shown; and why this machine has no GPU, if it has none."""
    from pulsetrain import settings
    from pulsetrain.views.live.feeds import LocalFeed, ReplayFeed
    from pulsetrain.views.live.machines import WatchedMachine, machines_of
    from pulsetrain.views.live.remote import RemoteFeed

    if connect:
        return [WatchedMachine(RemoteFeed(address, interval)) for address in (*connect, *what)], str
    folder = home.resolve(what[0]) if what else None if machine.simulate else _going_on(home)
    if folder and speed is not None:
        return [WatchedMachine(ReplayFeed(folder, host, speed=speed), folder) for host in folder.load().hosts], str
    if folder:
        return machines_of(folder, settings.in_force().config.thresholds), str
    from pulsetrain.cli.messages import why_no_gpu
    from pulsetrain.watching.options import WatchOptions
    from pulsetrain.watching.session import Session

    session = Session(
        WatchOptions(
            sources=machine.all_by_default(),
            interval_seconds=interval,
            thresholds=settings.in_force().config.thresholds,
        )
    )
    session.open()
    return [WatchedMachine(LocalFeed(session), local=True)], lambda: f"no GPU: {why_no_gpu(session.unavailable)}"


def _going_on(home: Home) -> RunFolder | None:
    """The newest run that this machine watches now."""
    for folder in list(home.runs())[: -MOST_RUNS - 1 : -1]:
        try:
            run = folder.load()
        except PulsetrainError:
            continue
        if run.status == "running" and host_name() in run.hosts:
            return folder
    return None


def _is_terminal() -> bool:
    """Whether there is a screen to draw on, and keys to read. Textual draws on standard error."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return os.environ.get("TERM", "dumb") != "dumb" and all(stream.isatty() for stream in streams)


def _shows_braille() -> bool:
    """The console of Linux has no braille, nor has a terminal that is not in UTF-8."""
    return (sys.stdout.encoding or "").lower().startswith("utf") and os.environ.get("TERM") != "linux"


def _dashboard(scene: "Scene", home: Home, colors: dict[str, str]) -> None:
    from pulsetrain.views.terminal.once import LEAVE, paint_first

    log = logging.getLogger("pulsetrain")
    log.addHandler(logging.NullHandler())  # events are on the screen, which log lines would tear
    log.propagate = False
    paint_first(scene, colors, sys.stderr)
    try:
        from pulsetrain.views.terminal.app import Dashboard
    except BaseException:
        sys.stderr.write(LEAVE)
        raise
    Dashboard(scene, home, colors).run()


def _plain(scene: "Scene") -> None:
    """What `watch` shows, for a terminal that can only print."""
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.views.printers import TablePrinter

    stop = stop_on_signals()
    for machine in scene.machines:
        machine.feed.start(
            TablePrinter(
                sys.stdout,
                machine.title,
                stop.set,
                scene.thresholds,
                lambda: scene.missing().removeprefix("no GPU: "),
            )
        )
    stop.wait()
    for machine in scene.machines:
        machine.feed.stop()

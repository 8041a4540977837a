"""`pulsetrain top`: this machine, a run, or other machines, as a dashboard in the terminal."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, RunFolder, host_name
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.views.terminal.look import Machine, Scene

MOST_RUNS = 200
"""So many of the newest runs are looked at for one that goes on."""


@click.command(short_help="Keep a machine or a run in view, in the terminal.")
@click.argument("what", nargs=-1, metavar="[RUN]")
@click.option(
    "--connect",
    multiple=True,
    metavar="HOST:PORT",
    help="Show other machines, on which a pulsetrain serves /metrics. More of them may follow.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="TIMES",
    help="Play a run as if it were happening.",
)
@click.option("--once", is_flag=True, help="Print one frame as text.")
@click.option(
    "--palette",
    type=click.Choice(["terminal", "okabe-ito", "cividis", "plain"]),
    default="terminal",
    show_default=True,
    envvar="PULSETRAIN_PALETTE",
    help="Colours. NO_COLOR=1 means plain.",
)
@options.interval
@options.machine
@options.directory
def top(
    what: tuple[str, ...],
    connect: tuple[str, ...],
    speed: float | None,
    once: bool,
    palette: str,
    interval: float,
    machine: Options,
    directory: str | None,
) -> None:
    """Show a run, this machine, or others, live. Keys are named in the last line; ? tells all of them.

    RUN is an id or the start of one, a name, a path, or `last`. Without one, a run that this machine watches now
    is found by itself and followed in its files; if there is none, this machine is read.

    \b
        pulsetrain top
        pulsetrain top last --once
        pulsetrain top --connect gpu01:9400 gpu02:9400
    """
    from pulsetrain import config
    from pulsetrain.views.terminal import palette as palettes
    from pulsetrain.views.terminal.look import WINDOWS, Look, Scene

    if not connect and len(what) > 1:
        raise click.UsageError("one run at a time; `pulsetrain compare` shows several")
    home = Home.find(directory)
    machines, missing = _machines(what, connect, speed, home, machine, interval)
    of_run = any(one.folder for one in machines)
    over = of_run and not any(one.feed.live for one in machines)
    scene = Scene(
        machines,
        Look(view="run" if of_run else "machine", window=WINDOWS[-1] if over and speed is None else WINDOWS[1]),
        config.load(config.find()).thresholds,
        braille=_shows_braille(),
        gpus=frozenset(filter(None, (machine.gpus or "").replace("all", "").split(","))),
        missing=missing,
    )
    colours = palettes.chosen(palette)
    if not once and not _is_terminal():
        _plain(scene)
        return
    for one in machines:
        one.start()
    if once:
        from pulsetrain.views.terminal.once import print_once

        print_once(scene, colours)
    else:
        _dashboard(scene, home, colours)


def _machines(
    what: Sequence[str], connect: Sequence[str], speed: float | None, home: Home, machine: Options, interval: float
) -> "tuple[list[Machine], str]":
    """What is to be shown; and why this machine has no GPU, if it has none."""
    from pulsetrain.views.terminal.feeds import OwnMachine, RemoteMachine, ReplayedRun
    from pulsetrain.views.terminal.look import Machine, machines_of

    if connect:
        return [Machine(RemoteMachine(address, interval)) for address in (*connect, *what)], ""
    folder = home.resolve(what[0]) if what else None if machine.simulate else _going_on(home)
    if folder and speed is not None:
        return [Machine(ReplayedRun(folder, host, speed=speed), folder) for host in folder.load().hosts], ""
    if folder:
        return machines_of(folder), ""
    from pulsetrain.cli.session import Session, why_no_gpu
    from pulsetrain.sources import open_sources

    opened = open_sources(machine.all_by_default())
    session = Session(opened, [], interval, None)
    return [Machine(OwnMachine(session), local=True)], f"no GPU: {why_no_gpu(opened)}"


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


def _dashboard(scene: "Scene", home: Home, colours: dict[str, str]) -> None:
    from pulsetrain.views.terminal.once import LEAVE, paint_first

    log = logging.getLogger("pulsetrain")
    log.addHandler(logging.NullHandler())  # events stand on the screen, which log lines would tear
    log.propagate = False
    paint_first(scene, colours, sys.stderr)
    try:
        from pulsetrain.views.terminal.app import Dashboard
    except BaseException:
        sys.stderr.write(LEAVE)
        raise
    Dashboard(scene, home, colours).run()


def _plain(scene: "Scene") -> None:
    """What `watch` shows, for a terminal that can only print."""
    from pulsetrain.views.screen import Screen

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    for machine in scene.machines:
        machine.feed.start(Screen(sys.stdout, machine.title, stop.set, scene.missing.removeprefix("no GPU: ")))
    stop.wait()
    for machine in scene.machines:
        machine.feed.stop()

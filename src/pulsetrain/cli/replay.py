"""`pulsetrain replay`: a recorded run as if it were happening."""

import math
import sys

import click

from pulsetrain.cli import options
from pulsetrain.errors import UsageError
from pulsetrain.outputs import OutputOptions
from pulsetrain.runs.folder import Run


@click.command(short_help="Replay a recorded run as if it were live.")
@options.run
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    metavar="TIMES",
    help="Speed factor; inf is as fast as possible.",
)
@click.option(
    "--from",
    "start",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="SECONDS",
    help="Start this far into the run.",
)
@click.option("--host", help="For a run on several hosts: which one to show. [default: the first]")
@options.directory
@options.prometheus
@options.json_output
@options.logs
def replay(
    run: str,
    speed: float,
    start: float,
    host: str | None,
    directory: str | None,
    outputs: OutputOptions,
    as_json: bool,
) -> None:
    """Show a recorded run as `watch` would have shown it, with its original times. Press Ctrl-C to stop.

    RUN is an id or the start of one, a name, a path, or `last`. With --json, prints one line per reading.

    \b
        pulsetrain replay last --speed 20
    """
    from pulsetrain import settings
    from pulsetrain.cli import logs
    from pulsetrain.cli.messages import to_terminal
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.outputs import Origin, open_outputs
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import Home
    from pulsetrain.runs.replay import Replay
    from pulsetrain.sampler import Consumer
    from pulsetrain.views.printers import JsonPrinter, TablePrinter

    folder = Home.find(directory).resolve(run)
    about = folder.load()
    shown = _host(about, host)
    if host is None and len(about.hosts) > 1:
        to_terminal([f"{about.id} ran on {', '.join(about.hosts)}: showing {shown}; --host NAME shows another"])
    stop = stop_on_signals()
    consumers: list[Consumer] = []
    opened = open_outputs(outputs, about.interval_seconds)
    for output in opened:
        output.start(Origin(shown, about))
        if output.notice:
            to_terminal([output.notice])
        consumers.append(output)
    if as_json:
        consumers.append(JsonPrinter(sys.stdout, shown, stop.set))
    else:
        pace = "" if math.isinf(speed) else f", {speed:g}x"
        title, thresholds = f"{shown} (replay of {about.id}{pace})", settings.in_force().config.thresholds
        consumers.append(TablePrinter(sys.stdout, title, stop.set, thresholds, lambda: "none recorded"))
    if as_json or not (sys.stdout.isatty() and sys.stderr.isatty()):
        logs.configure(run_id=about.id)
        consumers.append(logs.log_events)  # else they are on the screen, which log lines would tear
    database = Database([folder])
    try:
        snapshots = Replay(database, shown, speed=speed, start=start).run(consumers, stop)
    finally:
        database.close()
        for output in opened:
            output.close()
    if not snapshots and not stop.is_set():
        raise UsageError(f"{about.id} has no records on {shown} after {start:g} s.")


def _host(run: Run, wanted: str | None) -> str:
    """The host to show."""
    if not run.hosts:
        raise UsageError(f"{run.id} has no hosts, so there is nothing to replay.")
    if wanted is None:
        return next(iter(run.hosts))
    if wanted not in run.hosts:
        raise UsageError(f"{run.id} did not run on {wanted}.", hint=f"It ran on {', '.join(run.hosts)}.")
    return wanted

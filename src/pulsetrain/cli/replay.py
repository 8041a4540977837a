"""`pulsetrain replay`: a recorded run as if it were happening."""

import math
import signal
import sys
import threading

import click

from pulsetrain.cli import options
from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import Run


@click.command(short_help="Show a recorded run as if it were happening.")
@click.argument("run", default="last")
@click.option(
    "--speed", type=float, default=1.0, show_default=True, metavar="TIMES", help="How much faster than it was; or inf."
)
@click.option(
    "--from", "start", type=click.FloatRange(min=0.0), default=0.0, metavar="SECONDS", help="Begin so far into the run."
)
@click.option("--host", help="Of a run on several hosts: the one to show. [default: the first]")
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
    exporting: options.Exporting,
    as_json: bool,
) -> None:
    """Show a recorded run as `watch` would have shown it, with the times at which it happened. Ctrl-C ends it.

    RUN is an id or the start of one, a name, a path, or `last`. With --json, one line for each reading.

    \b
        pulsetrain replay last --speed 20
    """
    from pulsetrain.cli import logs
    from pulsetrain.cli.session import to_terminal
    from pulsetrain.outputs.families import facts_of
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import Home
    from pulsetrain.runs.replay import Replay
    from pulsetrain.sampler import Consumer
    from pulsetrain.views.screen import JsonLines, Screen

    folder = Home.find(directory).resolve(run)
    about = folder.load()
    shown = _host(about, host)
    if host is None and len(about.hosts) > 1:
        to_terminal([f"{about.id} ran on {', '.join(about.hosts)}: this is {shown}; --host NAME shows another"])
    stop = threading.Event()
    consumers: list[Consumer] = []
    if exporter := exporting.listen(about.interval_seconds):
        exporter.start({"host": shown, "run": about.id}, facts_of(about))
        to_terminal([f"metrics for Prometheus at {exporter.url}/metrics"])
        consumers.append(exporter)
    if as_json:
        consumers.append(JsonLines(sys.stdout, shown, stop.set))
    else:
        pace = "" if math.isinf(speed) else f", {speed:g}x"
        consumers.append(Screen(sys.stdout, f"{shown} (replay of {about.id}{pace})", stop.set, "none was recorded"))
    if as_json or not (sys.stdout.isatty() and sys.stderr.isatty()):
        logs.configure(run_id=about.id)
        consumers.append(logs.log_events)  # else they stand on the screen, which log lines would tear
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    database = Database([folder])
    try:
        snapshots = Replay(database, shown, speed=speed, start=start).run(consumers, stop)
    finally:
        database.close()
        if exporter:
            exporter.close()
    if not snapshots and not stop.is_set():
        raise UsageError(f"{about.id} has nothing recorded on {shown} from {start:g} s on.")


def _host(run: Run, wanted: str | None) -> str:
    """The host to show."""
    if not run.hosts:
        raise UsageError(f"{run.id} names no host: there is nothing to replay.")
    if wanted is None:
        return next(iter(run.hosts))
    if wanted not in run.hosts:
        raise UsageError(f"{run.id} did not run on {wanted}.", hint=f"It ran on {', '.join(run.hosts)}.")
    return wanted

"""`pulsetrain sample`: this machine, once."""

import sys
import time

import click

from pulsetrain.cli import options
from pulsetrain.sources import Options

SETTLE_SECONDS = 0.25
"""CPU use is a difference between two readings: this is the least time between them that means anything."""


@click.command(short_help="Show this machine once.")
@options.machine
@options.json_output
@options.logs
def sample(machine: Options, as_json: bool) -> None:
    """Show GPUs, the processes on them, and the host, once."""
    from pulsetrain import settings
    from pulsetrain.cli import logs
    from pulsetrain.cli.messages import warn_of_broken, why_no_gpu
    from pulsetrain.live import Live
    from pulsetrain.runs.folder import host_name
    from pulsetrain.sampler import Sampler
    from pulsetrain.sources.opening import PATIENCE_SECONDS, open_sources
    from pulsetrain.views.json import snapshot_json
    from pulsetrain.views.machine import machine_lines
    from pulsetrain.views.text import Style

    opened = open_sources(machine.all_by_default(), PATIENCE_SECONDS)
    if as_json:
        warn_of_broken(opened.unavailable)
    sampler = Sampler(opened.sources, interval=SETTLE_SECONDS)
    live = Live()
    for number in range(2):  # some values are differences between two readings
        time.sleep(SETTLE_SECONDS * number)
        snapshot = sampler.once(PATIENCE_SECONDS)
        live(snapshot)
        logs.log_events(snapshot)
    if as_json:
        click.echo(snapshot_json(live, host_name()))
    else:
        thresholds, missing = settings.in_force().config.thresholds, why_no_gpu(opened.unavailable)
        click.echo("\n".join(machine_lines(live, host_name(), Style(sys.stdout), thresholds, missing)))
    sampler.stop()

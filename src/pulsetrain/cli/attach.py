"""`pulsetrain attach`: watch and record a process that already runs, until it ends. `pulsetrain.init` calls it."""

import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import SCHEMA
from pulsetrain.watching.options import WatchOptions

if TYPE_CHECKING:
    from pulsetrain.watching.process import Outcome
    from pulsetrain.watching.recording import RunRecording

log = logging.getLogger(__name__)


@click.command(short_help="Watch a running process.")
@click.argument("pid", type=int)
@options.watching
@options.quiet
@options.json_output
@click.option(
    "--for-init",
    type=click.Choice(["text", "html", "none"]),
    hidden=True,
    help="The process itself stops the watching, with SIGTERM, and wants this summary as a line of JSON.",
)
@options.logs
def attach(pid: int, watching: WatchOptions, quiet: bool, as_json: bool, for_init: str | None) -> None:
    """Watch and record the process PID and its machine, until the process ends or you press Ctrl-C.

    The process is not disturbed. What it used before is not counted. If you press Ctrl-C while it is still running, the
    run ends as `detached`. With --json, prints a line with the run's id and folder first, and its report as one line at
    the end.
    """
    from pulsetrain.cli import logs
    from pulsetrain.cli.messages import end_lines, introduce, summary_json, summary_page, to_terminal, warn_of_broken
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.watching.process import WatchedProcess

    if for_init:
        watching = replace(watching, config=_config(), to=_usable(watching.to))
    watched = WatchedProcess(pid, watching)
    recording = watched.session.recording
    assert recording
    warn_of_broken(watched.session.unavailable)
    introduce(watched.session, quiet=quiet)
    watched.session.add(logs.log_events)
    stop = stop_on_signals()
    if for_init:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which may well go on after it
    if as_json:
        click.echo(_about(recording))
    if for_init:
        watched.run(stop, stopped=lambda: _said() or ("detached", None), ended=lambda: _said() or ("died", None))
        if stop.is_set() and for_init != "none":
            summary = summary_page(recording) if for_init == "html" else "\n".join(end_lines(recording))
            click.echo(msgspec.json.encode(summary))
    else:
        watched.run(stop)
    if as_json and not quiet:
        click.echo(summary_json(recording))
    elif not quiet:
        to_terminal(end_lines(recording))


def _config() -> dict[str, Any]:
    """What the program of `pulsetrain.init` says of its settings: the first line on our standard input."""
    with open(0, "rb", buffering=0, closefd=False) as file:  # without reading ahead: how it ended comes later
        return msgspec.json.decode(file.readline() or b"{}", type=dict[str, Any])


def _usable(places: Sequence[str]) -> list[str]:
    """Where the run of `pulsetrain.init` is sent. A place that cannot be used is a warning: the run is recorded."""
    from pulsetrain.watching.destinations import check_place

    usable = []
    for place in places:
        try:
            check_place(place)
            usable.append(place)
        except PulsetrainError as error:
            error.still = "The run is recorded here, but not sent there."
            log.warning("%s", error)
    return usable


def _said() -> "Outcome | None":
    """How the run of `pulsetrain.init` ended: its program says so on our standard input, unless it was killed."""
    try:
        os.set_blocking(0, False)
        status, *code = os.read(0, 100).decode().split()
    except (OSError, ValueError):
        return None
    return status, int(code[0]) if code else None


def _about(recording: "RunRecording") -> bytes:
    """What `pulsetrain.init` needs to know of the run, as JSON."""
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "id": recording.run.id,
            "folder": str(recording.folder.path),
            "training_folder": str(recording.host_folder),
            "stamp": f"{recording.start:%Y%m%d_%H%M%S}",
            "started": recording.started,
            "private": recording.run.private,
        }
    )

"""`pulsetrain watch`: this machine, live, until stopped."""

import sys
from dataclasses import replace

import click
from click.core import ParameterSource

from pulsetrain.cli import options
from pulsetrain.watching.options import WatchOptions


@click.command(short_help="Watch this machine until stopped.")
@click.option("--record", is_flag=True, help="Record into a run folder; implied by --to.")
@options.watching
@click.option(
    "--runs",
    multiple=True,
    envvar="PULSETRAIN_RUNS",
    metavar="FOLDER",
    help="Folders with runs of this machine, for Prometheus; may be patterns, and may be repeated. "
    "[default: --dir; for root, also those of all users]",
)
@options.json_output
@options.quiet
@options.logs
def watch(record: bool, watching: WatchOptions, runs: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Show GPUs, the processes on them, and the host, live. Press Ctrl-C to stop.

    With --json, prints one line per reading. With --prometheus-port, it is the agent of a node: Prometheus also sees
    all runs on this machine, whoever started them.
    """
    from pulsetrain.cli import logs
    from pulsetrain.cli.messages import introduce, to_terminal, warn_of_broken, why_no_gpu
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.runs.folder import host_name
    from pulsetrain.runs.node import default_folders
    from pulsetrain.views.printers import JsonPrinter, TablePrinter
    from pulsetrain.watching.recording import claim_run
    from pulsetrain.watching.session import Session

    if watching.outputs.prometheus_port is not None:
        folders = runs or default_folders(watching.directory)
        watching = replace(watching, outputs=replace(watching.outputs, run_folders=folders))
    name = watching.name or "watch"
    session = Session(replace(watching, sources=watching.sources.all_by_default(), name=name))
    record = record or _is_to_be_sent(watching)
    session.open(claim_run(session.options) if record else None)
    if as_json or quiet:
        warn_of_broken(session.unavailable)
    introduce(session, quiet=quiet)
    stop = stop_on_signals()
    if as_json:
        session.add(JsonPrinter(sys.stdout, host_name(), stop.set))
    elif not quiet:
        session.add(
            TablePrinter(
                sys.stdout, host_name(), stop.set, watching.thresholds, lambda: why_no_gpu(session.unavailable)
            )
        )
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or quiet or as_json:
        session.add(logs.log_events)  # else they are on the screen, which log lines would tear
    session.start()
    stop.wait()
    session.stop()
    session.finish()
    if session.recording and not quiet:
        to_terminal([f"recorded in {session.recording.folder.path}"])


def _is_to_be_sent(watching: WatchOptions) -> bool:
    """Whether --to was given. A place from the settings is for the runs of this user, and makes none of its own."""
    source = click.get_current_context().get_parameter_source("send_to")
    return bool(watching.to) and source is ParameterSource.COMMANDLINE

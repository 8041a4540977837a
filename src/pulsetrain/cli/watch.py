"""`pulsetrain watch`: this machine, live, until stopped."""

import signal
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.outputs.push.target import Target


@click.command(short_help="Watch this machine until stopped.")
@click.option("--record", is_flag=True, help="Keep what is seen in a run folder.")
@options.recording
@options.interval
@options.machine
@options.account
@options.prometheus
@click.option(
    "--runs",
    multiple=True,
    envvar="PULSETRAIN_RUNS",
    metavar="FOLDER",
    help="Where runs of this machine are found for Prometheus; may be repeated, and be a pattern. "
    "[default: --dir, and for root those of all users too]",
)
@options.push
@options.json_output
@options.quiet
@options.logs
def watch(
    record: bool,
    name: str | None,
    tag: dict[str, str],
    directory: str | None,
    interval: float,
    machine: Options,
    account: options.Accounting,
    exporting: options.Exporting,
    runs: tuple[str, ...],
    push: "list[Target]",
    as_json: bool,
    quiet: bool,
) -> None:
    """Show GPUs, the processes on them, and the host, live. Ctrl-C ends it.

    With --json, one line for each reading. With --prometheus-port it is the agent of a node: Prometheus sees all runs
    of this machine too, whoever started them.
    """
    from pulsetrain.cli import logs
    from pulsetrain.cli.session import Recording, Session, to_terminal, warn_of_broken, why_no_gpu
    from pulsetrain.runs.folder import Home, host_name
    from pulsetrain.sources import open_sources
    from pulsetrain.views.screen import JsonLines, Screen

    exporter = exporting.listen(interval)
    opened = open_sources(machine.all_by_default())
    if as_json or quiet:
        warn_of_broken(opened)
    recording = None
    if record:
        folder = Home.find(directory).create(name or "watch", datetime.now(UTC))
        recording = Recording(folder, name or "watch", [], interval, tag, account.of_new())
        logs.configure(run_id=recording.run.id)
    session = Session(opened, [], interval, recording)
    if exporter:
        from pulsetrain.runs.node import Node, default_folders

        own = recording.run.id if recording else None
        node = Node(runs or default_folders(directory), exporter.follow, but=own)
        session.export(exporter, quiet=quiet, node=node)
    session.push(push, exporting.names)
    stop = threading.Event()
    if as_json:
        session.add(JsonLines(sys.stdout, host_name(), stop.set))
    elif not quiet:
        session.add(Screen(sys.stdout, host_name(), stop.set, why_no_gpu(opened)))
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or quiet or as_json:
        session.add(logs.log_events)  # else they stand on the screen, which log lines would tear
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    session.start()
    stop.wait()
    session.stop()
    if recording:
        recording.finish("finished", None)
        if not quiet:
            to_terminal([f"recorded in {recording.folder.path}"])
    session.send_rest()

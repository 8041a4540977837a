"""`pulsetrain attach`: watch and record a process that already runs, until it ends. `pulsetrain.init` calls it."""

import signal
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.outputs.push.target import Target

LOOK_SECONDS = 0.5
"""How often to see whether the process still lives."""


@click.command(short_help="Watch a process that already runs.")
@click.argument("pid", type=int)
@options.recording
@options.interval
@options.machine
@options.account
@options.prometheus
@options.push
@options.quiet
@options.json_output
@options.logs
def attach(
    pid: int,
    name: str | None,
    tag: dict[str, str],
    directory: str | None,
    interval: float,
    machine: Options,
    account: options.Accounting,
    exporting: options.Exporting,
    push: "list[Target]",
    quiet: bool,
    as_json: bool,
) -> int:
    """Watch the process PID and its machine into a run folder, until it ends or Ctrl-C. It is not disturbed.

    With --json, first a line about the run: its id and folder.
    """
    import msgspec
    import psutil

    from pulsetrain.cli import logs
    from pulsetrain.cli.session import Recording, Session, default_name, end_lines, to_terminal, warn_of_broken
    from pulsetrain.errors import UsageError
    from pulsetrain.runs.folder import Home
    from pulsetrain.sources import open_sources
    from pulsetrain.sources.job import Job

    try:
        process = psutil.Process(pid)
        command = process.cmdline()
    except psutil.Error:
        raise UsageError(f"there is no process {pid} that you may watch.") from None
    opened = open_sources(machine)
    exporter = exporting.listen(interval)
    warn_of_broken(opened)
    run_name = name or default_name(command)
    folder = Home.find(directory).create(run_name, datetime.now(UTC))
    recording = Recording(folder, run_name, command, interval, tag, account.of_new())
    logs.configure(run_id=recording.run.id)
    job = Job()
    job.watch(pid)
    session = Session(opened, [job], interval, recording)
    session.export(exporter, quiet=quiet)
    session.push(push, exporting.names)
    session.add(logs.log_events)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    session.start()
    if as_json:
        introduction = {
            "id": recording.run.id,
            "folder": str(recording.folder.path),
            "training_folder": str(recording.host_folder),
            "stamp": f"{recording.start:%Y%m%d_%H%M%S}",
            "started": recording.started,
        }
        click.echo(msgspec.json.encode(introduction))
    while not stop.wait(LOOK_SECONDS) and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        pass
    session.stop()
    recording.finish("finished", None)
    session.send_rest()
    if not quiet:
        to_terminal(end_lines(recording))
    return 0

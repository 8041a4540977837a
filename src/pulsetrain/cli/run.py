"""`pulsetrain run`: start a command, watch it, and end with a short summary."""

import os
import sys

import click

from pulsetrain.cli import options
from pulsetrain.sources import Options

OOM_HINT = "SIGKILL often comes from the kernel when memory runs out: see the job's memory peak, and `dmesg`."


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Run a command and watch it.")
@options.recording
@options.interval
@options.machine
@options.quiet
@options.logs
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    name: str | None,
    tag: dict[str, str],
    directory: str | None,
    interval: float,
    machine: Options,
    quiet: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND and watch it: GPUs, host and the command's own processes go into a run folder.

    The command's output, signals and exit code are its own. Put -- before it:

        pulsetrain run --name resnet50 -- python train.py --epochs 90
    """
    from pulsetrain.cli import child, logs
    from pulsetrain.cli.session import Recording, Session, default_name, to_terminal, warn_of_broken
    from pulsetrain.runs.folder import Home
    from pulsetrain.sources import open_sources
    from pulsetrain.sources.job import Job
    from pulsetrain.views.summary import summary_lines
    from pulsetrain.views.text import Style

    child.check(command)
    watched = child.Child(command)
    opened = open_sources(machine)
    warn_of_broken(opened)
    recording = Recording(Home.find(directory), name or default_name(command), command, interval, tag)
    logs.configure(run_id=recording.run.id)
    job = Job()
    session = Session(opened, [job], interval, recording)
    session.add(logs.log_events)
    session.start()
    try:
        ended = watched.run({**os.environ, "PULSETRAIN_RUN_ID": recording.run.id}, job.watch)
    except child.CannotStart as error:
        session.stop()
        recording.finish("failed", error.exit_code)
        raise
    session.stop()
    summary = recording.finish(ended.status, ended.exit_code)
    if not quiet:
        lines = summary_lines(recording.run, summary, str(recording.folder.path), Style(sys.stderr))
        if ended.signal == "SIGKILL":
            lines.append(f"hint    {OOM_HINT}")
        to_terminal(["", *lines])
    return ended.exit_code

"""`pulsetrain run`: start a command, watch it, and end with a short summary."""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError
from pulsetrain.sources import Options

if TYPE_CHECKING:
    from pulsetrain.cli.child import Child
    from pulsetrain.outputs.push.target import Target
    from pulsetrain.runs.folder import RunFolder

JOB_ID_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
OOM_HINT = "SIGKILL often comes from the kernel when memory runs out: see the job's memory peak, and `dmesg`."


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Run a command and watch it.")
@options.recording
@options.interval
@options.machine
@options.account
@options.prometheus
@options.push
@options.quiet
@click.option("--no-instrument", is_flag=True, help="Leave the command's training loop alone.")
@click.option("--run-id", metavar="ID", help="One run for all hosts that share the folder and say the same id.")
@options.logs
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    name: str | None,
    tag: dict[str, str],
    directory: str | None,
    interval: float,
    machine: Options,
    account: options.Accounting,
    exporting: options.Exporting,
    push: "list[Target]",
    quiet: bool,
    no_instrument: bool,
    run_id: str | None,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND and watch it: GPUs, host, its processes and its training loop go into a run folder.

    The command's output, signals and exit code are its own. Put -- before it:

        pulsetrain run --name resnet50 -- python train.py --epochs 90
    """
    from pulsetrain.cli import child, instrument, logs
    from pulsetrain.cli.session import Recording, Session, default_name, end_lines, to_terminal, warn_of_broken
    from pulsetrain.runs.folder import Home, host_name
    from pulsetrain.sources import open_sources
    from pulsetrain.sources.job import Job
    from pulsetrain.training import process

    child.check(command)
    watched = child.Child(command)
    job_id = run_id or next(filter(None, map(os.environ.get, JOB_ID_VARIABLES)), None)
    opened = open_sources(machine)
    run_name, start = name or default_name(command), datetime.now(UTC)
    folder, new = Home.find(directory).open(run_name, start, job_id, process.one_of_many())
    host = folder.load().hosts.get(host_name()) if not new else None
    if host is not None:  # another rank's pulsetrain watches this machine already
        opened.close()
        return _follow(watched, folder, host.started, not no_instrument)
    try:
        exporter = exporting.listen(interval)
    except PulsetrainError:
        if new:
            folder.remove()
        raise
    warn_of_broken(opened)
    recording = Recording(folder, run_name, command, interval, tag, account.of_new(), new=new)
    logs.configure(run_id=recording.run.id)
    job = Job()
    session = Session(opened, [job], interval, recording)
    session.export(exporter, quiet=quiet)
    session.push(push, exporting.names)
    session.add(logs.log_events)
    session.start()
    environment = instrument.environment(recording.folder, recording.start, recording.started, not no_instrument)
    try:
        ended = watched.run(environment, job.watch)
    except child.CannotStart as error:
        session.stop()
        recording.finish("failed", error.exit_code)
        session.send_rest()
        raise
    session.stop()
    recording.finish(ended.status, ended.exit_code)
    session.send_rest()
    if not quiet:
        lines = end_lines(recording)
        if not recording.training.seen:
            lines.append(f"no training metrics: {instrument.why_nothing(command, not no_instrument)}")
        if ended.signal == "SIGKILL":
            lines.append(f"hint    {OOM_HINT}")
        to_terminal(["", *lines])
    return ended.exit_code


def _follow(watched: "Child", folder: "RunFolder", started: float, instrumented: bool) -> int:
    """Run one of several ranks of a host: its loop is recorded, the machine is watched by the first."""
    from pulsetrain.cli import instrument

    environment = instrument.environment(folder, folder.load().start, started, instrumented)
    return watched.run(environment, lambda pid: None).exit_code

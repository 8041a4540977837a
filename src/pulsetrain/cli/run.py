"""`pulsetrain run`: start a command, watch it, and end with a short summary."""

import os
import sys

import click

from pulsetrain.cli import options
from pulsetrain.sources import Options

JOB_ID_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
OOM_HINT = "SIGKILL often comes from the kernel when memory runs out: see the job's memory peak, and `dmesg`."


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Run a command and watch it.")
@options.recording
@options.interval
@options.machine
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
    job_id = run_id or next(filter(None, map(os.environ.get, JOB_ID_VARIABLES)), None)
    recording = Recording(Home.find(directory), name or default_name(command), command, interval, tag, job_id)
    logs.configure(run_id=recording.run.id)
    job = Job()
    session = Session(opened, [job], interval, recording)
    session.add(logs.log_events)
    started = session.start()
    base = {**os.environ, "PULSETRAIN_RUN_ID": recording.run.id}
    environment = instrument.environment(base, recording.host_folder, recording.start, started, not no_instrument)
    try:
        ended = watched.run(environment, job.watch)
    except child.CannotStart as error:
        session.stop()
        recording.finish("failed", error.exit_code)
        raise
    session.stop()
    summary = recording.finish(ended.status, ended.exit_code)
    if not quiet:
        lines = summary_lines(recording.run, summary, str(recording.folder.path), Style(sys.stderr))
        if summary.training is None:
            lines.append(f"no training metrics: {instrument.why_nothing(command, not no_instrument)}")
        if ended.signal == "SIGKILL":
            lines.append(f"hint    {OOM_HINT}")
        to_terminal(["", *lines])
    return ended.exit_code

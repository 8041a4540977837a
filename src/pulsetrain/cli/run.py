"""`pulsetrain run`: start a command, watch it, and end with a short summary."""

from collections.abc import Sequence
from contextlib import nullcontext

import click

from pulsetrain.cli import options
from pulsetrain.watching.options import WatchOptions

OOM_HINT = "The kernel often sends SIGKILL when memory runs out: check the job's memory peak and `dmesg`."


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Run a command and watch it.")
@options.watching
@options.quiet
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report at the end as one line of JSON on standard error."
)
@click.option("--serve", is_flag=True, help="Show the run in the browser while it runs; prints a link.")
@click.option("--no-instrument", is_flag=True, help="Do not instrument the command's training loop.")
@click.option("--run-id", metavar="ID", help="Hosts that share the runs folder and use the same id form one run.")
@click.option(
    "--slurm-comment",
    is_flag=True,
    envvar="PULSETRAIN_SLURM_COMMENT",
    help="Set the comment of the Slurm job to a one-line summary of the run.",
)
@options.logs
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    watching: WatchOptions,
    quiet: bool,
    as_json: bool,
    serve: bool,
    no_instrument: bool,
    run_id: str | None,
    slurm_comment: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND and record its GPUs, host, processes and training loop in a run folder.

    The command keeps its own output, signals and exit code. Put -- before it:

        pulsetrain run --name resnet50 -- python train.py --epochs 90
    """
    return run_watched(
        command,
        watching,
        quiet=quiet,
        as_json=as_json,
        serve=serve,
        job_id=run_id,
        instrumented=not no_instrument,
        slurm_comment=slurm_comment,
    )


def run_watched(
    command: Sequence[str],
    watching: WatchOptions,
    *,
    quiet: bool = False,
    as_json: bool = False,
    serve: bool = False,
    job_id: str | None = None,
    instrumented: bool = True,
    slurm_comment: bool = False,
) -> int:
    """Run a command, watched, and end with its summary. The exit code is the command's own."""
    from pulsetrain.cli import logs
    from pulsetrain.cli.messages import (
        comment_job,
        end_lines,
        introduce,
        joined_lines,
        summary_json,
        to_terminal,
        warn_of_broken,
    )
    from pulsetrain.cli.serve import serve_beside
    from pulsetrain.watching.command import WatchedCommand
    from pulsetrain.watching.instrument import why_nothing

    with WatchedCommand(command, watching, job_id=job_id, instrumented=instrumented) as watched:
        session = watched.session
        if session is None:  # another rank's pulsetrain watches this machine already
            return watched.run().exit_code
        warn_of_broken(session.unavailable)
        introduce(session, quiet=quiet)
        session.add(logs.log_events)
        with serve_beside(session) if serve else nullcontext():
            ended = watched.run()
        if session.recording and as_json:
            to_terminal([summary_json(session.recording)])
        elif session.recording and not quiet:
            lines = end_lines(session.recording) if session.recording.writes_run else joined_lines(session.recording)
            if not session.recording.training.seen:
                lines.append(f"no training metrics: {why_nothing(command, instrumented)}")
            if ended.signal == "SIGKILL":
                lines.append(f"hint    {OOM_HINT}")
            to_terminal(["", *lines])
        if session.recording and slurm_comment and session.recording.writes_run:
            comment_job(session.recording)
        return ended.exit_code

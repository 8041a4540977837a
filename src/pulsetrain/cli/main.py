"""`pulsetrain`: finds the command, and turns every error of ours into text and an exit code.

Exit codes: 0 well, 1 an error, 2 wrong usage, 130 interrupted. `run` gives its command's own, 126 when it cannot be
started and 127 when it does not exist.
"""

import io
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import click

from pulsetrain import __version__
from pulsetrain.errors import PulsetrainError
from pulsetrain.training.masking import masked_command
from pulsetrain.untrusted import printable

COMMANDS = {
    "run": "Run a command and watch it.",
    "attach": "Watch a running process.",
    "watch": "Watch this machine until stopped.",
    "top": "Live dashboard of a machine or a run.",
    "serve": "Show runs and this machine in the browser.",
    "sample": "Show this machine once.",
    "runs": "List, tag, remove, prune and seal recorded runs.",
    "report": "Show what a recorded run did, used and cost.",
    "alerts": "List alerts, and silence them.",
    "notify": "Test notifications to phones, chats and mailboxes.",
    "compare": "Compare runs, and explain the differences.",
    "replay": "Replay a recorded run as if it were live.",
    "query": "Query recorded runs with SQL.",
    "fetch": "Fetch runs that other machines send.",
    "import": "Import old runs from TensorBoard, MLflow or Weights & Biases.",
    "export": "Write a recorded run as CSV, Parquet or JSON lines, or send it to a server.",
    "bench": "Run a command or a container as a benchmark; gate its results.",
    "stack": "Set up Prometheus, Grafana and alerts.",
    "cloud": "Create GPU machines and clusters in Google Cloud, and train there.",
    "cache": "Cache dataset shards close to the machines that train on them.",
    "doctor": "Check what works on this machine, and how to fix the rest.",
    "demo": "Take a tour on simulated GPUs.",
}
"""Each is a function in a module, both of this name (`import_` for `import`). Help is here: --help imports none."""


TRUST_HINT = "move it to ~/.pulsetrain/pulsetrain.toml, or trust the file: pulsetrain --config pulsetrain.toml ..."


class Commands(click.Group):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(f"pulsetrain.cli.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command: {args[0]}. {_meant(args)}")
        if not ctx.resilient_parsing and args[:1] != ["doctor"]:  # which checks the settings itself
            _apply_settings(ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _meant(args: list[str]) -> str:
    """A command of ours with a similar name; else the user's own, which wants to be run."""
    from difflib import get_close_matches

    similar = get_close_matches(args[0], COMMANDS)
    if similar and not shutil.which(args[0]):
        return f"Did you mean {' or '.join(similar)}?"
    return f"To watch a command: pulsetrain run -- {shlex.join(masked_command(args))}"


def _apply_settings(ctx: click.Context) -> None:
    """Make the settings defaults of all options, and say what of them is ignored."""
    from pulsetrain import settings

    found = settings.in_force()
    ctx.default_map = dict.fromkeys(COMMANDS, found.config.defaults())
    for ignored in found.ignored:
        click.echo(f"pulsetrain: warning: {ignored}\n  hint: {TRUST_HINT}", err=True)


def _use_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """For whatever asks for settings from here on, the command that is run included."""
    if value is not None:
        os.environ["PULSETRAIN_CONFIG"] = str(Path(value).resolve())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    metavar="FILE",
    callback=_use_config,
    expose_value=False,
    help="Settings to use instead of ~/.pulsetrain/pulsetrain.toml.",
)
@click.version_option(__version__, message="pulsetrain %(version)s")
def cli() -> None:
    """Take the pulse of a training run: pulsetrain run -- python train.py"""


def main(arguments: Sequence[str] | None = None) -> None:
    _fill_closed_streams()
    code = _call(arguments)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # full, or gone: Python would flush again at its end, and replace the exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if threading.active_count() > 1:  # a driver or a provider that never answers: do not tear modules down under it
        os._exit(code)
    sys.exit(code)


def _fill_closed_streams() -> None:
    """Take the places of closed standard streams: a file of ours that got one would receive what others print."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free; the command does not inherit it


def _call(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console that lacks a character must not end us
            stream.reconfigure(errors="replace")
    try:
        return cli.main(arguments, prog_name="pulsetrain", standalone_mode=False) or 0
    except PulsetrainError as error:
        click.echo(printable(f"error: {error}"), err=True)
        return error.exit_code
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        click.echo(printable(text.getvalue()), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

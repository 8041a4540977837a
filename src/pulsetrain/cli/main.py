"""`pulsetrain`: finds the command, and turns every error of ours into text and an exit code.

Exit codes: 0 well, 1 an error, 2 wrong usage, 130 interrupted. `run` gives its command's own, 126 when it cannot be
started and 127 when it does not exist.
"""

import io
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from pulsetrain import __version__
from pulsetrain.errors import PulsetrainError

COMMANDS = {
    "run": "Run a command and watch it.",
    "attach": "Watch a process that already runs.",
    "watch": "Watch this machine until stopped.",
    "top": "Keep a machine or a run in view, in the terminal.",
    "sample": "Show this machine once.",
    "runs": "List, remove, prune and seal recorded runs.",
    "report": "Tell what a recorded run did, used and cost.",
    "compare": "Put runs side by side, and say why they differ.",
    "replay": "Show a recorded run as if it were happening.",
    "query": "Ask recorded runs in SQL.",
    "export": "Write a recorded run as CSV, Parquet or JSON lines, or send it to a server.",
    "stack": "Set up Prometheus, Grafana and alerts.",
    "doctor": "Say what works here, what does not, and what to do.",
    "demo": "Take a tour on simulated GPUs.",
}
"""Each stands in a module of this name, as a function of this name. Here with its help, so that --help imports none."""


class Commands(click.Group):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"pulsetrain.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command: {args[0]}. To watch a command, say: pulsetrain run -- {' '.join(args)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        from pulsetrain import config

        settings = config.load(config.find()).defaults()
        ctx.default_map = dict.fromkeys(COMMANDS, settings)
        return super().invoke(ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="pulsetrain %(version)s")
def cli() -> None:
    """Take the pulse of a training run: pulsetrain run -- python train.py"""


def main(arguments: Sequence[str] | None = None) -> None:
    code = _call(arguments)
    if threading.active_count() > 1:  # a driver or a provider that never answers: do not tear modules down under it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _call(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console that lacks a character must not end us
            stream.reconfigure(errors="replace")
    try:
        return cli.main(arguments, prog_name="pulsetrain", standalone_mode=False) or 0
    except PulsetrainError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

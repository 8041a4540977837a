"""What `pulsetrain cloud` shows before it changes something, and the question after it."""

import re
import sys
from collections.abc import Sequence

import click

from pulsetrain.cli import options
from pulsetrain.errors import UsageError

project = click.option("--project", metavar="ID", help="Google Cloud project. [default: gcloud's]")
zone = click.option("--zone", metavar="ZONE", help="Zone, such as us-central1-a. [default: gcloud's]")
dry_run = click.option(
    "--dry-run", is_flag=True, help="Show what would be done and what it would cost; change nothing."
)
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
ssh_config = click.option(
    "--ssh-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Reach HOST by plain ssh with this configuration file.",
)
plain_ssh = click.option("--plain-ssh", is_flag=True, help="HOST is a name that ssh knows, not a machine in `vm list`.")
json_output = options.json_output


def show_plan(title: str, facts: Sequence[tuple[str, str]], commands: Sequence[Sequence[str]]) -> None:
    """What will be there and what it costs, then the commands, each as it can be typed."""
    from pulsetrain.deploy.cloud.tools import shown
    from pulsetrain.views.text import Style

    style = Style(sys.stdout)
    click.echo(style(title, "bold"))
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        click.echo(f"  {name:<{width}}  {text}")
    click.echo(style("\nCommands that will be run:", "bold") if commands else "\nNothing left to do.")
    for command in commands:
        click.echo(f"  {shown(command)}")
    click.echo()


def confirmed(question: str, *, dry: bool, assume_yes: bool) -> bool:
    """Whether to do it. Where nobody can answer, only --yes does."""
    if dry:
        click.echo("This was a dry run: nothing was changed, and nothing costs money.")
        return False
    if assume_yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            "this needs confirmation, and there is no terminal to ask on.",
            hint="Add --yes to go ahead, or --dry-run to only look.",
        )
    if click.confirm(question):
        return True
    click.echo("Nothing was changed.")
    return False


def told(line: str) -> None:
    """A line of progress of another program."""
    from pulsetrain.views.text import Style

    text = re.sub(r"\.{2,}$", "", line.strip())
    if text and text not in (".", "done.") and not text.startswith(("Note:", "ERROR:", "WARNING: Some requests")):
        click.echo(Style(sys.stderr)(f"  {text}", "dim"), err=True)

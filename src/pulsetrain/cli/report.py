"""`pulsetrain report`: what a recorded run did and used."""

import sys

import click
import msgspec

from pulsetrain.cli import options


@click.command(short_help="Tell what a recorded run did and used.")
@click.argument("run", default="last")
@options.directory
@options.json_output
def report(run: str, directory: str | None, as_json: bool) -> None:
    """Tell what a recorded run did and used. RUN is an id or the start of one, a name, a path, or `last`."""
    from pulsetrain.insight.summary import summarise
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.summary import summary_lines
    from pulsetrain.views.text import Style

    folder = Home.find(directory).resolve(run)
    about = folder.load()
    summary, damaged = summarise(folder)
    if as_json:
        document = {"run": about, "summary": summary, "damaged_lines": damaged}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return
    click.echo("\n".join(summary_lines(about, summary, str(folder.path), Style(sys.stdout))))
    if damaged:
        click.echo(f"damaged {damaged} lines could not be read and are left out")

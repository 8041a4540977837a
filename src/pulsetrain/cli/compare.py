"""`pulsetrain compare`: runs side by side, what differs, and why."""

import sys
from pathlib import Path

import click
import msgspec

from pulsetrain import settings
from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError, UsageError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Compare runs, and explain the differences.")
@options.runs_to_compare
@options.json_output
@click.option("--html", type=_FILE, metavar="FILE", help="Write one self-contained page with charts.")
@click.option("--png", type=_FILE, metavar="FILE", help="Write the charts as a figure for a paper.")
@options.directory
def compare(runs: tuple[str, ...], as_json: bool, html: Path | None, png: Path | None, directory: str | None) -> None:
    """Put runs side by side: their figures, the differences from the first run, which of them are real, and why.

    A RUN is an id or the start of one, a name, a path, or `last`. Runs may differ in length: figures are per step and
    per sample, from steady steps, without the warm-up.
    """
    if len(runs) < 2:
        raise UsageError("a comparison needs at least two runs.", hint="List them: pulsetrain runs")
    from pulsetrain.insight.compare import compare as compare_sides
    from pulsetrain.insight.compare.sides import load_sides
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.compare.content import document
    from pulsetrain.views.compare.text import compare_lines
    from pulsetrain.views.text import Style

    home = Home.find(directory)
    thresholds = settings.in_force().config.thresholds
    sides = load_sides([home.resolve(run) for run in runs], thresholds)
    comparison = document(compare_sides(sides, thresholds))
    if html:
        from pulsetrain.views.compare.html import compare_html

        _write(html, compare_html(comparison, sides).encode())
    if png:
        from pulsetrain.views.compare.panels import compare_png

        _write(png, compare_png(sides))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(comparison), indent=2))
        return
    click.echo("\n".join(compare_lines(comparison, Style(sys.stdout))))
    for path in filter(None, (html, png)):
        click.echo(f"written: {path}")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise PulsetrainError(f"{path} cannot be written: {error.strerror}.") from None

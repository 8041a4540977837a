"""`pulsetrain report`: what a recorded run did, used and cost."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pulsetrain import settings
from pulsetrain.cli import options

if TYPE_CHECKING:
    from pulsetrain.runs.folder import RunFolder


@click.command(short_help="Show what a recorded run did, used and cost.")
@options.run
@options.account
@click.option(
    "--refresh-carbon", is_flag=True, help="Query the provider again and replace forecasts with actual values."
)
@click.option(
    "--changed",
    metavar="FROM-TO",
    help="Show what else changed between these seconds, such as 120-180, compared with the time before.",
)
@options.json_output
@click.option("--markdown", is_flag=True, help="Print Markdown, for a README or an appendix.")
@click.option("--html", is_flag=True, help="Write report.html, one self-contained file with charts.")
@click.option("--files", is_flag=True, help="Write report.html, metrics.yml, formatted_metrics.txt, metrics_plot.png.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where to write them. [default: `report` in the run folder]",
)
@options.directory
def report(
    run: str,
    account: options.Accounting,
    refresh_carbon: bool,
    changed: str | None,
    as_json: bool,
    markdown: bool,
    html: bool,
    files: bool,
    output: Path | None,
    directory: str | None,
) -> None:
    """Show what a recorded run did, used and cost. RUN is an id or the start of one, a name, a path, or `last`.

    For a run in progress, the report covers it so far. `pulsetrain run` records how a run is counted (--carbon-region,
    --price, --pue, --charge); given here, these options apply to this report only.
    """
    from contextlib import closing

    from pulsetrain.insight.report import study
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.report import report_lines, report_markdown, write_files, write_html
    from pulsetrain.views.text import Style

    folder = Home.find(directory).resolve(run)
    if changed is not None:
        show_changes(folder, changed, as_json)
        return
    counted = account.of_recorded(folder.load())
    with closing(Database([folder])) as database:
        thresholds = settings.in_force().config.thresholds
        found = study(database, folder, counted, refresh_carbon=refresh_carbon, thresholds=thresholds)
        if html or files:
            write = write_files if files else write_html
            for path in write(found, database, output or folder.path / "report"):
                click.echo(path)
            return
    document = found.report
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    elif markdown:
        click.echo(report_markdown(document))
    else:
        click.echo("\n".join(report_lines(document, Style(sys.stdout))))


def show_changes(folder: "RunFolder", span: str, as_json: bool) -> None:
    """Print the metrics that differ most between a stretch of a run and the time before it."""
    from contextlib import closing

    from pulsetrain.insight.changes import find_changes, parse_span
    from pulsetrain.runs.database import Database
    from pulsetrain.views.changes import change_lines
    from pulsetrain.views.text import Style

    start, end = parse_span(span)
    with closing(Database([folder])) as database:
        found = find_changes(database, start, end)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo("\n".join(change_lines(found, start, end, Style(sys.stdout))))

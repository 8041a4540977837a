"""`pulsetrain report`: what a recorded run did, used and cost."""

import sys
from pathlib import Path

import click
import msgspec

from pulsetrain.cli import options


@click.command(short_help="Tell what a recorded run did, used and cost.")
@click.argument("run", default="last")
@options.account
@click.option("--refresh-carbon", is_flag=True, help="Ask the provider again: a forecast becomes what really was.")
@options.json_output
@click.option("--markdown", is_flag=True, help="Print Markdown, for a README or an appendix.")
@click.option("--html", is_flag=True, help="Write report.html, one file with charts that can be mailed.")
@click.option("--files", is_flag=True, help="Write report.html, metrics.yml, formatted_metrics.txt, metrics_plot.png.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where to write them. [default: the folder `report` of the run]",
)
@options.directory
def report(
    run: str,
    account: options.Accounting,
    refresh_carbon: bool,
    as_json: bool,
    markdown: bool,
    html: bool,
    files: bool,
    output: Path | None,
    directory: str | None,
) -> None:
    """Tell what a recorded run did, used and cost. RUN is an id or the start of one, a name, a path, or `last`.

    A run that still goes on is reported as far as it has come. How a run is counted (--carbon-region, --price, --pue,
    --charge) is kept in it from `pulsetrain run`; said here, it holds for this report alone.
    """
    from pulsetrain.insight.report import make_report
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import Home
    from pulsetrain.views.report import report_lines, report_markdown, write_files, write_html
    from pulsetrain.views.text import Style

    folder = Home.find(directory).resolve(run)
    document = make_report(folder, account.of_recorded(folder.load().account), refresh_carbon=refresh_carbon)
    if html or files:
        target = output or folder.path / "report"
        write = write_files if files else write_html
        for path in write(document, Database([folder]), target):
            click.echo(path)
    elif as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    elif markdown:
        click.echo(report_markdown(document))
    else:
        click.echo("\n".join(report_lines(document, Style(sys.stdout))))

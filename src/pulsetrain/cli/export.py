"""`pulsetrain export`: a recorded run as files for other programs, one for each table, or sent to a server."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsetrain.cli import options
from pulsetrain.cli.files import whole_file
from pulsetrain.errors import UsageError
from pulsetrain.outputs.push import KINDS
from pulsetrain.outputs.trackers import EXAMPLES as TRACKERS
from pulsetrain.outputs.trackers import is_tracker
from pulsetrain.runs.tables import LINE_TABLES

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import RunFolder

_TARGETS = [kind for kind, about in KINDS.items() if about.takes_history]


@click.command(short_help="Write a recorded run as CSV, Parquet or JSON lines, or send it to a server.")
@options.run
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "parquet", "jsonl"]),
    help="jsonl gives the lines as they were recorded, including sealed files.",
)
@click.option(
    "--to",
    metavar="TARGET",
    help=f"Send it to a server instead: {', '.join(f'{kind}:URL' for kind in _TARGETS)}, or the NAME of a section "
    f"[push.NAME]; or to a tracker: {', '.join(TRACKERS)}.",
)
@click.option(
    "--table",
    "tables",
    type=click.Choice(LINE_TABLES),
    multiple=True,
    help="Only this table; may be repeated. [default: all tables with lines]",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where to write. [default: a folder named after the run]",
)
@options.directory
def export(
    run: str, kind: str | None, to: str | None, tables: Sequence[str], output: Path | None, directory: str | None
) -> None:
    """Write RUN to files, one for each table, or send it to a server that missed it.

    RUN is an id or the start of one, a name, a path, or `last`. A server gets the series that `run --push` would have
    sent during the run; pulsetrain then checks that it has them all. A tracker gets the metrics, the settings and the
    report; what it already has is not sent again.

    \b
        pulsetrain export last --format parquet
        pulsetrain export last --to victoriametrics:http://localhost:8428
        pulsetrain export last --to remote-write:http://localhost:9090/api/v1/write
        pulsetrain export last --to mlflow:http://localhost:5000
    """
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import Home

    if (kind is None) is (to is None):
        raise UsageError("choose --format to write files, or --to to send the run to a server.")
    if to is not None and output is not None:
        raise UsageError("--output is for files; --to sends the run to a server.")
    folder = Home.find(directory).resolve(run)
    if to is not None and is_tracker(to):
        _track(folder, to, tables)
        return
    database = Database([folder])
    if kind is not None:
        _write(folder, database, kind, tables, output)
    elif to is not None:
        _send(folder, database, to, tables)
    if damaged := database.damaged_so_far:
        click.echo(f"note: {damaged} damaged lines were skipped", err=True)


def _write(folder: "RunFolder", database: "Database", kind: str, tables: Sequence[str], output: Path | None) -> None:
    from pulsetrain.runs.export import WRITERS

    target = output or Path(folder.path.resolve().name)
    for table in tables or LINE_TABLES:
        rows = database.count(table)
        if rows or tables:
            path = target / f"{table}.{kind}"
            if sys.stderr.isatty():
                click.echo(f"{path}  {rows:,} ...\r", err=True, nl=False)
            with whole_file(path) as temporary:
                written = WRITERS[kind](database, table, temporary)
            click.echo(f"{path}  {written:,} {'line' if written == 1 else 'lines'}")


def _send(folder: "RunFolder", database: "Database", to: str, tables: Sequence[str]) -> None:
    from pulsetrain import settings
    from pulsetrain.outputs.backfill.run import backfill
    from pulsetrain.outputs.push.target import parse_target

    try:
        target = parse_target(to, settings.in_force().config.push)
    except UsageError as error:
        if error.hint and to.partition(":")[0] not in KINDS:
            error.hint += f" Or a tracker: {', '.join(TRACKERS)}."
        raise
    try:
        outcome = backfill(database, folder.load(), target, _progress, tables)
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)
    arrived = f"not checked: {outcome.unchecked}" if outcome.unchecked else "all found"
    click.echo(f"{outcome.samples:,} samples of {outcome.series:,} series sent to {target.host}, {arrived}")
    if outcome.unfit:
        click.echo(f"note: {outcome.unfit:,} values are NaN, which {target.host} cannot store", err=True)


def _track(folder: "RunFolder", to: str, tables: Sequence[str]) -> None:
    from pulsetrain.cli.sending import send_recorded
    from pulsetrain.outputs.trackers import parse_tracker
    from pulsetrain.training.masking import masked_message

    if tables:
        raise UsageError("--table is for files and servers of series; a tracker gets the whole run.")
    target = parse_tracker(to)
    rows = send_recorded(folder, target)
    click.echo(f"{masked_message(target.spec)} has the run: {rows:,} rows, the settings and how it ended")


def _progress(share: float, samples: int) -> None:
    if sys.stderr.isatty():
        what = (
            f"{share:4.0%}  {samples:,} samples sent"
            if share < 1
            else f"{samples:,} samples sent, checking that they arrived"
        )
        click.echo(f"\r{what} ...\x1b[K", err=True, nl=False)

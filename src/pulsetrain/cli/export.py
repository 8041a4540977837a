"""`pulsetrain export`: a recorded run as files for other programs, one for each table."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pulsetrain.cli import options
from pulsetrain.cli.files import whole_file
from pulsetrain.runs.tables import LINE_TABLES


@click.command(short_help="Write a recorded run as CSV, Parquet or JSON lines.")
@click.argument("run", default="last")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "parquet", "jsonl"]),
    required=True,
    help="jsonl gives the lines as they were recorded, also of files that are sealed.",
)
@click.option(
    "--table",
    "tables",
    type=click.Choice(LINE_TABLES),
    multiple=True,
    help="Only this table; may be repeated. [default: all that have lines]",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where to write. [default: a folder here with the name of the run]",
)
@options.directory
def export(run: str, kind: str, tables: Sequence[str], output: Path | None, directory: str | None) -> None:
    """Write RUN, one file for each table. RUN is an id or the start of one, a name, a path, or `last`."""
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.export import WRITERS
    from pulsetrain.runs.folder import Home

    folder = Home.find(directory).resolve(run)
    database = Database([folder])
    target = output or Path(folder.path.resolve().name)
    for table in tables or LINE_TABLES:
        rows = database.count(table)
        if rows or tables:
            path = target / f"{table}.{kind}"
            if sys.stderr.isatty():
                click.echo(f"{path}  {rows:,} ...\r", err=True, nl=False)
            with whole_file(path) as temporary:
                written = WRITERS[kind](database, table, temporary)
            click.echo(f"{path}  {written:,} lines")
    if damaged := database.damaged_so_far:
        click.echo(f"note: {damaged} damaged lines are left out", err=True)

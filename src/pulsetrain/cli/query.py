"""`pulsetrain query`: recorded runs in SQL."""

import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pulsetrain.cli import options
from pulsetrain.cli.files import whole_file
from pulsetrain.untrusted import showable

if TYPE_CHECKING:
    from pulsetrain.runs.database import Result

MOST_ROWS = 10_000
"""In a table for people: all of them must be known before the first is printed."""
LONGEST_CELL = 80


@click.command(short_help="Query recorded runs with SQL.")
@click.argument("sql", required=False)
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run; may be repeated. [default: all]")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@options.json_output
@click.option(
    "--parquet", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a Parquet file."
)
@click.option("--schema", is_flag=True, help="Show the tables and their columns.")
@options.directory
def query(
    sql: str | None,
    runs: Sequence[str],
    as_csv: bool,
    as_json: bool,
    parquet: Path | None,
    schema: bool,
    directory: str | None,
) -> None:
    """Query recorded runs with SQL (DuckDB). Tables: gpu, host, training, runs, ...; `query --schema` lists them all.

        pulsetrain query "select run, avg(power_draw_watts) from gpu group by run"

    For a run in progress, you see what has been written so far. Queries cannot change anything.
    """
    if schema:
        _print_schema(as_json)
        return
    if not sql:
        raise click.UsageError("give a query, or --schema")
    if as_csv + as_json + (parquet is not None) > 1:
        raise click.UsageError("--csv, --json and --parquet are mutually exclusive")
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.folder import Home

    home = Home.find(directory)
    database = Database([home.resolve(run) for run in runs] or list(home.runs()))
    if parquet:
        with whole_file(parquet) as path:
            database.write_parquet(sql, path)
        click.echo(parquet)
    else:
        (_print_csv if as_csv else _print_json if as_json else _print_table)(database.ask(sql))
    for file in database.unreadable:
        click.echo(f"warning: {showable(str(file))} is incomplete and was skipped", err=True)
    if database.damaged_so_far:
        click.echo(f"note: {database.damaged_so_far} damaged lines were skipped", err=True)


def _print_schema(as_json: bool) -> None:
    from pulsetrain.runs.tables import TABLES, columns
    from pulsetrain.views.text import Style, table

    if as_json:
        tables = {name: [column._asdict() for column in columns(name)] for name in TABLES}
        click.echo(msgspec.json.format(msgspec.json.encode(tables), indent=2))
        return
    style = Style(sys.stdout)
    for name in TABLES:
        click.echo(style(name, "bold"))
        lines = table(("column", "type", "unit", ""), columns(name), style, "llll")
        click.echo("\n".join(f"  {line}" for line in lines) + "\n")
    click.echo("Other recorded fields, such as metrics that a program logs, are columns too.")


def _print_csv(result: "Result") -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.names)
    for row in result.rows():
        writer.writerow(["" if value is None else _text(value) for value in row])


def _print_json(result: "Result") -> None:
    before = "["
    for row in result.rows():
        click.echo(before, nl=False)
        click.echo(_json(dict(zip(result.names, map(_plain, row), strict=True))), nl=False)
        before = ",\n"
    click.echo("[]" if before == "[" else "]")


def _print_table(result: "Result") -> None:
    from pulsetrain.views.text import ABSENT, Style, cut, len_visible, table

    style = Style(sys.stdout)
    names = list(map(showable, result.names))
    rows = result.rows()
    cells = [
        [ABSENT if value is None else cut(showable(_readable(value)), LONGEST_CELL) for value in row]
        for row in islice(rows, MOST_ROWS)
    ]
    ends = accumulate(2 + max(map(len_visible, column)) for column in zip(names, *cells, strict=True))
    fitting = sum(end - 2 <= style.width for end in ends) or 1 if style.terminal else len(names)
    align = "".join("r" if numeric else "l" for numeric in result.numeric)
    click.echo("\n".join(table(names[:fitting], [row[:fitting] for row in cells], style, align)))
    if missing := len(names) - fitting:
        click.echo(f"{missing} more columns do not fit here; --csv and --json print all", err=True)
    if next(rows, None) is not None:
        click.echo(f"only the first {MOST_ROWS:,} rows are shown; --csv and --json print all", err=True)


def _readable(value: Any) -> str:
    """A value for people: numbers with six digits, or all those before the point."""
    if isinstance(value, float | Decimal):
        return f"{value:.6g}" if abs(float(value)) < 1e6 else f"{value:.0f}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return _text(value)


def _text(value: Any) -> str:
    """A value for scripts, with all its digits; lists and maps are JSON."""
    plain = _plain(value)
    return plain if isinstance(plain, str) else _json(plain)


def _plain(value: Any) -> Any:
    """What JSON can say: times as they are in the lines, and numbers."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds") + "Z"
    return float(value) if isinstance(value, Decimal) else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()

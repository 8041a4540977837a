"""`pulsetrain runs --by`: what users, projects or hosts used together, for the monthly table."""

import csv
import io
import sys
from collections.abc import Sequence
from typing import Literal

import click
import msgspec

from pulsetrain.insight.usage import UsageRow
from pulsetrain.units import JOULES_PER_KWH, SECONDS_PER_HOUR
from pulsetrain.views.report.markdown import markdown_table
from pulsetrain.views.text import Style, money, percent, table

UsageFormat = Literal["text", "csv", "markdown", "json"]
HEAD = ("runs", "GPU hours", "idle hours", "idle", "kWh", "kg CO2e", "cost", "goodput")


def print_usage(rows: Sequence[UsageRow], grouping: str, form: UsageFormat) -> None:
    """Units do not change within a column: hours, kilowatt-hours, kilograms."""
    head = (grouping, *HEAD)
    align = "l" + "r" * len(HEAD)
    match form:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2))
        case "csv":
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow([grouping, "runs", "gpu_hours", "gpu_idle_hours", "kwh", "kg_co2e", "cost", "goodput"])
            writer.writerows(map(_values, rows))
            click.echo(text.getvalue(), nl=False)
        case "markdown":
            click.echo(markdown_table(head, [_cells(row) for row in rows], align))
        case _:
            click.echo("\n".join(table(head, [_cells(row) for row in rows], Style(sys.stdout), align)))


def _cells(row: UsageRow) -> tuple[str, ...]:
    idle = row.gpu_idle_seconds
    return (
        row.group or "(none)",
        str(row.runs),
        f"{row.gpu_seconds / SECONDS_PER_HOUR:,.2f}",
        "" if idle is None else f"{idle / SECONDS_PER_HOUR:,.2f}",
        percent(idle / row.gpu_seconds) if idle is not None and row.gpu_seconds else "",
        "" if row.joules is None else f"{row.joules / JOULES_PER_KWH:,.3f}",
        "" if row.grams is None else f"{row.grams / 1000:,.3f}",
        " + ".join(money(amount, currency) for currency, amount in sorted(row.cost.items())),
        percent(row.goodput) if row.goodput is not None else "",
    )


def _values(row: UsageRow) -> tuple[object, ...]:
    """Plain numbers, for a spreadsheet."""
    idle = row.gpu_idle_seconds
    return (
        row.group,
        row.runs,
        round(row.gpu_seconds / SECONDS_PER_HOUR, 6),
        None if idle is None else round(idle / SECONDS_PER_HOUR, 6),
        None if row.joules is None else round(row.joules / JOULES_PER_KWH, 6),
        None if row.grams is None else round(row.grams / 1000, 6),
        " + ".join(f"{amount:.4f} {currency}".strip() for currency, amount in sorted(row.cost.items())),
        None if row.goodput is None else round(row.goodput, 4),
    )

"""A table of a run as a file: CSV, Parquet, or the lines as they were recorded."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb

from pulsetrain.catalog import TABLES
from pulsetrain.runs.database import Database
from pulsetrain.runs.line_columns import identifier, quoted, utc_column

_BATCH = 10_000


def write_csv(database: Database, table: str, path: Path) -> int:
    """As a query sees the table; lists and maps are JSON. Returns how many rows were written, as all of these do."""
    chosen = ", ".join(
        f"to_json({identifier(name)}) AS {identifier(name)}" if type.startswith("MAP") or type.endswith("[]")
        else f"strftime({identifier(name)}, '%Y-%m-%dT%H:%M:%S.%gZ') AS {identifier(name)}" if type == "TIMESTAMP"
        else identifier(name)
        for name, type in database.columns(table).items()
    )  # fmt: skip
    return _copy(database, f"(SELECT {chosen} FROM {table})", path, "FORMAT csv, HEADER")


def write_parquet(database: Database, table: str, path: Path) -> int:
    """As a query sees the table; times are instants in UTC, as the Z of the other formats says."""
    chosen = ", ".join(utc_column(name, type) for name, type in database.columns(table).items())
    return _copy(database, f"(SELECT {chosen} FROM {table})", path, "FORMAT parquet, COMPRESSION zstd")


def write_jsonl(database: Database, table: str, path: Path) -> int:
    """The lines with the values that were recorded. In a run of several hosts, each line says whose it is."""
    columns = [name for name in database.columns(f"lines.{table}") if name not in ("run", "host", "timestamp", "other")]
    hosts = database.distinct(table, ["host"])
    members = [
        "'timestamp': strftime(timestamp, '%Y-%m-%dT%H:%M:%S.%gZ')",
        *(["'host': host"] if len(hosts) > 1 else []),
        *(f"{quoted(name)}: {identifier(name)}" for name in columns),
    ]
    # To merge objects is to leave out what is null. The fields of the older tools stand in every line all the same.
    always = json.dumps(dict.fromkeys(["timestamp", *TABLES[table].always]))
    count = 0
    with path.open("w", encoding="utf-8") as file, database.damage_told():
        found = database.execute(f"""
            SELECT json_merge_patch({quoted(always)}::JSON,
                json_merge_patch('{{}}'::JSON, to_json({{{", ".join(members)}}})), coalesce(other, '{{}}'))
            FROM lines.{table}""")
        while batch := found.fetchmany(_BATCH):
            file.writelines(f"{line}\n" for (line,) in batch)
            count += len(batch)
    return count


def _copy(database: Database, what: str, path: Path, how: str) -> int:
    with database.damage_told():
        try:
            ((count,),) = database.execute(f"COPY {what} TO {quoted(str(path))} ({how})").fetchall()
        except duckdb.IOException as error:  # the disk is full, say
            raise OSError(str(error)) from None
    return int(count)


WRITERS: dict[str, Callable[[Database, str, Path], int]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "jsonl": write_jsonl,
}

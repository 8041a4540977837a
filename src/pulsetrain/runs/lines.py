"""JSON lines as columns, through DuckDB: those that are declared, and those that are found in the lines.

A line that is no JSON object with a time is damaged: all its columns are null. A value that does not fit its column is
null too, and the rest of its line stays.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path

import duckdb

from pulsetrain.runs.tables import EVENT, OTHER, line_columns

MOST_FOUND = 1000
"""Columns beyond the declared ones. A program can make up names without end: what is left goes into `other`."""

_PLAIN_TYPES = {
    "UBIGINT": "DOUBLE",
    "BIGINT": "DOUBLE",
    "HUGEINT": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "VARCHAR",
    "BOOLEAN": "BOOLEAN",
}
_OURS = {"run", "host", "filename", OTHER.name, EVENT, ""}
"""Names of columns that no field of a line may take."""
_POINTER = "'/' || replace(replace(key, '~', '~0'), '/', '~1')"
"""Where the value of `key` is in an object, whatever characters are in it."""


def quoted(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """The name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def file_list(files: Iterable[Path]) -> str:
    """Paths in SQL, taken literally: `*`, `?` and `[` would be patterns."""
    literal = ("".join(f"[{c}]" if c in "*?[" else c for c in str(file)) for file in files)
    return f"[{', '.join(map(quoted, literal))}]"


def line_query(connection: duckdb.DuckDBPyConnection, table: str, files: Collection[Path]) -> str:
    """A query for the lines of these files: `filename`, all columns, `other`. Reads them once to see what they have."""
    declared = {column.name: column.type for column in line_columns(table)}
    if table == "training":
        declared[EVENT] = "VARCHAR"
    lines = f"read_ndjson_objects({file_list(files)}, ignore_errors = true, filename = true)"
    found, complete = _found(connection, lines, declared)
    columns = declared | found
    structure = quoted(json.dumps({name: _structure(type) for name, type in columns.items()}))
    known = ", ".join(map(quoted, columns))
    has_more = "true" if not complete else f"columns.{EVENT} IS NOT NULL" if EVENT in columns else "false"
    return f"""
        SELECT filename, columns.*, CASE WHEN len(members) > 0 THEN to_json(map_from_entries(members)) END AS other
        FROM (
            SELECT filename, columns, CASE WHEN {has_more} THEN
                [{{'key': key, 'value': json -> ({_POINTER})}} FOR key IN json_keys(json) IF key NOT IN ({known})]
                END AS members
            FROM (SELECT filename, json, json_transform(json, {structure}) AS columns FROM {lines})
        )"""


def _found(connection: duckdb.DuckDBPyConnection, lines: str, declared: Collection[str]) -> tuple[dict[str, str], bool]:
    """Columns for fields that are not declared, and whether these are all; the recorder's notes do not count."""
    reports = f"WHERE NOT list_contains(keys, '{EVENT}')" if EVENT in declared else ""
    rows = connection.execute(f"""
        SELECT key, list(DISTINCT json_type(json, {_POINTER})) AS types
        FROM (
            SELECT json, unnest(keys) AS key FROM (SELECT json, json_keys(json) AS keys FROM {lines}) {reports}
        )
        WHERE key NOT IN ({", ".join(map(quoted, declared))}) GROUP BY key ORDER BY key""").fetchall()
    taken = _OURS | {name.lower() for name in declared}
    found: dict[str, str] = {}
    complete = True
    for key, json_types in rows:
        types = {_PLAIN_TYPES.get(json_type) for json_type in json_types if json_type != "NULL"}
        type = next(iter(types)) if len(types) == 1 else None
        if type and key.lower() not in taken and len(found) < MOST_FOUND:
            found[key] = type
            taken.add(key.lower())  # SQL does not tell `Loss` from `loss`
        elif types:
            complete = False
    return found, complete


def _structure(type: str) -> object:
    """A type as `json_transform` wants it."""
    return [type.removesuffix("[]")] if type.endswith("[]") else type

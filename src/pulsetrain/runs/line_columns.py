"""JSON lines as columns, through DuckDB: those that are declared, and those that are found in the lines.

A line that is not a JSON object with a time is damaged: all its columns are null. A value that does not fit its column
is null too, and the rest of its line stays.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pulsetrain.runs.codec import NOTE, RANK_NOTE, rank_of
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.tables import OTHER, line_columns
from pulsetrain.untrusted import showable

if TYPE_CHECKING:
    import duckdb

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
_OURS = {"run", "host", "filename", OTHER.name, NOTE, ""}
"""Names of columns that no field of a line may take."""
_NOTE_BYTES = 1024
"""The last line of a file is looked for in these."""
_MEMBERS = "unnest(json_keys(json)) AS key, unnest(json_extract(json, '$.*')) AS value"
"""Each name of an object with its value. Asking for one name after the other would read it whole each time."""


def quoted(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """The name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def utc_column(name: str, type: str) -> str:
    """A column for a Parquet file: a time, which tables hold without a zone, becomes an instant in UTC."""
    column = identifier(name)
    return f"make_timestamptz(epoch_us({column})) AS {column}" if type == "TIMESTAMP" else column


def file_list(files: Iterable[Path]) -> str:
    """Paths in SQL, taken literally: `*`, `?` and `[` would be patterns."""
    literal = ("".join(f"[{c}]" if c in "*?[" else c for c in str(file)) for file in files)
    return f"[{', '.join(map(quoted, literal))}]"


def line_query(connection: "duckdb.DuckDBPyConnection", table: str, files: Collection[Path]) -> str:
    """A query for the lines of these files: `filename`, all columns, `other`. Reads them once to see what they have."""
    lines = _line_query(connection, table, files)
    late = late_ranks(files) if table == "training" else {}
    if not late:
        return lines
    cases = " ".join(f"WHEN {quoted(str(file))} THEN {rank}" for file, rank in late.items())
    return f"SELECT * REPLACE (CASE filename {cases} ELSE rank END AS rank) FROM ({lines})"


def late_ranks(files: Iterable[Path]) -> dict[Path, int]:
    """The ranks of files whose processes learned them late: their lines say another one."""
    found: dict[Path, int] = {}
    for path in files:
        with LineFile(path) as file:
            lines = file.last_lines(_NOTE_BYTES)
        if lines and lines[-1].get(NOTE) == RANK_NOTE:
            found[path] = rank_of(lines[-1])
    return found


def _line_query(connection: "duckdb.DuckDBPyConnection", table: str, files: Collection[Path]) -> str:
    declared = {column.name: column.type for column in line_columns(table)}
    if table == "training":
        declared[NOTE] = "VARCHAR"
    lines = f"read_ndjson_objects({file_list(files)}, ignore_errors = true, filename = true)"
    found, complete = _found(connection, lines, declared)
    columns = declared | found
    structure = quoted(json.dumps({name: _structure(type) for name, type in columns.items()}))
    read = f"SELECT filename, json, json_transform(json, {structure}) AS columns FROM {lines}"
    if complete and NOTE not in columns:
        return f"SELECT filename, columns.*, NULL::JSON AS other FROM ({read})"
    more = f"WHERE columns.{NOTE} IS NOT NULL" if complete else ""
    return f"""
        WITH numbered AS MATERIALIZED (SELECT row_number() OVER () AS line, * FROM ({read})),
        others AS (
            SELECT line, json_group_object(key, value) AS other
            FROM (SELECT line, {_MEMBERS} FROM numbered {more})
            WHERE key NOT IN ({", ".join(map(quoted, columns))}) GROUP BY line
        )
        SELECT filename, columns.*, other FROM numbered LEFT JOIN others USING (line) ORDER BY line"""


def _found(
    connection: "duckdb.DuckDBPyConnection", lines: str, declared: Collection[str]
) -> tuple[dict[str, str], bool]:
    """Columns for fields that are not declared, and whether these are all; the recorder's notes do not count.

    A name that would steer a terminal has none.
    """
    reports = f"WHERE NOT list_contains(json_keys(json), '{NOTE}')" if NOTE in declared else ""
    rows = connection.execute(f"""
        SELECT key, list(DISTINCT json_type(value)) AS types
        FROM (SELECT {_MEMBERS} FROM {lines} {reports})
        WHERE key NOT IN ({", ".join(map(quoted, declared))}) GROUP BY key ORDER BY key""").fetchall()
    taken = _OURS | {name.lower() for name in declared}
    found: dict[str, str] = {}
    complete = True
    for key, json_types in rows:
        types = {_PLAIN_TYPES.get(json_type) for json_type in json_types if json_type != "NULL"}
        type = next(iter(types)) if len(types) == 1 else None
        if type and key.lower() not in taken and len(found) < MOST_FOUND and showable(key) == key:
            found[key] = type
            taken.add(key.lower())  # SQL does not tell `Loss` from `loss`
        elif types:
            complete = False
    return found, complete


def _structure(type: str) -> object:
    """A type as `json_transform` wants it."""
    return [type.removesuffix("[]")] if type.endswith("[]") else type

"""Runs as tables, through DuckDB: gpu, mig, host, process, training, events, runs.

Every column of the catalogue is there, null where a run has no such value, so that a query never fails on an older
folder. Lines that cannot be read are left out and counted.
"""

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from pulsetrain.catalog import LABELS, METRICS
from pulsetrain.runs.folder import RunFolder
from pulsetrain.snapshot import Metric

Array = npt.NDArray[Any]

TABLES = ("gpu", "mig", "host", "process", "training", "events")
_LABEL_TYPES = {
    "gpu_index": "INTEGER",
    "pid": "BIGINT",
    "parent_pid": "BIGINT",
    "rank": "INTEGER",
    "simulated": "BOOLEAN",
    "gpu_instance": "INTEGER",
    "compute_instance": "INTEGER",
}


class Database:
    """A connection that sees these runs as tables."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = runs
        self._connection = duckdb.connect()
        for table in TABLES:
            self._connection.execute(self._view(table))

    def arrays(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Array]:
        """The columns of a query's result. Numbers are floats, NaN where there is none; all else is objects."""
        columns = self._connection.execute(sql, parameters).fetchnumpy()
        return {name: _plain(column) for name, column in columns.items()}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """The rows of a small result."""
        result = self._connection.execute(sql, parameters)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    @property
    def damaged_lines(self) -> int:
        """Lines that could not be read, in all tables."""
        return 0

    def close(self) -> None:
        self._connection.close()

    def _view(self, table: str) -> str:
        columns = _columns(table)
        files = [(str(file), run.path.name, file.parent.name) for run in self._runs for file in run.files(table)]
        if not files:
            nothing = ", ".join(f"NULL::{type} AS {name}" for name, type in columns.items())
            return f"CREATE VIEW {table} AS SELECT NULL::VARCHAR AS run, NULL::VARCHAR AS host, {nothing} WHERE false"
        types = "{" + ", ".join(f"{name}: '{type}'" for name, type in columns.items()) + "}"
        names = "[" + ", ".join(f"'{path}'" for path, _, _ in files) + "]"
        return (
            f"CREATE VIEW {table} AS SELECT parse_path(filename)[-3] AS run, parse_path(filename)[-2] AS host, "
            f"* EXCLUDE (filename) FROM read_json({names}, format = 'newline_delimited', ignore_errors = true, "
            f"filename = true, columns = {types}) WHERE timestamp IS NOT NULL"
        )


def _columns(table: str) -> dict[str, str]:
    """Every column of a table and its type."""
    columns = {"timestamp": "TIMESTAMP", "elapsed_seconds": "DOUBLE"}
    if table == "events":
        return columns | {"kind": "VARCHAR", "severity": "VARCHAR", "message": "VARCHAR"}
    columns |= {name: _LABEL_TYPES.get(name, "VARCHAR") for name in LABELS[table]}
    columns |= {metric.field: _type(metric) for metric in METRICS if metric.table == table}
    return columns


def _type(metric: Metric) -> str:
    if metric.by:
        return "MAP(VARCHAR, DOUBLE)"
    return {"text": "VARCHAR", "words": "VARCHAR[]"}.get(metric.kind, "DOUBLE")


def _plain(column: Array) -> Array:
    if column.dtype.kind in "iufb":
        numbers: Any = np.ma.asarray(column, dtype=float)
        return np.asarray(numbers.filled(np.nan))
    return np.ma.asarray(column).filled(None) if column.dtype.kind == "O" else np.asarray(column)

"""Runs as tables, through DuckDB: gpu, mig, host, process, training, events, runs.

Every declared column is there, null where a run has no such value, so that a query never fails on an older folder; what
else the lines have becomes columns after these. Lines that cannot be read are left out and counted.

A table is opened when a query first names it. Its JSON lines are then loaded into memory, once; sealed Parquet files
stay where they are. So the tables show the runs as they were at that moment, whatever is written or sealed afterwards.
"""

import contextlib
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from os import getpid
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.runs.folder import RunFolder, is_whole
from pulsetrain.runs.lines import file_list, line_query, quoted
from pulsetrain.runs.tables import EVENT, LINE_TABLES, OTHER, TABLES, columns

Array = npt.NDArray[Any]

DAMAGED_LINES = "pulsetrain.damaged_lines"
"""How many lines a sealed file could not take, in its own metadata."""
_TRIES = 5
"""To open a table while files are being sealed, that is, replaced by others."""
_BATCH = 10_000
_NUMBER = re.compile(r"(DOUBLE|FLOAT|DECIMAL.*|\w*INT(EGER)?)$")
_HARMLESS = {duckdb.StatementType.SELECT, duckdb.StatementType.MULTI}
"""What a user may run. MULTI is how DuckDB calls a PIVOT."""


class Database:
    """A connection that sees these runs as tables."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = [RunFolder(run.path.resolve()) for run in runs]
        self._connection = duckdb.connect()
        self._connection.execute("ATTACH ':memory:' AS loaded (COMPRESS)")
        self._connection.execute("CREATE SCHEMA lines")
        self._connection.execute("SET python_enable_replacements = false")  # variables of ours are no tables
        self._connection.execute("SET parquet_metadata_cache = true")  # sealed files never change
        self._connection.execute(f"SET temp_directory = {quoted(f'{tempfile.gettempdir()}/pulsetrain-{getpid()}')}")
        self._opened: set[str] = set()
        self._known: dict[str, list[tuple[Any, ...]]] = {}
        self.damaged_so_far = 0
        """Lines that could not be read, in the tables that have been opened."""
        self._sealed: list[Path] = []
        self.unreadable: list[Path] = []
        """Sealed files of the opened tables that are not whole, and left out."""

    def arrays(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Array]:
        """The columns of a query's result. Numbers are floats, NaN where there is none; all else is objects."""
        found = self.execute(sql, parameters).fetchnumpy()
        return {name: _plain(column) for name, column in found.items()}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """The rows of a small result."""
        result = self.execute(sql, parameters)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> duckdb.DuckDBPyConnection:
        """Run a query; the result is to be fetched before the next one."""
        self._open_named(sql)
        return self._connection.execute(sql, parameters)

    def ask(self, sql: str) -> "Result":
        """Run a query of the user's: the last one of a database, which from here on can reach its open tables alone."""
        with _told():
            self._take(sql)
            self._confine()
            return Result(self._connection.execute(sql))

    def write_parquet(self, sql: str, path: Path) -> None:
        """Write what a query of the user's gives into a file; otherwise as `ask`."""
        with _told():
            self._take(sql)
            self._confine(path)
            try:
                self._connection.sql(sql).write_parquet(str(path))
            except duckdb.IOException as error:
                raise OSError(str(error)) from None

    def span(self, table: str) -> tuple[float, float] | None:
        """Elapsed seconds of the first and the last line of a table; None when it has none."""
        ((first, last),) = self._once(f"SELECT min(elapsed_seconds), max(elapsed_seconds) FROM {table}")
        return None if first is None else (first, last)

    def distinct(self, table: str, names: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """The different values that these columns have together."""
        return self._once(f"SELECT DISTINCT {', '.join(names)} FROM {table} ORDER BY ALL")

    def count(self, table: str) -> int:
        """How many rows a table has."""
        ((rows,),) = self._once(f"SELECT count(*) FROM {table}")
        return int(rows)

    def columns(self, table: str) -> dict[str, str]:
        """Name and type of each column of a table, those found in these runs included."""
        return {name: type for name, type, *_ in self._once(f"DESCRIBE {table}")}

    @property
    def damaged_lines(self) -> int:
        """Lines that could not be read, in all tables."""
        for table in LINE_TABLES:
            self._open(table)
        return self.damaged_so_far

    def close(self) -> None:
        self._connection.close()

    def _once(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Rows that are kept: the tables stay as they are once they are open."""
        if sql not in self._known:
            self._known[sql] = self.execute(sql).fetchall()
        return self._known[sql]

    def _open_named(self, sql: str) -> None:
        """Open the tables whose names stand in a query, or all when there is none, as in `SHOW TABLES`."""
        words = set(re.findall(r"\w+", sql.lower()))
        for table in [table for table in TABLES if table in words] or TABLES:
            self._open(table)

    def _open(self, table: str) -> None:
        if table in self._opened:
            return
        if table == "runs":
            self._connection.execute(_runs_view(self._runs))
        else:
            self._open_lines(table)
        self._opened.add(table)

    def _open_lines(self, table: str) -> None:
        for tries in range(1, _TRIES + 1):
            files = [file for run in self._runs for file in run.files(table)]
            sealed = [file for file in files if file.suffix == ".parquet" and is_whole(file)]
            try:
                damaged = self._load(table, [file for file in files if file.suffix == ".jsonl"])
                damaged += self._damaged_when_sealed(sealed)
                self._connection.execute(_lines_view(table, sealed))
                break
            except duckdb.IOException as error:  # a file was sealed and went away since it was listed
                if tries == _TRIES:
                    raise PulsetrainError(f"the table {table} cannot be read: {error}") from None
        self._connection.execute(_view(table))
        self.damaged_so_far += damaged
        self._sealed += sealed
        self.unreadable += [file for file in files if file.suffix == ".parquet" and file not in sealed]

    def _load(self, table: str, files: Sequence[Path]) -> int:
        """Load JSON lines, and count those that cannot be read."""
        if not files:
            nothing = ", ".join(f"NULL::{column.type} AS {column.name}" for column in columns(table))
            event = f", NULL::VARCHAR AS {EVENT}" if table == "training" else ""
            self._connection.execute(f"CREATE OR REPLACE TABLE loaded.{table} AS SELECT {nothing}{event} WHERE false")
            return 0
        unfinished = sum(map(_ends_within_a_line, self._growing(files)))
        lines = line_query(self._connection, table, files)
        self._connection.execute(f"CREATE OR REPLACE TABLE loaded.{table} AS {_placed(f'({lines})')}")
        deleted = self._connection.execute(f"DELETE FROM loaded.{table} WHERE timestamp IS NULL").fetchone()
        return max(0, (deleted[0] if deleted else 0) - unfinished)

    def _growing(self, files: Sequence[Path]) -> list[Path]:
        """Those of a run that goes on: the rest of a half line may be on its way."""
        running = {run.path for run in self._runs if _status(run) == "running"}
        return [file for file in files if file.parent.parent in running]

    def _damaged_when_sealed(self, files: Sequence[Path]) -> int:
        if not files:
            return 0
        found = self._connection.execute(
            f"SELECT coalesce(sum(value::VARCHAR::BIGINT), 0)::BIGINT FROM parquet_kv_metadata({file_list(files)}) "
            f"WHERE key::VARCHAR = '{DAMAGED_LINES}'"
        ).fetchone()
        return int(found[0]) if found else 0

    def _take(self, sql: str) -> None:
        """Prepare for a query of the user's, if it is one that changes nothing."""
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _HARMLESS:
            raise UsageError("a query is one SELECT.", hint=f"The tables are {', '.join(TABLES)}.")
        self._open_named(sql)

    def _confine(self, *outputs: Path) -> None:
        paths = [*self._sealed, *outputs]
        self._connection.execute(f"SET allowed_paths = [{', '.join(quoted(str(path)) for path in paths)}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")


class Result:
    """What a user's query gives. It is worked out while it is read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        described = connection.description or []
        self.names = [str(name) for name, *_ in described]
        self.numeric = [_NUMBER.match(str(type)) is not None for _, type, *_ in described]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        with _told():
            while batch := self._connection.fetchmany(_BATCH):
                yield from batch


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What is wrong with a query becomes an error for the user, in DuckDB's words."""
    try:
        yield
    except duckdb.Error as error:
        hint = f"The tables are {', '.join(TABLES)}; `pulsetrain query --schema` shows their columns."
        raise UsageError(str(error), hint=hint) from None


def _placed(lines: str) -> str:
    """Lines with their run and host, which are the folders they lie in."""
    return (
        f"SELECT parse_path(filename)[-3] AS run, parse_path(filename)[-2] AS host, * EXCLUDE (filename) FROM {lines}"
    )


def _lines_view(table: str, sealed: Sequence[Path]) -> str:
    """All lines of a table, also those that are no rows of it: what was loaded, and what is sealed."""
    view = f"CREATE OR REPLACE VIEW lines.{table} AS SELECT * FROM loaded.{table}"
    if not sealed:
        return view
    files = f"read_parquet({file_list(sealed)}, union_by_name = true, filename = true)"
    return f"{view} UNION ALL BY NAME {_placed(files)}"


def _view(table: str) -> str:
    if table == "training":
        return (
            f"CREATE VIEW {table} AS SELECT * EXCLUDE ({OTHER.name}, {EVENT}), {OTHER.name} "
            f"FROM lines.{table} WHERE {EVENT} IS NULL"
        )
    return f"CREATE VIEW {table} AS SELECT * EXCLUDE ({OTHER.name}), {OTHER.name} FROM lines.{table}"


def _runs_view(runs: Sequence[RunFolder]) -> str:
    """The table of runs, with all its rows in it."""
    types = {column.name: column.type for column in columns("runs")}
    structure = [{name: [type[:-2]] if type.endswith("[]") else type for name, type in types.items()}]
    rows, shape = (msgspec.json.encode(part).decode() for part in (list(map(_run_row, runs)), structure))
    listed = f"unnest(json_transform({quoted(rows)}, {quoted(shape)}))"
    return f"CREATE VIEW runs AS SELECT unnest(row) FROM (SELECT {listed} AS row)"


def _run_row(folder: RunFolder) -> dict[str, Any]:
    try:
        run = folder.load()
    except PulsetrainError:
        return {"run": folder.path.name}
    gpus = [gpu for host in run.hosts.values() for gpu in host.gpus]
    return {
        "run": folder.path.name,
        "id": run.id,
        "name": run.name,
        "command": shlex.join(run.command),
        "directory": run.directory,
        "tags": run.tags,
        "start_time": run.start,
        "end_time": run.end,
        "seconds": (run.end - run.start).total_seconds() if run.end else None,
        "status": run.status,
        "exit_code": run.exit_code,
        "hosts": sorted(run.hosts),
        "gpus": len(gpus),
        "gpu_names": [str(gpu.get("name", "")) for gpu in gpus],
        "simulated": run.simulated,
        "interval_seconds": run.interval_seconds,
        "lost_samples": run.lost_samples,
    }


def _status(run: RunFolder) -> str | None:
    try:
        return run.load().status
    except PulsetrainError:
        return None


def _ends_within_a_line(jsonl: Path) -> bool:
    with jsonl.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 2**20))
        last = file.read().rpartition(b"\n")[2]
    try:
        msgspec.json.decode(last or b"{}")
    except msgspec.DecodeError:
        return True
    return False


def _plain(column: Array) -> Array:
    if column.dtype.kind in "iufb":
        numbers: Any = np.ma.asarray(column, dtype=float)
        return np.asarray(numbers.filled(np.nan))
    if column.dtype.kind == "M":
        return np.asarray(np.ma.asarray(column).filled(np.datetime64("NaT")))
    objects: Array = np.array(np.ma.getdata(column), dtype=object)
    objects[np.ma.getmaskarray(column)] = None
    return objects

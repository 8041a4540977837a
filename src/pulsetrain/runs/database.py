"""Runs as tables, through DuckDB: gpu, mig, host, process, training, events, runs, config.

Every declared column is there, null where a run has no such value, so that a query never fails on an older folder; what
else the lines have becomes columns after these. Lines that cannot be read are left out and counted.

Two views are for our own queries, in schemas of their own: `boards.gpu` has the column `board`, which tells the GPUs of
a host apart, also one that did not answer at the start, and `first_rank.training` has the lines of one rank of each
run, as all ranks do the same steps.

A table is opened when a query first names it. Its JSON lines are then loaded into memory, once; sealed Parquet files
stay where they are. So the tables show the runs as they were at that moment, whatever is written or sealed afterwards.
"""

import contextlib
import re
import shlex
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from os import getpid
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.regular_files import open_regular
from pulsetrain.runs.codec import NOTE
from pulsetrain.runs.folder import RunFolder, is_whole
from pulsetrain.runs.line_columns import file_list, line_query, quoted, utc_column
from pulsetrain.runs.line_file import without_long_lines
from pulsetrain.runs.tables import LINE_TABLES, OTHER, TABLES, columns
from pulsetrain.untrusted import showable_document

Array = npt.NDArray[Any]

DAMAGED_LINES = "pulsetrain.damaged_lines"
"""How many lines a sealed file could not take, in its own metadata."""
_TRIES = 5
"""To open a table while files are being sealed, that is, replaced by others."""
_BATCH = 10_000
_NUMBER = re.compile(r"(DOUBLE|FLOAT|DECIMAL.*|\w*INT(EGER)?)$")
_OWN_VIEWS = {
    # A board that did not answer at the start has neither UUID nor name in its first lines: it gets those of the later.
    "boards": (
        "gpu",
        """
        SELECT gpu.* REPLACE (coalesce(gpu.uuid, later.uuid) AS uuid, coalesce(later.name, gpu.name) AS name),
            coalesce(gpu.uuid, later.uuid, gpu.gpu_index::VARCHAR) AS board
        FROM main.gpu AS gpu LEFT JOIN (
            SELECT run, host, gpu_index, any_value(uuid) AS uuid, any_value(name) AS name,
                min(elapsed_seconds) AS since
            FROM main.gpu WHERE uuid IS NOT NULL AND (run, host, gpu_index) IN (
                SELECT (run, host, gpu_index) FROM main.gpu WHERE uuid IS NULL  -- none, as a rule: nothing to look up
            ) GROUP BY run, host, gpu_index
        ) AS later ON gpu.uuid IS NULL AND gpu.run = later.run AND gpu.host = later.host
            AND gpu.gpu_index = later.gpu_index AND gpu.elapsed_seconds < later.since""",
    ),
    # The lowest rank that has steps; of a run without steps, the lowest. One that is not named is rank 0.
    "first_rank": (
        "training",
        """
        SELECT training.* FROM main.training AS training JOIN (
            SELECT run, coalesce(min(number) FILTER (step_seconds IS NOT NULL), min(number)) AS first
            FROM (SELECT run, coalesce(rank, 0) AS number, step_seconds FROM main.training) GROUP BY run
        ) AS ranks ON training.run = ranks.run AND coalesce(training.rank, 0) = ranks.first""",
    ),
}
"""By the name of their schema: the table that each is a view of, and its query."""
_HARMLESS = {duckdb.StatementType.SELECT, duckdb.StatementType.MULTI}
"""What a user may run. MULTI is how DuckDB calls a PIVOT."""


class HostShift(NamedTuple):
    """What to add to the times of a host's lines, so that they are those of another host."""

    seconds: float
    """To its elapsed seconds."""
    rate: float
    """Of its elapsed seconds, beside that."""
    clock_seconds: float
    """To its time stamps."""

    def on_run_time(self, elapsed: float) -> float:
        """Elapsed seconds of the host, on the other host's time."""
        return elapsed + self.seconds + self.rate * elapsed


class Database:
    """A connection that sees these runs as tables."""

    def __init__(self, runs: Sequence[RunFolder], *, without: Collection[Path] = ()) -> None:
        """`without` are files to be left out, named without their suffix."""
        self._runs = [RunFolder(run.path.resolve()) for run in runs]
        self._without = frozenset(without)
        self._connection = duckdb.connect()
        self._connection.execute("ATTACH ':memory:' AS loaded (COMPRESS)")
        for schema in ("lines", *_OWN_VIEWS):
            self._connection.execute(f"CREATE SCHEMA {schema}")
        self._connection.execute("SET python_enable_replacements = false")  # variables of ours are no tables
        self._connection.execute("SET parquet_metadata_cache = true")  # sealed files never change
        self._connection.execute(f"SET temp_directory = {quoted(f'{tempfile.gettempdir()}/pulsetrain-{getpid()}')}")
        self._opened: set[str] = set()
        self._known: dict[str, list[tuple[Any, ...]]] = {}
        self.damaged_so_far = 0
        """Lines that could not be read, in the tables that have been opened."""
        self._sealed: list[Path] = []
        self.shifts: dict[str, HostShift] = {}
        """By host, since `shift_hosts`. Times inside notes are those of their host."""
        self._files: dict[str, list[Path]] = {}
        """The sealed ones of each table that is open."""
        self.unreadable: list[Path] = []
        """Sealed files of the opened tables that are incomplete, and left out."""

    def arrays(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Array]:
        """The columns of a query's result. Numbers are floats, NaN where there is none; all else is objects."""
        with self.damage_told():
            found = self.execute(sql, parameters).fetchnumpy()
        return {name: _plain(column) for name, column in found.items()}

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """The rows of a small result, in which all text is fit to be shown."""
        return [showable_document(row) for row in self.raw_rows(sql, parameters)]

    def raw_rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """The rows of a small result, with the text that was recorded."""
        with self.damage_told():
            result = self.execute(sql, parameters)
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    @contextlib.contextmanager
    def damage_told(self) -> Iterator[None]:
        """For `execute` and what is fetched of it: a sealed file that is damaged within is an error for the user.

        It has its end, so that it counts as whole, and a query finds out only when it comes to the place.
        """
        try:
            yield
        except duckdb.Error as error:
            if not self._sealed:
                raise
            reason = str(error).partition("\n")[0].removesuffix(".")
            hint = "Restore the run's .parquet files from a backup, or rename the damaged one to leave it out."
            raise PulsetrainError(f"a sealed file is damaged: {reason}.", hint=hint) from None

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> duckdb.DuckDBPyConnection:
        """Run a query; the result is to be fetched before the next one."""
        self._open_named(sql)
        return self._connection.execute(sql, parameters)

    def ask(self, sql: str) -> "Result":
        """Run a query of the user's: the last one of a database, which from here on can reach its open tables alone."""
        with _query_errors():
            self._take(sql)
            self._confine()
            return Result(self._connection.execute(sql))

    def write_parquet(self, sql: str, path: Path) -> None:
        """Write what a query of the user's gives into a file; otherwise as `ask`."""
        with _query_errors():
            self._take(sql)
            self._confine(path)
            try:
                found = self._connection.sql(sql)
                columns = zip(found.columns, map(str, found.types), strict=True)
                found.project(", ".join(utc_column(*column) for column in columns)).write_parquet(str(path))
            except duckdb.IOException as error:
                raise OSError(str(error)) from None

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

    @property
    def names_without_column(self) -> int:
        """How many names a program logged beyond those that have a column; their values are in `other`."""
        ((count,),) = self._once(
            "SELECT count(DISTINCT name) FROM (SELECT unnest(json_keys(other)) AS name FROM training)"
        )
        return int(count)

    def shift_hosts(self, shifts: Mapping[str, HostShift]) -> None:
        """Show the lines of these hosts on another host's time, from now on: for a database of one run."""
        self.shifts = dict(shifts)
        self._known.clear()
        for table, sealed in self._files.items():
            self._connection.execute(_lines_view(table, sealed, self.shifts))

    def close(self) -> None:
        self._connection.close()

    def _once(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Rows that are kept: the tables stay as they are once they are open."""
        if sql not in self._known:
            with self.damage_told():
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
            self._connection.execute(_rows_view("runs", list(map(_run_row, self._runs))))
        elif table == "config":
            self._connection.execute(_rows_view("config", [row for run in self._runs for row in _config_rows(run)]))
        else:
            self._open_lines(table)
        self._opened.add(table)

    def _open_lines(self, table: str) -> None:
        for tries in range(1, _TRIES + 1):
            files = [file for run in self._runs for file in run.files(table)]
            files = [file for file in files if file.with_suffix("") not in self._without]
            sealed = [file for file in files if file.suffix == ".parquet" and is_whole(file)]
            try:
                damaged = self._load(table, [file for file in files if file.suffix == ".jsonl"])
                damaged += self._damaged_when_sealed(sealed)
                self._connection.execute(_lines_view(table, sealed, self.shifts))
                break
            except (duckdb.Error, OSError) as error:  # a file was sealed and went away since it was listed
                if tries == _TRIES or not isinstance(error, duckdb.IOException | FileNotFoundError):
                    raise PulsetrainError(f"the table {table} cannot be read: {error}") from None
        self._connection.execute(_view(table))
        for schema, (about, query) in _OWN_VIEWS.items():
            if about == table:
                self._connection.execute(f"CREATE VIEW {schema}.{table} AS {query}")
        self.damaged_so_far += damaged
        self._sealed += sealed
        self._files[table] = sealed
        self.unreadable += [file for file in files if file.suffix == ".parquet" and file not in sealed]

    def _load(self, table: str, files: Sequence[Path]) -> int:
        """Load JSON lines, and count those that cannot be read."""
        if not files:
            nothing = ", ".join(f"NULL::{column.type} AS {column.name}" for column in columns(table))
            event = f", NULL::VARCHAR AS {NOTE}" if table == "training" else ""
            self._connection.execute(f"CREATE OR REPLACE TABLE loaded.{table} AS SELECT {nothing}{event} WHERE false")
            return 0
        unfinished = sum(map(_ends_within_a_line, self._growing(files)))
        try:
            damaged = self._load_files(table, files)
        except duckdb.InvalidInputException:  # a line that is longer than any of ours
            with tempfile.TemporaryDirectory(prefix="pulsetrain-") as folder:
                copies, left_out = without_long_lines(files, Path(folder))
                damaged = left_out + self._load_files(table, copies)
        return max(0, damaged - unfinished)

    def _load_files(self, table: str, files: Sequence[Path]) -> int:
        lines = line_query(self._connection, table, files)
        self._connection.execute(f"CREATE OR REPLACE TABLE loaded.{table} AS {_placed(f'({lines})')}")
        deleted = self._connection.execute(f"DELETE FROM loaded.{table} WHERE timestamp IS NULL").fetchone()
        return int(deleted[0]) if deleted else 0

    def _growing(self, files: Sequence[Path]) -> list[Path]:
        """Those of a run in progress: the rest of a half line may be on its way."""
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
            raise UsageError("a query must be a single SELECT.", hint=f"The tables are {', '.join(TABLES)}.")
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
        with _query_errors():
            while batch := self._connection.fetchmany(_BATCH):
                yield from batch


@contextlib.contextmanager
def _query_errors() -> Iterator[None]:
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


def _lines_view(table: str, sealed: Sequence[Path], shifts: Mapping[str, HostShift]) -> str:
    """All lines of a table, also those that are no rows of it: what was loaded, and what is sealed."""
    lines = f"SELECT * FROM loaded.{table}"
    if sealed:
        files = f"read_parquet({file_list(sealed)}, union_by_name = true, filename = true)"
        lines = f"{lines} UNION ALL BY NAME {_placed(files)}"
    if shifts:
        lines = f"SELECT * REPLACE ({_shifted(shifts)}) FROM ({lines})"
    return f"CREATE OR REPLACE VIEW lines.{table} AS {lines}"


def _shifted(shifts: Mapping[str, HostShift]) -> str:
    """The columns of time on another host's."""

    def by_host(values: Mapping[str, float]) -> str:
        cases = " ".join(f"WHEN {quoted(host)} THEN {value!r}" for host, value in values.items())
        return f"CASE host {cases} ELSE 0 END"

    seconds = by_host({host: float(shift.seconds) for host, shift in shifts.items()})
    rate = by_host({host: float(shift.rate) for host, shift in shifts.items()})
    stamp = by_host({host: round(1e6 * shift.clock_seconds) for host, shift in shifts.items()})
    return (
        f"elapsed_seconds + {seconds} + elapsed_seconds * {rate} AS elapsed_seconds, "
        f"timestamp + to_microseconds({stamp}) AS timestamp"
    )


def _view(table: str) -> str:
    if table == "training":
        return (
            f"CREATE VIEW {table} AS SELECT * EXCLUDE ({OTHER.name}, {NOTE}), {OTHER.name} "
            f"FROM lines.{table} WHERE {NOTE} IS NULL"
        )
    if table == "events":  # older versions wrote `error`
        severity = "CASE severity WHEN 'error' THEN 'critical' ELSE severity END AS severity"
        everything = f"* EXCLUDE ({OTHER.name}) REPLACE ({severity})"
    else:
        everything = f"* EXCLUDE ({OTHER.name})"
    return f"CREATE VIEW {table} AS SELECT {everything}, {OTHER.name} FROM lines.{table}"


def _rows_view(table: str, table_rows: Sequence[Mapping[str, Any]]) -> str:
    """A table about runs, with all its rows in it."""
    types = {column.name: column.type for column in columns(table)}
    structure = [{name: [type[:-2]] if type.endswith("[]") else type for name, type in types.items()}]
    rows, shape = (msgspec.json.encode(part).decode() for part in (table_rows, structure))
    listed = f"unnest(json_transform({quoted(rows)}, {quoted(shape)}))"
    return f"CREATE VIEW {table} AS SELECT unnest(row) FROM (SELECT {listed} AS row)"


def _config_rows(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """What a run was, by dotted names."""
    try:
        run = folder.load()
    except PulsetrainError:
        return
    places = {name: msgspec.to_builtins(host.place) for name, host in run.hosts.items() if host.place}
    kinds = {
        "config": run.config,
        "versions": run.versions,
        "training": run.training,
        "code": msgspec.to_builtins(run.code) if run.code else {},
        "place": next(iter(places.values()), {}) if len(places) < 2 else places,
        "environment": run.environment,
    }
    for kind, values in kinds.items():
        for name, value in flat_values(values):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            number = float(value) if is_number else None
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield {"run": folder.path.name, "kind": kind, "name": name, "value": text, "number": number}


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted name: `{"model": {"depth": 12}}` is `model.depth`."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_values(value, f"{prefix}{key}.")
        else:
            yield prefix + str(key), value


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
        "project": run.project,
        "tags": run.tags,
        "config": run.config,
        "start_time": run.start,
        "end_time": run.end,
        "seconds": run.seconds,
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
    with open_regular(jsonl) as file:
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

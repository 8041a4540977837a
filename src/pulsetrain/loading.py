"""`pulsetrain.load("last")`: a recorded run in Python, its series as arrays or data frames, and its report."""

from contextlib import closing
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.errors import UsageError
from pulsetrain.insight.own_metrics import Floats
from pulsetrain.insight.report import Report, make_report
from pulsetrain.runs.database import Database
from pulsetrain.runs.description import Code, NotedFile
from pulsetrain.runs.folder import Home, Run, RunFolder
from pulsetrain.runs.line_columns import identifier
from pulsetrain.runs.tables import LINE_TABLES


def load(run: str = "last", directory: str | None = None) -> "RecordedRun":
    """A run by id, unique start of an id, name, path, or `last`; `directory` is another folder of runs."""
    return RecordedRun(Home.find(directory).resolve(run))


class RecordedRun:
    """A run on disk, in progress or not. Each call reads its files again; the report is read once."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"<run {self._folder.path.name}, {self.about.status}>"

    @property
    def about(self) -> Run:
        """Id, name, project, command, tags, times, status, hosts: what run.json holds."""
        return self._folder.load()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the training, nested as they were given."""
        return self.about.config

    @property
    def versions(self) -> dict[str, str]:
        """Of Python, the frameworks, CUDA, the driver: `{"torch": "2.13.0"}`."""
        return self.about.versions

    @property
    def code(self) -> Code | None:
        """Commit, branch, whether there were changes, and the name of the file in `path` that has them."""
        return self.about.code

    @property
    def files(self) -> list[NotedFile]:
        """Checkpoints and other artifacts: path, size, checksum, step. They are where the training wrote them."""
        return self.about.files

    @cached_property
    def report(self) -> Report:
        """All figures that `pulsetrain report --json` prints."""
        return make_report(self._folder)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts, lists and numbers, as `pulsetrain report --json` prints it."""
        document: dict[str, Any] = msgspec.to_builtins(self.report)
        return document

    def series(self, *names: str, table: str = "training") -> dict[str, Floats]:
        """Columns of a table as NumPy arrays over `elapsed_seconds`, in the order of time, NaN where there is no value.

        Lines without any of the values are left out: `load().series("val_loss")`.
        """
        with closing(Database([self._folder])) as database:
            known = database.columns(_checked(table))
            if missing := [name for name in names if name not in known]:
                raise UsageError(f"the table {table} has no column {missing[0]!r}.", hint=f"It has {', '.join(known)}.")
            wanted = ", ".join(map(identifier, dict.fromkeys(("elapsed_seconds", *names))))
            any_of_them = " OR ".join(f"{identifier(name)} IS NOT NULL" for name in names) or "true"
            return database.arrays(f"SELECT {wanted} FROM {table} WHERE {any_of_them} ORDER BY elapsed_seconds")

    def frame(self, table: str = "training") -> Any:
        """A whole table as a pandas DataFrame: training, gpu, host, process, events, ..."""
        try:
            import_module("pandas")
        except ImportError:
            raise UsageError("a data frame needs pandas.", hint="pip install pandas") from None
        with closing(Database([self._folder])) as database, database.damage_told():
            return database.execute(f"SELECT * FROM {_checked(table)} ORDER BY timestamp").df()


def _checked(table: str) -> str:
    if table not in LINE_TABLES:
        raise UsageError(f"there is no table {table!r}.", hint=f"The tables are {', '.join(LINE_TABLES)}.")
    return table

"""One table of a run that is not long: each field is read whole when first asked for, and kept."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulsetrain.insight.own_metrics import own_names
from pulsetrain.runs.line_columns import identifier
from pulsetrain.views.web.chart_columns import (
    ChartColumn,
    InView,
    KnownSubject,
    SubjectKey,
    Tails,
    read_columns,
    subject_label,
)

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

SOURCES = {
    "gpu": "(SELECT *, board AS subject FROM boards.gpu WHERE up IS NOT NULL)",
    "host": "(SELECT *, '' AS subject FROM host)",
    "training": "(SELECT *, '' AS subject FROM first_rank.training)",
    "account": "(SELECT *, '' AS subject FROM account)",
}
"""The tables that charts are drawn from, with a column `subject` that tells their subjects on one host apart."""
_SIMPLE = {
    "gpu": (
        "SELECT count(*) = 0 FROM gpu WHERE uuid IS NULL",
        "(SELECT *, uuid AS subject FROM gpu WHERE up IS NOT NULL)",
    ),
    "training": (
        "SELECT count(DISTINCT coalesce(rank, 0)) < 2 FROM training",
        "(SELECT *, '' AS subject FROM training)",
    ),
}
"""Whether a table needs none of our own views, and what is read of it then."""


class WholeTable:
    """Its readings, all in memory once they are asked for."""

    def __init__(self, table: str, database: "Callable[[], Database]", tails: Tails) -> None:
        self._table = table
        self._open = database
        self._tails = tails
        self._columns: dict[str, list[ChartColumn]] = {}
        self._subjects: list[KnownSubject] | None = None
        self._chosen_source = ""

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for columns in self._columns.values() for column in columns)

    def own_names(self) -> list[str]:
        """Names that the program made up."""
        return own_names(self._open()) if self._table == "training" else []

    def seen(self, names: Sequence[str]) -> set[str]:
        """Those of these fields that have any value."""
        database = self._open()
        known = database.columns(self._table)
        fields = [name for name in names if name in known]
        if not fields or not database.count(self._table):
            return set()
        asked = ", ".join(f"bool_or({identifier(name)} IS NOT NULL)" for name in fields)
        (row,) = database.execute(f"SELECT {asked} FROM {self._source()}").fetchall()
        return {name for name, is_seen in zip(fields, row, strict=True) if is_seen}

    def usual(self, name: str) -> float | None:
        """The median of a field."""
        found = self._open().execute(f"SELECT median({identifier(name)}) FROM {self._source()}").fetchall()
        return None if found[0][0] is None else float(found[0][0])

    def subjects(self) -> list[KnownSubject]:
        """In their order."""
        if self._subjects is None:
            number = "any_value(gpu_index)" if self._table == "gpu" else "NULL::INTEGER"
            query = (
                f"SELECT host, subject, {number} AS number, max(elapsed_seconds) FROM {self._source()} "
                "GROUP BY host, subject ORDER BY host, number"
            )
            rows = self._open().execute(query).fetchall()
            several = len({host for host, *_ in rows}) > 1
            self._subjects = [
                KnownSubject(
                    SubjectKey(host, subject), subject_label(self._table, host, number, several=several), until, number
                )
                for host, subject, number, until in rows
            ]
        return self._subjects

    def columns(self, names: Sequence[str], view: InView) -> dict[str, list[ChartColumn]]:
        """All readings of these fields, whatever is in view."""
        missing = [name for name in names if name not in self._columns]
        subjects = self.subjects() if missing else []
        read = read_columns(self._open(), self._table, self._source(), subjects, missing) if missing else {}
        nothing = np.empty(0), np.empty(0)
        for name, found in read.items():
            self._columns[name] = []
            for subject in subjects:
                own, tail = found.get(subject.key, nothing), self._tails.of(self._table, name, subject.key)
                if own[0].size or tail[0]:
                    self._columns[name].append(ChartColumn(subject.key, subject.label, *own, tail))
        return {name: self._columns[name] for name in names}

    def latest(self, names: Sequence[str]) -> dict[str, list[ChartColumn]] | None:
        """The same, for what came since; None where not all of these have been asked for."""
        return {name: self._columns[name] for name in names} if set(names) <= self._columns.keys() else None

    def _source(self) -> str:
        """What is read of the table.

        Boards that did not answer at the start have no UUID in their first lines, and a run may have several ranks: to
        look them up takes as long as all the rest, so it is left out where there is nothing to look up.
        """
        if not self._chosen_source:
            self._chosen_source = SOURCES[self._table]
            if self._table in _SIMPLE:
                question, source = _SIMPLE[self._table]
                ((simple,),) = self._open().execute(question).fetchall()
                self._chosen_source = source if simple else SOURCES[self._table]
        return self._chosen_source

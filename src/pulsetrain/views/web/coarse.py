"""The tables of a long run in stretches of readings: from the pyramids beside its sealed files, and its other lines."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from pulsetrain.runs.codec import NOTE
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.pyramid import (
    Array,
    Pyramid,
    PyramidSubject,
    StretchColumn,
    build,
    has_pyramids,
    rate_of,
    read_pyramid,
)

LEAST_ROWS = 100_000
"""A table with fewer is read whole: then every zoom is answered from memory."""


@dataclass
class CoarseSubject:
    """A GPU of a host, a host, a rank: all stretches of its readings, in order of time."""

    host: str
    name: str | None
    number: int | None
    parts: list[PyramidSubject] = field(default_factory=list)

    @property
    def until(self) -> float:
        """Its last reading."""
        return float(self.parts[-1].ends[-1])

    @property
    def starts(self) -> Array:
        return np.concatenate([part.starts for part in self.parts])

    @property
    def ends(self) -> Array:
        return np.concatenate([part.ends for part in self.parts])

    def has(self, name: str) -> bool:
        return any(name in part.columns for part in self.parts)

    def column(self, name: str, *, rate: bool = False) -> StretchColumn:
        """Of one field; of a counter, its rise per second."""
        wanted = rate_of(name) if rate else name
        return reduce(add, (part.columns.get(wanted) or _nothing(part.starts.size) for part in self.parts))

    def count(self, start: float, end: float) -> int:
        """How many stretches there are between two moments."""
        return int(np.searchsorted(self.starts, end) - np.searchsorted(self.ends, start))


@dataclass(frozen=True)
class CoarseTable:
    """The subjects that are shown of a table."""

    subjects: Sequence[CoarseSubject]
    nbytes: int

    @property
    def names(self) -> set[str]:
        """Fields with any value."""
        return {
            name for subject in self.subjects for part in subject.parts for name in part.columns if "\0" not in name
        }

    def count(self, start: float, end: float) -> int:
        """How many stretches the subject with the most of them has between two moments."""
        return max((subject.count(start, end) for subject in self.subjects), default=0)


def open_coarse(folder: RunFolder, table: str) -> CoarseTable | None:
    """None when the table is small, has no pyramids, or must be read whole for another reason."""
    if not has_pyramids(table):
        return None
    found: list[tuple[Path, Pyramid]] = []
    folder = RunFolder(folder.path.resolve())
    files = folder.files(table)
    for file in files:
        pyramid = read_pyramid(file) if file.suffix == ".parquet" else None
        if pyramid:
            found.append((file, pyramid))
    if sum(pyramid.rows for _, pyramid in found) < LEAST_ROWS:
        return None
    parts = [(file.parent.name, subject) for file, pyramid in found for subject in pyramid.subjects]
    if len(found) < len(files):
        parts += _other_lines(folder, table, [file.with_suffix("") for file, _ in found])
    subjects = _joined(parts)
    if subjects is None or (table == "gpu" and any(subject.name is None for subject in subjects)):
        return None
    if table == "training":
        subjects = _first_rank(subjects)
    return CoarseTable(subjects, sum(pyramid.nbytes for _, pyramid in found))


def _other_lines(folder: RunFolder, table: str, without: Sequence[Path]) -> list[tuple[str, PyramidSubject]]:
    """What has no pyramid: the lines that are not sealed yet, and small files."""
    from pulsetrain.runs.database import Database
    from pulsetrain.runs.line_columns import quoted

    with closing(Database([folder], without=without)) as database:
        types = database.columns(table)
        note = f", NULL AS {NOTE}" if table == "training" else ""
        found: list[tuple[str, PyramidSubject]] = []
        for (host,) in database.distinct(table, ["host"]):
            source = f"(SELECT *{note} FROM {table} WHERE host = {quoted(host)})"
            pyramid = build(table, types, lambda sql: database.execute(sql).fetchnumpy(), source)
            found += [(host, subject) for subject in pyramid.subjects]
        return found


def _joined(parts: Sequence[tuple[str, PyramidSubject]]) -> list[CoarseSubject] | None:
    """Subjects with all their parts; None when those of one overlap in time, as of two processes."""
    found: dict[tuple[str, str, int], CoarseSubject] = {}
    for host, part in parts:
        key = (host, part.name or "", -1 if part.number is None else part.number)
        found.setdefault(key, CoarseSubject(host, part.name, part.number)).parts.append(part)
    subjects = [found[key] for key in sorted(found, key=lambda key: (key[0], key[2], key[1]))]
    for subject in subjects:
        subject.parts.sort(key=lambda part: float(part.starts[0]))
        if not (np.diff(subject.starts) > 0).all() or not (subject.starts[1:] > subject.ends[:-1]).all():
            return None
    return subjects


def _first_rank(subjects: Sequence[CoarseSubject]) -> list[CoarseSubject]:
    """The lowest rank that has steps, or the lowest: all ranks do the same steps."""
    numbers = sorted({subject.number or 0 for subject in subjects})
    stepping = [number for number in numbers if any(_is(one, number) and one.has("step_seconds") for one in subjects)]
    first = (stepping or numbers)[0]
    return [subject for subject in subjects if _is(subject, first)]


def _is(subject: CoarseSubject, number: int) -> bool:
    return (subject.number or 0) == number


def _nothing(count: int) -> StretchColumn:
    return StretchColumn(*(np.full(count, np.nan, dtype="<f4") for _ in range(4)))

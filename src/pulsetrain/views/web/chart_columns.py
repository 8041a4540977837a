"""Readings of a run as arrays: one field of one subject each."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from pulsetrain.insight.robust import Floats
from pulsetrain.runs.line_columns import quoted
from pulsetrain.runs.pyramid import floats, number_column
from pulsetrain.untrusted import showable
from pulsetrain.views.web.coarse import CoarseSubject
from pulsetrain.views.web.thinning import Stretches

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

Tail: TypeAlias = "tuple[array[float], array[float]]"
"""Times and values, to be appended to."""


@dataclass(frozen=True)
class SubjectKey:
    """One line's subject: a GPU of a host, a host, the first rank."""

    host: str
    subject: str


class KnownSubject(NamedTuple):
    key: SubjectKey
    label: str
    """What tells the subject apart from the others of its table; empty where there is one alone."""
    until: float
    """Its last reading in the files."""
    number: int | None
    """Of a GPU on its host."""


class Tails:
    """What came of a run in progress since its files were read."""

    def __init__(self) -> None:
        self._tails: dict[tuple[str, str, SubjectKey], Tail] = {}

    def of(self, table: str, name: str, key: SubjectKey) -> Tail:
        return self._tails.setdefault((table, name, key), (array("d"), array("d")))


@dataclass
class ChartColumn:
    """One field of one subject over elapsed time, without NaN."""

    key: SubjectKey
    label: str
    times: Floats
    values: Floats
    newer: Tail
    """What came since the files were read."""
    name: str = ""
    coarse: CoarseSubject | None = None
    """Where stretches of readings are enough; `times` and `values` are the last reading alone then."""

    @property
    def nbytes(self) -> int:
        return self.times.nbytes + self.values.nbytes

    def read(self, *, rate: bool = False) -> tuple[Floats, Floats]:
        """All times and values; of a counter, its rise per second."""
        times, values = self.times, self.values
        if self.newer[0]:
            times = np.concatenate((times, np.array(self.newer[0])))
            values = np.concatenate((values, np.array(self.newer[1])))
        return _rate(times, values) if rate else (times, values)

    def stretches(self, *, rate: bool = False) -> Stretches | None:
        """The same of a long run, in stretches; None where all readings are at hand."""
        if self.coarse is None:
            return None
        column = self.coarse.column(self.name, rate=rate)
        known = ~np.isnan(column.last)
        found = (self.coarse.ends, *column.parts[:2], column.last, column.mean)
        times, low, high, last, mean = (part[known] for part in found)
        late, newer = self.since(float(times[-1]) if times.size else -1.0, rate=rate)
        ends = ((times, late), (low, newer), (high, newer), (last, newer), (mean, newer))
        return Stretches(*(np.concatenate(pair) for pair in ends))

    def since(self, time: float, *, rate: bool = False) -> tuple[Floats, Floats]:
        """What came after a moment, of what is not from the files."""
        before = array("d", self.times[-1:].tolist()), array("d", self.values[-1:].tolist())
        times, values = (np.array(old + new) for old, new in zip(before, self.newer, strict=True))
        if rate:
            times, values = _rate(times, values)
        first = int(np.searchsorted(times, time, "right"))
        return times[first:], values[first:]


class InView(NamedTuple):
    """The part of a run that is asked for."""

    start: float
    end: float
    points: int | None = None
    """So many of a line are enough; None asks for the readings themselves."""
    margin: float = 0.0
    """Seconds on either side that are needed too."""


def read_columns(
    database: "Database", table: str, source: str, subjects: Sequence[KnownSubject], names: Sequence[str]
) -> dict[str, dict[SubjectKey, tuple[Floats, Floats]]]:
    """Times and values of fields, all in one query; `source` is a query too, with a column `subject`."""
    known = database.columns(table)
    present = [name for name in names if name in known]
    columns: dict[str, dict[SubjectKey, tuple[Floats, Floats]]] = {name: {} for name in names}
    if not present or not subjects:
        return columns
    expressions = ", ".join(number_column(table, name, known[name], f"v{place}") for place, name in enumerate(present))
    with database.damage_told():
        found: Mapping[str, Any] = database.execute(
            f"SELECT elapsed_seconds AS t, {_code(subjects)} AS code, {expressions} FROM {source}"
        ).fetchnumpy()
    all_times = floats(found["t"])
    for subject, rows in zip(subjects, _rows(found["code"], len(subjects)), strict=True):
        times = np.ascontiguousarray(all_times[rows])
        rising = bool((np.diff(times) > 0).all())
        for place, name in enumerate(present):
            values = np.ascontiguousarray(floats(found[f"v{place}"])[rows])
            columns[name][subject.key] = _in_order(times, values, rising=rising)
    return columns


def subject_label(table: str, host: str, number: int | None, *, several: bool) -> str:
    """`several`: whether there are several hosts."""
    if table == "gpu":
        return f"{showable(host)}:{number}" if several else f"GPU {number}"
    return showable(host) if several and table != "training" else ""


def _rows(codes: Any, subjects: int) -> list[Any]:
    """Where the rows of each subject are. At each tick, all of them are written in the same order, as a rule."""
    if subjects == 1:
        return [slice(None)]
    plain = np.ma.getdata(codes).astype(np.int16)
    if plain.size % subjects == 0 and (plain.reshape(-1, subjects) == plain[:subjects]).all():
        first = plain[:subjects].tolist()
        if sorted(first) == list(range(subjects)):
            return [slice(first.index(code), None, subjects) for code in range(subjects)]
    order = np.argsort(plain, kind="stable")
    bounds = np.searchsorted(plain[order], np.arange(subjects + 1))
    return [order[start:end] for start, end in pairwise(bounds)]


def _in_order(times: Floats, values: Floats, *, rising: bool) -> tuple[Floats, Floats]:
    """Without NaN, and with each moment once."""
    missing = np.isnan(values)
    if missing.any():
        times, values = times[~missing], values[~missing]
    if not rising:
        times, places = np.unique(times, return_index=True)
        values = values[places]
    return times, values


def _rate(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Per second; a counter that began again has no rate there."""
    if times.size < 2:
        return np.empty(0), np.empty(0)
    rises = np.diff(values) / np.diff(times)
    risen = rises >= 0
    return times[1:][risen], rises[risen]


def _code(subjects: Sequence[KnownSubject]) -> str:
    """SQL of the place of a row's subject in this list; by the number of a GPU, where that tells it."""
    if len(subjects) == 1:
        return "0"
    numbers = [subject.number for subject in subjects if subject.number is not None]
    if len({subject.key.host for subject in subjects}) == 1 and len(set(numbers)) == len(subjects):
        cases = " ".join(f"WHEN {number:d} THEN {place}" for place, number in enumerate(numbers))
        return f"CASE gpu_index {cases} ELSE {len(subjects)} END"
    cases = " ".join(
        f"WHEN host = {quoted(subject.key.host)} AND subject = {quoted(subject.key.subject)} THEN {place}"
        for place, subject in enumerate(subjects)
    )
    return f"CASE {cases} ELSE {len(subjects)} END"

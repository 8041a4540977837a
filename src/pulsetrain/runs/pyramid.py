"""A coarse copy beside a sealed file, so that a week opens like a minute.

Of every 64 readings of a subject it has the least, the most, the last and the mean of each column. It is no more than a
shortcut: where there is none, or one that is cut off, damaged or of another file, readers take the sealed file itself.

The file is a line of JSON, then the arrays it names, one after the other.
"""

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from pulsetrain.catalog import METRICS
from pulsetrain.regular_files import open_regular
from pulsetrain.runs.codec import NOTE

Array: TypeAlias = npt.NDArray[Any]

SUFFIX = ".pyramid"
VERSION = 1
READINGS = 64
"""In a stretch, at most."""
LEAST_ROWS = 20_000
"""A smaller file is read as quickly itself."""
GAP = 5.0
"""So many times the usual distance of two readings is a gap; no stretch reaches across one."""
MOST_BYTES = 512 * 2**20
MOST_SUBJECTS = 4096
_END_BYTES = 64 * 2**10
"""Of a Parquet file, by which it is known again: its end says where in it everything is, and between which values."""
_SUBJECTS = {
    "gpu": ("uuid", "gpu_index", "up IS NOT NULL"),
    "host": ("NULL", "NULL", "true"),
    "training": ("NULL", "coalesce(rank, 0)", f"{NOTE} IS NULL"),
    "account": ("NULL", "NULL", "true"),
}
"""The tables that charts are drawn from: a subject's name and number, and which lines count."""
_NUMBERS = ("DOUBLE", "FLOAT", "DECIMAL", "MAP(VARCHAR, DOUBLE)")
"""Types of the columns that are readings."""
_COUNTED = {(metric.table, metric.field) for metric in METRICS if metric.kind == "counter" and not metric.by}


@dataclass(frozen=True)
class StretchColumn:
    """One column in stretches of readings; NaN in a stretch without any."""

    low: Array
    high: Array
    last: Array
    mean: Array

    def __add__(self, later: "StretchColumn") -> "StretchColumn":
        return StretchColumn(*(np.concatenate(pair) for pair in zip(self.parts, later.parts, strict=True)))

    @property
    def parts(self) -> tuple[Array, Array, Array, Array]:
        return self.low, self.high, self.last, self.mean


@dataclass(frozen=True)
class PyramidSubject:
    """One subject of a table: a GPU, the host, a rank."""

    name: str | None
    number: int | None
    starts: Array
    """Elapsed seconds of the first reading of each stretch."""
    ends: Array
    columns: Mapping[str, StretchColumn]
    """Those with any value. Of a counter there is its rise per second too, by the name of `rate_of`."""


@dataclass(frozen=True)
class Pyramid:
    """All subjects of a file."""

    rows: int
    subjects: Sequence[PyramidSubject]

    @property
    def nbytes(self) -> int:
        return sum(
            subject.starts.nbytes * 2 + sum(part.nbytes for column in subject.columns.values() for part in column.parts)
            for subject in self.subjects
        )


class _DescribedSubject(msgspec.Struct):
    name: str | None
    number: int | None
    stretches: int
    columns: list[str]


class _Head(msgspec.Struct):
    version: int
    parquet: str
    rows: int
    checksum: int
    subjects: list[_DescribedSubject]


def rate_of(name: str) -> str:
    """What the rise of a counter is called. No column of a line can have that name."""
    return f"{name}\0per second"


def has_pyramids(table: str) -> bool:
    return table in _SUBJECTS


def write_pyramid(parquet: Path, table: str) -> bool:
    """Write the pyramid of a sealed file beside it, unless it is small. Returns whether it did."""
    import duckdb

    from pulsetrain.runs.line_columns import file_list

    if not has_pyramids(table):
        return False
    with duckdb.connect(config={"threads": 1}) as connection:
        source = f"read_parquet({file_list([parquet])})"
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {source}").fetchall()
        if rows < LEAST_ROWS:
            return False
        described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        columns = {name: type for name, type, *_ in described}
        found = build(table, columns, lambda sql: connection.execute(sql).fetchnumpy(), source)
    target = parquet.with_suffix(SUFFIX)
    temporary = target.with_name(f".{target.name}")
    temporary.write_bytes(_encoded(found, _fingerprint(parquet)))
    temporary.replace(target)
    return True


def read_pyramid(parquet: Path) -> Pyramid | None:
    """The pyramid beside a sealed file; None when there is none that can be believed."""
    try:
        with open_regular(parquet.with_suffix(SUFFIX)) as file:
            line = file.readline(MOST_BYTES)
            content = file.read(MOST_BYTES)
        head = msgspec.json.decode(line, type=_Head)
        if head.version != VERSION or head.parquet != _fingerprint(parquet) or head.checksum != zlib.crc32(content):
            return None
        return Pyramid(head.rows, list(_decoded(head, content)))
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def build(table: str, types: Mapping[str, str], fetch: Any, source: str) -> Pyramid:
    """The pyramid of the lines of a source in SQL, whose columns have these types; `fetch` runs a query."""
    subject, number, counts = _SUBJECTS[table]
    names = [name for name, type in types.items() if type.startswith(_NUMBERS) and name != "elapsed_seconds"]
    chosen = ", ".join(number_column(table, name, types[name], f"v{place}") for place, name in enumerate(names))
    found = fetch(
        f"SELECT elapsed_seconds AS t, ({subject})::VARCHAR AS name, ({number})::INTEGER AS number"
        f"{', ' if chosen else ''}{chosen} FROM {source} WHERE {counts} AND elapsed_seconds IS NOT NULL"
    )
    times = np.asarray(np.ma.getdata(found["t"]), dtype=float)
    columns = {name: floats(found[f"v{place}"]) for place, name in enumerate(names)}
    subjects = [
        _subject(table, *key, times[rows], {name: values[rows] for name, values in columns.items()})
        for key, rows in _by_subject(found["name"], found["number"])
    ]
    return Pyramid(int(times.size), subjects)


def floats(column: Any) -> Array:
    """Numbers as DuckDB gives them, NaN where there is none."""
    data = np.ma.getdata(column)
    mask = np.ma.getmask(column)
    if mask is not np.ma.nomask and mask.any():
        data[mask] = np.nan
    return data if data.dtype.kind == "f" else np.asarray(data, dtype=float)


def _subject(
    table: str, name: str | None, number: int | None, times: Array, columns: Mapping[str, Array]
) -> PyramidSubject:
    if not (np.diff(times) > 0).all():
        times, places = np.unique(times, return_index=True)
        columns = {name: values[places] for name, values in columns.items()}
    starts = _starts(times)
    ends = np.append(starts[1:], times.size) - 1
    found: dict[str, StretchColumn] = {}
    for field, values in columns.items():
        if np.isnan(values).all():
            continue
        found[field] = _stretches(values, starts)
        if (table, field) in _COUNTED:
            found[rate_of(field)] = _stretches(_rises(times, values), starts)
    return PyramidSubject(name, number, times[starts], times[ends], found)


def _starts(times: Array) -> Array:
    """Where a stretch begins: after every 64 readings, and after a gap in the record."""
    distances = np.diff(times)
    gaps = np.flatnonzero(distances > GAP * np.median(distances)) + 1 if distances.size else np.empty(0, dtype=int)
    if gaps.size > times.size // READINGS:
        gaps = gaps[:0]  # its readings come when they come
    return np.union1d(np.arange(0, times.size, READINGS), gaps)


def _stretches(values: Array, starts: Array) -> StretchColumn:
    known = ~np.isnan(values)
    counts = np.add.reduceat(known, starts, dtype=np.int64)
    places = np.maximum.accumulate(np.where(known, np.arange(values.size), -1))
    ends = np.append(starts[1:], values.size) - 1
    last = np.where(counts > 0, values[places[ends]], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(known, values, 0.0), starts, dtype=float) / counts
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    return StretchColumn(*(part.astype("<f4") for part in (low, high, last, mean)))


def _rises(times: Array, values: Array) -> Array:
    """The rise per second up to each reading; a counter that began again has none there."""
    rises = np.full(values.size, np.nan)
    known = np.flatnonzero(~np.isnan(values))
    own = np.diff(values[known]) / np.diff(times[known])
    rises[known[1:]] = np.where(own >= 0, own, np.nan)
    return rises


def _by_subject(names: Any, numbers: Any) -> Iterator[tuple[tuple[str | None, int | None], Array]]:
    """Each subject with the places of its rows."""
    plain = np.ma.filled(numbers, -1).astype(np.int64)
    missing = np.ma.getmaskarray(names)
    text = np.where(missing, "", np.ma.getdata(names)).astype(str)
    if not text.size:
        return
    _, code = np.unique(text, return_inverse=True)
    code = (code * 2 + missing) * (int(plain.max()) + 2) + plain + 1
    order = np.argsort(code, kind="stable")
    bounds = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, bounds)[:MOST_SUBJECTS]:
        first = rows[0]
        yield (None if missing[first] else str(text[first]), None if plain[first] < 0 else int(plain[first])), rows


def number_column(table: str, name: str, type: str, alias: str) -> str:
    """A column as a number; of one with several values, their sum. Seven digits are enough, but for what is counted."""
    from pulsetrain.runs.line_columns import identifier

    column = identifier(name)
    if type.startswith("MAP"):
        return f"list_sum(map_values({column})) AS {alias}"
    return f"{column}::{'DOUBLE' if (table, name) in _COUNTED else 'FLOAT'} AS {alias}"


def _fingerprint(parquet: Path) -> str:
    """Tells a sealed file from any other; a copy has the same."""
    with open_regular(parquet) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _END_BYTES))
        return f"{size}-{hashlib.blake2b(file.read(), digest_size=16).hexdigest()}"


def _encoded(pyramid: Pyramid, fingerprint: str) -> bytes:
    content = b"".join(array.tobytes() for subject in pyramid.subjects for array in _arrays(subject))
    described = [
        _DescribedSubject(subject.name, subject.number, subject.starts.size, list(subject.columns))
        for subject in pyramid.subjects
    ]
    head = _Head(VERSION, fingerprint, pyramid.rows, zlib.crc32(content), described)
    return msgspec.json.encode(head) + b"\n" + content


def _arrays(subject: PyramidSubject) -> Iterator[Array]:
    yield subject.starts.astype("<f8")
    yield subject.ends.astype("<f8")
    for column in subject.columns.values():
        yield from column.parts


def _decoded(head: _Head, content: bytes) -> Iterator[PyramidSubject]:
    """Views of the content. One that ends too early is a ValueError."""
    offset = 0

    def take(type: str, count: int) -> Array:
        nonlocal offset
        found = np.frombuffer(content, type, count, offset)
        offset += found.nbytes
        return found

    for subject in head.subjects[:MOST_SUBJECTS]:
        count = subject.stretches
        if count < 1:
            raise ValueError("a subject without stretches")
        starts, ends = take("<f8", count), take("<f8", count)
        if not (np.isfinite(ends).all() and (starts <= ends).all() and (ends[:-1] < starts[1:]).all()):
            raise ValueError("stretches that are not in order")
        columns = {name: StretchColumn(*(take("<f4", count) for _ in range(4))) for name in subject.columns}
        yield PyramidSubject(subject.name, subject.number, starts, ends, columns)

"""The lines of a run as rows for a tracker, from where the last process stopped.

A position is a number of lines of a file, so that it means the same before and after the file was sealed. Between two
positions there are always the same rows, with the same numbers.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pulsetrain import catalog
from pulsetrain.catalog import TABLES
from pulsetrain.outputs.trackers.tracker import Row
from pulsetrain.runs.codec import Line, elapsed_of, from_row, is_report, time_of
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.line_file import LineFile

MACHINE_SECONDS = 10.0
"""Readings of the machine are sent as means over so long, as trackers do with their own."""
MOST_LINES = 5000
"""Of one file at a time."""
MACHINE_TABLES = ("gpu", "host", "account")
PREFIX = "system/"
_NOT_FIGURES = frozenset({"timestamp", "elapsed_seconds", "rank", "step"})
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RowPosition(msgspec.Struct):
    """How far a run was read."""

    lines: dict[str, int] = {}
    """By file, `HOST/NAME` without its suffix."""
    step: int = 0
    """The last of the training, for reports that name none."""
    rows: int = 0


class RowReader:
    """Reads a run folder, also while it is written."""

    def __init__(self, folder: RunFolder, position: RowPosition) -> None:
        self._folder = folder
        self.position = position
        self._open: dict[str, _OpenFile] = {}
        self._first_host = ""

    def read(self, *, ended: bool) -> list[Row]:
        """The rows that are new; `position` is after them. `ended` says that no more lines will come."""
        taken: list[tuple[str, list[Line]]] = []
        for table in (*MACHINE_TABLES, "training"):
            files = self._files(table)
            newest = {_host(key): key for key in files}  # the last of each host
            for key, path in files.items():
                lines = list(self._lines(key, path))
                if table != "training":
                    no_more = ended or newest[_host(key)] != key
                    lines = _whole_windows(lines, complete=no_more and len(lines) < MOST_LINES)
                taken.append((key, lines))
        return self._rows(taken)

    def read_to(self, position: RowPosition) -> list[Row]:
        """The rows up to a position, as they were read before."""
        paths = {key: path for table in (*MACHINE_TABLES, "training") for key, path in self._files(table).items()}
        taken = []
        for key, count in position.lines.items():
            if key in paths:
                missing = count - self.position.lines.get(key, 0)
                taken.append((key, list(self._lines(key, paths[key], missing))[:missing]))
        return self._rows(taken)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _files(self, table: str) -> dict[str, Path]:
        """In order; of the training, those of the first rank. One that is sealed and still open here is read on."""
        found = {_key(path): path for path in self._folder.files(table)}
        if table == "training":
            found = {key: path for key, path in found.items() if ".rank" not in key}
        return dict(sorted(found.items()))

    def _lines(self, key: str, path: Path, at_least: int = 0) -> "deque[Line]":
        """Those after the position that have come by now."""
        opened = self._open.get(key)
        if opened is None:
            opened = self._open[key] = _OpenFile(path, self.position.lines.get(key, 0))
        opened.fill(max(MOST_LINES, at_least))
        return opened.lines

    def _rows(self, taken: list[tuple[str, list[Line]]]) -> list[Row]:
        before = self.position
        position = RowPosition(dict(before.lines), before.step, before.rows)
        found: list[tuple[float, int, dict[str, float], bool]] = []
        for key, lines in sorted(taken, key=lambda one: one[0]):
            table = _table(key)
            if table == "training":
                found += filter(None, (_training_row(line, position) for line in lines))
            else:
                found += _machine_rows(table, lines, self._prefix(key))
            position.lines[key] = before.lines.get(key, 0) + len(lines)
            self._open[key].drop(len(lines))
        found.sort(key=lambda row: row[0])
        rows = [Row(number, *row) for number, row in enumerate(found, before.rows + 1)]
        position.rows = before.rows + len(rows)
        self.position = position
        return rows

    def _prefix(self, key: str) -> str:
        """Hosts beside the first one have their names in those of their metrics."""
        if not self._first_host:
            self._first_host = next(iter(self._folder.load().hosts), _host(key))
        return PREFIX if _host(key) == self._first_host else f"{PREFIX}{_host(key)}/"


class _OpenFile:
    """One file: its lines after a position, as far as they have been read."""

    def __init__(self, path: Path, position: int) -> None:
        self.lines: deque[Line] = deque()
        self._file: LineFile | None = None
        self._source: Iterator[Line]
        if path.suffix == ".parquet":
            self._source = _sealed_lines(path, position)
            self._skip = 0
        else:
            self._file = LineFile(path)
            self._source = iter(())
            self._skip = position

    def fill(self, most: int) -> None:
        while len(self.lines) < most:
            line = next(self._source, None)
            if line is None:
                if self._file is None:
                    return
                self._source = iter(list(self._file.lines()))
                line = next(self._source, None)
                if line is None:
                    return
            if time_of(line) is None:
                continue  # sealing leaves it out
            if self._skip:
                self._skip -= 1
            else:
                self.lines.append(line)

    def drop(self, count: int) -> None:
        for _ in range(count):
            self.lines.popleft()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _sealed_lines(path: Path, position: int) -> Iterator[Line]:
    import duckdb

    from pulsetrain.runs.line_columns import file_list

    with duckdb.connect(config={"threads": 1}) as connection:
        found = connection.execute(f"SELECT * FROM read_parquet({file_list([path])}) OFFSET {position}")
        names = [column[0] for column in found.description or ()]
        while batch := found.fetchmany(1000):
            for row in batch:
                yield from_row(dict(zip(names, row, strict=True)))


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix(path.suffix)}"


def _host(key: str) -> str:
    return key.partition("/")[0]


def _table(key: str) -> str:
    return key.partition("/")[2].partition("_metrics_")[0]


def _training_row(line: Line, position: RowPosition) -> tuple[float, int, dict[str, float], bool] | None:
    if not is_report(line):
        return None
    if isinstance(step := line.get("step"), int | float) and math.isfinite(step):
        position.step = int(step)
    values = {name: float(value) for name, value in line.items() if _is_figure(value) and name not in _NOT_FIGURES}
    if isinstance(odd := line.get("nonfinite"), dict):
        values |= {name: _ODD[word] for name, word in odd.items() if word in _ODD}
    time = time_of(line)
    return (time, position.step, values, False) if values and time is not None else None


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _window(line: Line) -> int:
    return int((elapsed_of(line) or 0.0) // MACHINE_SECONDS)


def _whole_windows(lines: Iterable[Line], *, complete: bool) -> list[Line]:
    """Without the lines of the last window, unless that is complete."""
    found = list(lines)
    if complete or not found:
        return found
    last = _window(found[-1])
    while found and _window(found[-1]) == last:
        found.pop()
    return found


def _machine_rows(table: str, lines: list[Line], prefix: str) -> Iterator[tuple[float, int, dict[str, float], bool]]:
    """A row for each window: means of gauges, the last of what adds up."""
    windows: dict[int, list[Line]] = {}
    for line in lines:
        windows.setdefault(_window(line), []).append(line)
    metrics = [metric for metric in catalog.metrics_of(table) if metric.by is None and metric.kind != "text"]
    for found in windows.values():
        values: dict[str, float] = {}
        subjects: dict[str, list[Line]] = {}
        for line in found:
            subjects.setdefault(_subject(table, line), []).append(line)
        for subject, of_subject in subjects.items():
            for metric in metrics:
                read = [float(line[metric.field]) for line in of_subject if _is_figure(line.get(metric.field))]
                if read:
                    value = sum(read) / len(read) if metric.kind == "gauge" else read[-1]
                    values[f"{prefix}{subject}/{metric.field}"] = value
        time = time_of(found[-1])
        if values and time is not None:
            yield time, int(elapsed_of(found[-1]) or 0.0), values, True


def _subject(table: str, line: Line) -> str:
    if table == "gpu":
        return f"gpu_{line.get('gpu_index')}"
    return "run" if table == "account" else TABLES[table].name

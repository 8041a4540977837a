"""The past of a long run in few snapshots: whole ticks, picked at even distances over the run, and over its last hour.

To go through a week of readings would take minutes, and no chart could show them. What the files hold of the last
minutes is left to `follow`.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pulsetrain.catalog import SAMPLE_TABLES
from pulsetrain.runs.codec import Line, elapsed_of, from_row, is_report, time_of
from pulsetrain.runs.folder import RunFolder, is_whole
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.reports import MergedReports
from pulsetrain.runs.ticks import Ticks
from pulsetrain.snapshot import Snapshot

PICKS = 300
"""Ticks over the whole run, and as many over its last hour."""
OUTLINED = tuple(table.name for table in SAMPLE_TABLES if table.outlined)
LAST_SECONDS = 3600.0
SHORTEST_SECONDS = 1e-3
"""As exact as times are recorded: nothing can be picked from less."""
RECENT_BYTES = 4 * 2**20
"""So much of a table is soon read in full."""


def recent(run: RunFolder, host: str) -> float:
    """The elapsed time from which on a run is to be read in full: minus infinity when all of it is soon read."""
    return max(_recent(files) for files in _files(run, host).values())


def outline(run: RunFolder, host: str, until: float) -> Iterator[Snapshot]:
    """What was before that, in order of time."""
    files = _files(run, host)
    until = min(until, math.nextafter(max(map(_end, files.values())), math.inf))
    if until < SHORTEST_SECONDS:
        return
    ticks = Ticks()
    picked = {table: [*_sealed_lines(own, until), *_lines(own, until)] for table, own in files.items()}
    reports = picked.pop("training")
    for table, lines in picked.items():
        for line in lines:
            ticks.add(table, line)
    _add_reports(ticks, reports)
    for line in _events(run.host_folder(host) / "events.jsonl", until):
        ticks.add("events", line)
    yield from ticks.rest()


def _files(run: RunFolder, host: str) -> dict[str, list[Path]]:
    return {table: [file for file in run.files(table) if file.parent.name == host] for table in OUTLINED}


def _recent(files: Sequence[Path]) -> float:
    room = RECENT_BYTES
    start = math.inf
    for file in reversed(files):
        if file.suffix == ".parquet":
            return start
        size = file.stat().st_size
        with LineFile(file) as lines:
            start = lines.first_elapsed(size - room)
        if size > room:
            return start
        room -= size
    return -math.inf


def _end(files: Sequence[Path]) -> float:
    """Elapsed time of the last line of a table; 0 when it has none."""
    end = 0.0
    for file in _growing(files):
        with LineFile(file) as lines:
            end = max(end, lines.last_elapsed())
    if sealed := _sealed(files):
        end = max(
            end, *(row["last"] or 0.0 for row in _rows(f"SELECT max(elapsed_seconds) AS last FROM {_table(sealed)}"))
        )
    return end


def _grids(until: float) -> Iterator[tuple[float, float]]:
    """From when on a tick is picked, and at which distances."""
    yield 0.0, until / PICKS
    if until > LAST_SECONDS:
        yield until - LAST_SECONDS, LAST_SECONDS / PICKS


def _lines(files: Sequence[Path], until: float) -> Iterator[Line]:
    """The first tick after each moment of the grids, from files of lines."""
    for file in _growing(files):
        with LineFile(file) as lines:
            first = lines.first_elapsed()
            first = 0.0 if math.isinf(first) else first  # its first line is damaged
            for start, distance in _grids(until):
                for number in range(int(max(first, start) / distance), math.ceil(until / distance)):
                    lines.seek(number * distance)
                    yield from (line for line in lines.next_tick() if _is_before(until, line))


def _sealed_lines(files: Sequence[Path], until: float) -> Iterator[Line]:
    """The same from sealed files."""
    sealed = _sealed(files)
    if not sealed:
        return
    picked = " UNION ".join(
        f"SELECT min(elapsed_seconds) FROM {_table(sealed)} WHERE elapsed_seconds >= {start} "
        f"AND elapsed_seconds < {until} GROUP BY floor(elapsed_seconds / {distance})"
        for start, distance in _grids(until)
    )
    for row in _rows(f"SELECT * EXCLUDE (other) FROM {_table(sealed)} WHERE elapsed_seconds IN ({picked})"):
        yield from_row(row)


def _events(file: Path, until: float) -> Iterator[Line]:
    if file.exists():
        with LineFile(file) as lines:
            yield from (line for line in lines.all_lines() if _is_before(until, line))


def _is_before(until: float, line: Line) -> bool:
    elapsed = elapsed_of(line)
    return elapsed is not None and elapsed < until


def _add_reports(ticks: Ticks, lines: Iterable[Line]) -> None:
    """Each joins the tick next to it: two snapshots for one moment would take twice the time."""
    known = ticks.times
    reports = MergedReports()
    for line in filter(is_report, lines):
        time = time_of(line)
        if time is not None:
            reports.add(line)
            for sample in reports.take():
                ticks.at(_nearest(known, line["elapsed_seconds"]), time).add(sample)


def _nearest(known: Sequence[float], elapsed: float) -> float:
    """Of sorted times the one next to this; itself when there is none."""
    place = bisect_right(known, elapsed)
    return min(known[max(0, place - 1) : place + 1], key=lambda time: abs(time - elapsed), default=elapsed)


def _growing(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".jsonl"]


def _sealed(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".parquet" and is_whole(file)]


def _table(sealed: Sequence[Path]) -> str:
    from pulsetrain.runs.line_columns import file_list

    return f"read_parquet({file_list(sealed)}, union_by_name = true)"


def _rows(sql: str) -> list[dict[str, Any]]:
    """OSError for a sealed file that cannot be read, or is none."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        try:
            result = connection.execute(sql)
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        except duckdb.Error as error:
            raise OSError(str(error)) from None

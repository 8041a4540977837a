"""The past of a long run in few snapshots: whole ticks, picked at even distances over the run, and over its last hour.

To go through a week of readings would take minutes, and no chart could show them. What the files hold of the last
minutes is left to `follow`.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pulsetrain.runs.folder import RunFolder, is_whole
from pulsetrain.runs.follow import File, Line, Tick, event_of, is_report, merged, moment, sample_of
from pulsetrain.snapshot import Snapshot

PICKS = 300
"""Ticks over the whole run, and as many over its last hour."""
LAST_SECONDS = 3600.0
RECENT_BYTES = 4 * 2**20
"""So much of a table is soon read in full."""
TABLES = ("gpu", "mig", "host", "account", "training")
"""Without processes, which come and go: nobody asks for those of last week."""


def recent(run: RunFolder, host: str) -> float:
    """The elapsed time from which on a run is to be read in full: minus infinity when all of it is soon read."""
    return max(_recent(files) for files in _files(run, host).values())


def outline(run: RunFolder, host: str, until: float) -> Iterator[Snapshot]:
    """What was before that, in order of time."""
    files = _files(run, host)
    until = min(until, math.nextafter(max(map(_end, files.values())), math.inf))
    if until <= 0:
        return
    ticks: dict[float, Tick] = {}
    picked = {table: [*_sealed_lines(own, until), *_lines(own, until)] for table, own in files.items()}
    reports = picked.pop("training")
    for table, lines in picked.items():
        for line in lines:
            _add(ticks, table, line)
    _add_reports(ticks, reports)
    for line in _events(run.host_folder(host) / "events.jsonl", until):
        _add(ticks, "events", line)
    for elapsed in sorted(ticks):
        yield ticks[elapsed].snapshot(elapsed)


def _files(run: RunFolder, host: str) -> dict[str, list[Path]]:
    return {table: [file for file in run.files(table) if file.parent.name == host] for table in TABLES}


def _recent(files: Sequence[Path]) -> float:
    room = RECENT_BYTES
    start = math.inf
    for file in reversed(files):
        if file.suffix == ".parquet":
            return start
        size = file.stat().st_size
        with File(file) as lines:
            start = lines.first_elapsed(size - room)
        if size > room:
            return start
        room -= size
    return -math.inf


def _end(files: Sequence[Path]) -> float:
    """Elapsed time of the last line of a table; 0 when it has none."""
    end = 0.0
    for file in _growing(files):
        with File(file) as lines:
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
        with File(file) as lines:
            first = lines.first_elapsed()
            for start, distance in _grids(until):
                for number in range(int(max(first, start) / distance), math.ceil(until / distance)):
                    lines.seek(number * distance)
                    yield from (line for line in lines.next_tick() if line.get("elapsed_seconds", math.inf) < until)


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
        line = {name: value for name, value in row.items() if value is not None}
        yield line | {"timestamp": f"{line['timestamp'].isoformat()}Z"}


def _events(file: Path, until: float) -> Iterator[Line]:
    if file.exists():
        with File(file) as lines:
            yield from (line for line in lines.all_lines() if line.get("elapsed_seconds", math.inf) < until)


def _add(ticks: dict[float, Tick], table: str, line: Line) -> None:
    at = moment(line)
    if at is None:
        return
    tick = ticks.setdefault(line["elapsed_seconds"], Tick(at))
    if table == "events":
        tick.events.append(event_of(line))
    else:
        tick.add(sample_of(table, line))


def _add_reports(ticks: dict[float, Tick], lines: Iterable[Line]) -> None:
    """Each joins the tick next to it: two snapshots for one moment would take twice the time."""
    known = sorted(ticks)
    for line in filter(is_report, lines):
        at = moment(line)
        if at is not None:
            elapsed = _nearest(known, line["elapsed_seconds"])
            for sample in merged([line]):
                ticks.setdefault(elapsed, Tick(at)).add(sample)


def _nearest(known: Sequence[float], elapsed: float) -> float:
    """Of sorted times the one next to this; itself when there is none."""
    place = bisect_right(known, elapsed)
    return min(known[max(0, place - 1) : place + 1], key=lambda time: abs(time - elapsed), default=elapsed)


def _growing(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".jsonl"]


def _sealed(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".parquet" and is_whole(file)]


def _table(sealed: Sequence[Path]) -> str:
    from pulsetrain.runs.lines import file_list

    return f"read_parquet({file_list(sealed)}, union_by_name = true)"


def _rows(sql: str) -> Iterator[Mapping[str, Any]]:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        try:
            result = connection.execute(sql)
        except duckdb.IOException as error:
            raise OSError(str(error)) from None
        names = [column[0] for column in result.description or ()]
        for row in result.fetchall():
            yield dict(zip(names, row, strict=True))

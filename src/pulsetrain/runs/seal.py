"""Seals segments: what was JSON lines becomes a Parquet file of the same name, far smaller and quicker to read.

    python -m pulsetrain.runs.seal FOLDER SEGMENT...

At every moment the lines are in at least one whole file: the Parquet file is written under another name, brought to the
disk and renamed, and only then the JSON lines go. When both are there, the Parquet file is whole. A sealing that was
killed is cleared up by the next one in its folder. Last comes the coarse copy of a large file (pyramid.py), which is a
shortcut for readers and may be missing.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from pulsetrain.catalog import TABLES
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.codec import decoded
from pulsetrain.runs.folder import RunFolder, host_name, is_whole, table_of
from pulsetrain.runs.pyramid import SUFFIX, has_pyramids, read_pyramid, write_pyramid

LOCK = ".sealing"
DAMAGED_TEXT = "pulsetrain.damaged_text"
"""The damaged lines themselves, as far as there is room for them, in the metadata of the Parquet file."""
MOST_DAMAGED_TEXT = 64 * 2**10


def seal(folder: Path, names: Iterable[str]) -> int:
    """Seal these segments of a host's folder. They must no longer be written. Returns how many were sealed.

    One process at a time: another one waits.
    """
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clear_up(folder)
        segments = [folder / name for name in names if (folder / name).exists()]
        for segment in segments:
            for _ in steps(segment):
                pass
    return len(segments)


def seal_all(run: RunFolder) -> int:
    """Seal all segments of a run that has ended. Its events stay JSON lines: they are few, and read by eye.

    A training process may outlive the run that watched it: what it has open is left alone. What an older version has
    sealed gets its pyramids.
    """
    segments = [
        file
        for table in TABLES.values()
        if table.segmented
        for file in run.files(table.name)
        if file.suffix == ".jsonl" and not (table.from_training and _is_open(file))
    ]
    folders = sorted({file.parent for file in segments})
    count = sum(seal(folder, [file.name for file in segments if file.parent == folder]) for folder in folders)
    for table in filter(has_pyramids, TABLES):
        for file in run.files(table):
            if file.suffix == ".parquet" and is_whole(file) and read_pyramid(file) is None:
                _add_pyramid(file)
    return count


def clear_up(folder: Path) -> None:
    """Remove what a killed sealing has left: a Parquet file that is not whole, JSON lines that are sealed already."""
    for temporary in (*folder.glob(".*.parquet"), *folder.glob(f".*{SUFFIX}")):
        temporary.unlink()
    for sealed in filter(is_whole, folder.glob("*.parquet")):
        sealed.with_suffix(".jsonl").unlink(missing_ok=True)


def steps(segment: Path) -> Iterator[str]:
    """Seal one segment; says what has been done after each step. To be killed between two of them loses nothing."""
    sealed = segment.with_suffix(".parquet")
    temporary = sealed.with_name(f".{sealed.name}")
    size = segment.stat().st_size
    _write(segment, temporary)
    yield "written"
    _sync(temporary)
    if segment.stat().st_size != size:
        temporary.unlink()
        raise PulsetrainError(f"{segment} is still being written.")
    yield "on the disk"
    temporary.rename(sealed)
    yield "renamed"
    _sync(segment.parent)
    yield "the name on the disk"
    segment.unlink()
    yield "sealed"
    _add_pyramid(sealed)
    yield "with its pyramid"


def _write(segment: Path, target: Path) -> None:
    """Write the lines of a segment as Parquet, in one thread, and read their number back."""
    import duckdb

    from pulsetrain.runs.database import DAMAGED_LINES
    from pulsetrain.runs.line_columns import file_list, line_query, quoted

    table = table_of(segment)
    if table is None:
        raise PulsetrainError(f"{segment} is not a file of a run.")
    with duckdb.connect(config={"threads": 1}) as connection:
        lines = line_query(connection, table, [segment])
        connection.execute(f"CREATE TABLE lines AS SELECT * EXCLUDE (filename) FROM ({lines})")
        (damaged,) = connection.execute("DELETE FROM lines WHERE timestamp IS NULL").fetchall()[0]
        about = {DAMAGED_LINES: str(damaged)} | ({DAMAGED_TEXT: _damaged_text(segment)} if damaged else {})
        metadata = ", ".join(f"{quoted(key)}: {quoted(text)}" for key, text in about.items())
        # lz4_raw is read a fifth faster than zstd, for an eighth more bytes.
        connection.execute(
            f"COPY lines TO {quoted(str(target))} "
            "(FORMAT parquet, COMPRESSION lz4_raw, PARQUET_VERSION v2, USE_TMP_FILE false, "
            f"KV_METADATA {{{metadata}}})"
        )
        (counts,) = connection.execute(
            f"SELECT (SELECT count(*) FROM lines), (SELECT count(*) FROM read_parquet({file_list([target])}))"
        ).fetchall()
    if counts[0] != counts[1]:
        raise PulsetrainError(f"{target} has {counts[1]} lines instead of {counts[0]}.")


def _add_pyramid(sealed: Path) -> None:
    """A disk that is full, or a file that is damaged within, costs the shortcut and no more."""
    import duckdb

    table = table_of(sealed)
    assert table
    try:
        write_pyramid(sealed, table)
    except (OSError, duckdb.Error):
        with contextlib.suppress(OSError):
            sealed.with_name(f".{sealed.stem}{SUFFIX}").unlink(missing_ok=True)


def _damaged_text(segment: Path) -> str:
    text = ""
    with segment.open("rb") as file:
        for line in file:
            if "timestamp" not in (decoded(line) or {}) and line.strip():
                text += line[:MOST_DAMAGED_TEXT].decode(errors="backslashreplace").replace("\0", "\\0")
            if len(text) >= MOST_DAMAGED_TEXT:
                break
    return text[:MOST_DAMAGED_TEXT]


def _is_open(segment: Path) -> bool:
    """Whether the training process that began this file still has it open."""
    if segment.parent.name != host_name():
        return False
    try:
        with segment.open("rb") as file:
            process = psutil.Process(int((decoded(file.readline()) or {})["pid"]))
        if process.create_time() > segment.stat().st_mtime:
            return False  # another one, with the same number
        return str(segment.resolve()) in [file.path for file in process.open_files()]
    except psutil.AccessDenied:
        return True
    except (KeyError, TypeError, ValueError, psutil.NoSuchProcess):
        return False  # the head is damaged, or the process is gone


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stand_back() -> None:
    """Take time and disk that nobody else wants."""
    with contextlib.suppress(OSError, psutil.Error):
        os.nice(19)
        if hasattr(psutil, "IOPRIO_CLASS_IDLE"):
            psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


if __name__ == "__main__":
    _stand_back()
    seal(Path(sys.argv[1]), sys.argv[2:])

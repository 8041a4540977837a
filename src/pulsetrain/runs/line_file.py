"""One file of a run: read as it grows, or at any moment of the run. All readers of lines open their files here."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from pulsetrain.regular_files import open_regular
from pulsetrain.runs.codec import Line, decoded, elapsed_of, elapsed_times
from pulsetrain.untrusted import is_plain_json, showable_document

MOST_BYTES = 4 * 2**20
"""Read at once; a training that reports faster than this can be read shows a little late."""
MOST_LINE_BYTES = 16 * 2**20
"""A line that is longer is not ours: it is skipped."""
TOO_LONG = b"#"
"""In place of the beginning of a line that is too long: what comes of it after that makes no line either."""
SEARCH_BYTES = 64 * 2**10
"""A line is looked for by its time: by halving down to this many bytes, and then by reading."""


class LineFile:
    """A file of JSON lines. A half line waits for its rest; a damaged one is skipped, and the database counts it.

    A file that is sealed and gone meanwhile can still be read to its end. All text in it is fit to be shown.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_regular(path)
        self._rest = b""
        self.at_end = False
        """Whether the last reading came to the end of what was written."""

    def lines(self) -> Iterator[Line]:
        """What has come since the last reading, as far as may be read at once."""
        data = self._file.read(MOST_BYTES)
        self.at_end = len(data) < MOST_BYTES
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            self._rest = TOO_LONG
        for text in whole:
            if (line := _showable_line(text)) is not None:
                yield line

    def all_lines(self) -> Iterator[Line]:
        """What has come since the last reading, to the end of the file."""
        yield from self.lines()
        while not self.at_end:
            yield from self.lines()

    def last_lines(self, most_bytes: int) -> list[Line]:
        """The whole lines in the last `most_bytes` bytes."""
        self._go_to(self._size() - most_bytes)
        return list(self.all_lines())

    @property
    def gone(self) -> bool:
        """No longer in its folder: what is not yet read of it is all there will be."""
        return not self._path.exists()

    def seek(self, elapsed: float) -> None:
        """Go to the first line of this moment or later; lines are in order, but for a few."""
        low, high = 0, self._size()
        while high - low > SEARCH_BYTES:
            middle = (low + high) // 2
            self._file.seek(middle)
            self._file.readline()
            if self._next_elapsed() < elapsed:
                low = middle
            else:
                high = middle
        self._go_to(low)
        position = self._file.tell()
        while text := self._file.readline():
            if max(elapsed_times(text), default=-math.inf) >= elapsed:
                break
            position = self._file.tell()
        self._file.seek(position)

    def first_elapsed(self, position: int = 0) -> float:
        """Of the first whole line after a position; infinity when there is none."""
        self._go_to(position)
        return self._next_elapsed()

    def last_elapsed(self) -> float:
        """Of the last line; 0 when there is none."""
        self._file.seek(max(0, self._size() - SEARCH_BYTES))
        return (elapsed_times(self._file.read()) or [0.0])[-1]

    def next_tick(self) -> list[Line]:
        """The lines from here on that have the same time."""
        lines: list[Line] = []
        while text := self._file.readline(MOST_LINE_BYTES):
            line = _showable_line(text)
            if line is None:
                continue
            if lines and elapsed_of(line) != elapsed_of(lines[0]):
                break
            lines.append(line)
        return lines

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _size(self) -> int:
        return self._file.seek(0, 2)

    def _go_to(self, position: int) -> None:
        """To the first line that begins after a position."""
        self._file.seek(max(0, position))
        if position > 0:
            self._file.readline()

    def _next_elapsed(self) -> float:
        """Of the line from here on; infinity when it has none."""
        return min(elapsed_times(self._file.readline()), default=math.inf)


def _showable_line(text: bytes) -> Line | None:
    line = decoded(text)
    return line if line is None or is_plain_json(text) else showable_document(line)


def without_long_lines(files: Iterable[Path], folder: Path) -> tuple[list[Path], int]:
    """Copies of these files, in a folder, without lines that are too long; and how many were left out.

    A copy has the name, the host's folder and the run's folder of the file.
    """
    copies = []
    left_out = 0
    for file in files:
        copy = folder.joinpath(*file.parts[-3:])
        copy.parent.mkdir(parents=True, exist_ok=True)
        copies.append(copy)
        with open_regular(file) as source, copy.open("wb") as target:
            inside = False
            while text := source.readline(MOST_LINE_BYTES):
                whole = text.endswith(b"\n")
                if not inside and (whole or len(text) < MOST_LINE_BYTES):
                    target.write(text)
                left_out += not inside and not whole and len(text) == MOST_LINE_BYTES
                inside = not whole
    return copies, left_out

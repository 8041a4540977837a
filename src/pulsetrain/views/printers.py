"""The machine's table, drawn again in place on every tick; or JSON lines."""

import shutil
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from pulsetrain.live import Live
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.snapshot import Snapshot
from pulsetrain.views.json import snapshot_json
from pulsetrain.views.machine import machine_lines
from pulsetrain.views.text import Style, crop

LATEST_EVENTS = 5


class DrawnOver:
    """Lines that are drawn over those drawn before, on a terminal."""

    def __init__(self) -> None:
        self._height = 0
        self._size = shutil.get_terminal_size()

    def text(self, lines: Sequence[str]) -> str:
        """What to write for it. Without lines, the last drawing goes away."""
        size = shutil.get_terminal_size()
        start = f"\x1b[{self._height}A\r" if self._height else ""
        if size != self._size:  # the old drawing may have been wrapped: start over
            start = "\x1b[2J\x1b[H"
        shown = [crop(line, size.columns) for line in lines[: size.lines - 1]]
        self._size, self._height = size, len(shown)
        return start + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J"


class SnapshotPrinter:
    """A consumer of snapshots that prints the state after each, until nobody reads any more."""

    def __init__(self, stream: TextIO, host: str, gone: Callable[[], None]) -> None:
        self._stream = stream
        self._host = host
        self._gone = gone
        self._live = Live()

    def __call__(self, snapshot: Snapshot) -> None:
        self._live(snapshot)
        try:
            self._stream.write(self.text())
            self._stream.flush()
        except BrokenPipeError:
            self._gone()

    def text(self) -> str:
        raise NotImplementedError


class JsonPrinter(SnapshotPrinter):
    """Each snapshot as one line of JSON."""

    def text(self) -> str:
        return snapshot_json(self._live, self._host) + "\n"


class TablePrinter(SnapshotPrinter):
    """A table and the latest events, drawn over the last drawing; in a pipe, one table after the other."""

    def __init__(
        self,
        stream: TextIO,
        host: str,
        gone: Callable[[], None],
        thresholds: Thresholds,
        missing: Callable[[], str],
    ) -> None:
        """`missing` says why there are no GPUs, as long as there are none."""
        super().__init__(stream, host, gone)
        self._thresholds = thresholds
        self._missing = missing
        self._drawing = DrawnOver()
        self._events: deque[str] = deque(maxlen=LATEST_EVENTS)

    def __call__(self, snapshot: Snapshot) -> None:
        time = datetime.fromtimestamp(snapshot.time, UTC)
        self._events.extend(f"{time:%H:%M:%S}  {event.message}" for event in snapshot.events)
        super().__call__(snapshot)

    def text(self) -> str:
        style = Style(self._stream)
        lines = machine_lines(self._live, self._host, style, self._thresholds, self._missing())
        if not style.terminal:
            return "\n".join(lines) + "\n\n"
        lines += ["", *self._events] if self._events else []
        return self._drawing.text(lines)

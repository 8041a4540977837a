"""What a benchmark prints: taken at once and whole, kept within bounds, with the last state of lines that redraw
themselves.

A reader that is slow holds up whoever writes. So nothing here waits for a terminal or a disk longer than a write takes.
"""

import contextlib
import io
import re
import threading
from collections import deque
from pathlib import Path
from typing import TextIO

from pulsetrain.units import KIB, MIB
from pulsetrain.untrusted import showable

HEAD_BYTES = 8 * MIB
TAIL_BYTES = 8 * MIB
"""Of more output than these, the middle is left out."""
LONGEST_LINE = 64 * KIB
SHOWN_LINES = 100
ECHO_BYTES = MIB
"""Waiting for a terminal; of more, the oldest is dropped."""
_REDRAWN = re.compile(rb"[^\n]*\r(?=[^\r\n])")
_BEFORE_BREAK = re.compile(rb"\r+(?=\n)")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][A-B0-2])")


class OutputLog:
    """Takes output in any portions, from one thread; others may look at the latest lines."""

    def __init__(self, path: Path, score: "re.Pattern[str] | None" = None, echo: "OutputEcho | None" = None) -> None:
        """`echo` gets everything as it comes."""
        self.bytes = 0
        """What came."""
        self.score: float | None = None
        self.path = path
        self._file = path.open("wb")
        self._pattern = score
        self._echo = echo
        self._head_left = HEAD_BYTES
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._skipped = 0
        self._unfinished = b""
        self._latest: deque[bytes] = deque(maxlen=SHOWN_LINES)

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        if self._echo:
            self._echo.put(data)
        text = self._unfinished + data
        end = text.rfind(b"\n") + 1
        whole, rest = text[:end], text[end:]
        if whole:
            self._keep(_last_states(whole))
        if b"\r" in rest:
            rest = _last_states(rest)
        if len(rest) > LONGEST_LINE:
            self._keep(rest)
            rest = b""
        self._unfinished = rest

    def latest(self, count: int) -> list[str]:
        """The last lines, the unfinished one included, fit to be shown."""
        lines = [*list(self._latest)[-count:], *([self._unfinished] if self._unfinished else [])]
        return [showable(_ESCAPES.sub("", line.decode(errors="replace"))) for line in lines[-count:]]

    def close(self) -> None:
        """Write what is left."""
        if self._file.closed:
            return
        if self._unfinished:
            self._keep(self._unfinished)
            self._unfinished = b""
        if self._skipped:
            self._file.write(b"\n[pulsetrain: %d bytes omitted]\n" % self._skipped)
        self._file.writelines(self._tail)
        self._file.close()

    def _keep(self, lines: bytes) -> None:
        self._latest.extend(lines[-LONGEST_LINE:].splitlines()[-SHOWN_LINES:])
        if self._pattern:
            self._look_for_score(lines.decode(errors="replace"))
        head, rest = lines[: self._head_left], lines[self._head_left :]
        self._head_left -= len(head)
        self._file.write(head)
        if not rest:
            return
        self._tail.append(rest)
        self._tail_bytes += len(rest)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            dropped = len(self._tail.popleft())
            self._tail_bytes -= dropped
            self._skipped += dropped

    def _look_for_score(self, text: str) -> None:
        assert self._pattern
        for found in self._pattern.finditer(text):
            with contextlib.suppress(ValueError, TypeError):  # a word where a number is expected: an earlier one counts
                self.score = float(found[1].rstrip(",;%"))


def _last_states(lines: bytes) -> bytes:
    """Lines as a terminal would show them in the end: what follows the last carriage return of each."""
    return _REDRAWN.sub(b"", _BEFORE_BREAK.sub(b"", lines)) if b"\r" in lines else lines


class OutputEcho:
    """Passes output on to a stream, by a thread of its own: a stream that is slow loses some of it, and says so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._state = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="echo", daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        with self._state:
            self._waiting.append(data)
            self._bytes += len(data)
            while self._bytes > ECHO_BYTES:
                dropped = len(self._waiting.popleft())
                self._bytes -= dropped
                self._dropped += dropped
            self._state.notify()

    def close(self, seconds: float = 2.0) -> None:
        """Pass on what waits, for at most so long."""
        with self._state:
            self._ending = True
            self._state.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        buffer = getattr(self._stream, "buffer", None)
        while True:
            with self._state:
                self._state.wait_for(lambda: self._waiting or self._ending)
                if not self._waiting:
                    return
                data, dropped = b"".join(self._waiting), self._dropped
                self._waiting.clear()
                self._bytes = self._dropped = 0
            if dropped:
                data = b"\n[pulsetrain: %d bytes not shown]\n" % dropped + data
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more; the log is kept all the same
                if buffer is None:
                    assert isinstance(self._stream, io.TextIOBase)
                    self._stream.write(data.decode(errors="replace"))
                else:
                    buffer.write(data)
                self._stream.flush()

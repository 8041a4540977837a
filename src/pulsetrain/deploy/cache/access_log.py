"""What nginx' access log adds up to."""

from collections import Counter
from pathlib import Path

import msgspec

STATUSES = frozenset({"hit", "miss", "expired", "stale", "updating", "revalidated", "bypass"})
"""What nginx says of a look into its cache."""
MOST_BYTES = 16 << 20
"""Read at a time."""


class _Line(msgspec.Struct):
    """Numbers are text, and empty where there is none."""

    code: str
    cache: str = ""
    sent: str = ""
    fetched: str = ""
    asked: str = ""


class AccessLog:
    """Follows the file from its beginning. A line that nginx did not write whole is skipped, and counted."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0
        self._decode = msgspec.json.Decoder(_Line).decode
        self.lookups: Counter[str] = Counter()
        """Slices, by what the cache had of them."""
        self.requests: Counter[str] = Counter()
        """By the class of their status: 2xx, 4xx, ..."""
        self.sent_bytes = 0
        self.fetched_bytes = 0
        self.unreadable_lines = 0

    @property
    def size(self) -> int:
        """Bytes that have been read."""
        return self._position

    def read(self) -> None:
        """Count what is new."""
        while whole := self._new_lines():
            for line in whole.splitlines():
                self._count(line)

    def renamed(self, file: Path) -> None:
        """The file has another name now."""
        self._file = file

    def start_over(self, file: Path) -> None:
        """Continue with another file, from its beginning; what was counted stays."""
        self._file, self._position = file, 0

    def _new_lines(self) -> bytes:
        try:
            with self._file.open("rb") as opened:
                opened.seek(self._position)
                data = opened.read(MOST_BYTES)
        except FileNotFoundError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole

    def _count(self, text: bytes) -> None:
        try:
            line = self._decode(text)
        except msgspec.MsgspecError:
            self.unreadable_lines += 1
            return
        status = line.cache.lower()
        if status in STATUSES:
            self.lookups[status] += 1
        self.fetched_bytes += _added(line.fetched)
        if line.asked != "0":
            self.requests[f"{line.code[:1]}xx"] += 1
            self.sent_bytes += _added(line.sent)


def _added(text: str) -> int:
    """A number, or several where nginx asked more than once: `8388797, 0 : 12`."""
    return sum(int(word) for word in text.replace(",", " ").replace(":", " ").split() if word.isdecimal())

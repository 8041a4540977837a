"""Reports that wait to be written."""

from __future__ import annotations

import threading
from collections import deque

from pulsetrain.training.encoder import Report

LOCK_SECONDS = 0.1
"""A lock is held for much shorter, unless a signal handler reports in the middle of it: that must not wait forever."""


class ReportQueue(deque[Report]):
    """Takes reports from any thread, and holds a limited number: beyond that, old detail is thinned.

    No lock is held while anything is written, so that a disk that hangs never holds up those who report.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.dropped = 0
        """How many, of which the run does not know yet."""
        self._lock = threading.Lock()

    def take(self, count: int) -> list[Report]:
        """The oldest, at most so many."""
        with self._lock:
            return [self.popleft() for _ in range(min(count, len(self)))]

    def put_back(self, reports: list[Report]) -> None:
        """Those that were taken and could not be written are again the oldest."""
        with self._lock:
            while reports and len(reports) + len(self) > self.most:
                reports = self._thinned(reports)
            self.extendleft(reversed(reports))

    def take_dropped(self) -> int:
        """How many were dropped since the last call."""
        with self._lock:
            dropped, self.dropped = self.dropped, 0
            return dropped

    def drop(self, count: int) -> None:
        """Count some that were taken and are lost."""
        with self._lock:
            self.dropped += count

    def thin(self) -> None:
        """Drop every second of the older half, as long as there are too many."""
        if len(self) <= self.most or not self._lock.acquire(timeout=LOCK_SECONDS):
            return
        try:
            while len(self) > self.most:
                older = [self.popleft() for _ in range(len(self) // 2)]
                self.extendleft(reversed(self._thinned(older)))
        finally:
            self._lock.release()

    def _thinned(self, reports: list[Report]) -> list[Report]:
        """Every second of them, and all events, unless there are only events."""
        kept = [report for number, report in enumerate(reports) if number % 2 or "event" in report[1]]
        if len(kept) == len(reports):
            kept = reports[(len(reports) + 1) // 2 :]
        self.dropped += len(reports) - len(kept)
        return kept

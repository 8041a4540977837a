"""Writes the reports of this process to a file of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Callable

from pulsetrain.training.encoder import LineEncoder, Report
from pulsetrain.training.ending import outcome
from pulsetrain.training.lifetime import began_at, restarts, start_up
from pulsetrain.training.liveness import RunEnded, has_ended
from pulsetrain.training.provenance import ProvenanceFile
from pulsetrain.training.ranks import ProcessRank, launched
from pulsetrain.training.segment import SegmentFile
from pulsetrain.training.threads import in_pool_worker

SEGMENT_BYTES = 64 * 2**20
LIVENESS_SECONDS = 30.0
"""How often to see whether the run is over."""


class ReportWriter:
    """Writes lines to `training_metrics_<stamp>[.rankN][.pidP].jsonl` in a folder; not for two threads at once."""

    def __init__(self, folder: str, stamp: str, started: float, about: Mapping[str, Any]) -> None:
        self._folder = folder
        self._stamp = stamp
        self._started = started
        self._about = about
        self._process_rank = ProcessRank(folder)
        self._rank = launched()
        """As which lines are written."""
        self._encoder = LineEncoder(started, self._rank.number)
        self._file: SegmentFile | None = None
        self._provenance = ProvenanceFile(folder, stamp)
        self._continues = ""
        """The name of the full file before this one."""
        self._next_look = -float("inf")
        """When to see again whether the run is over."""

    def write(self, reports: list[Report], skip: Callable[[str, str], object]) -> None:
        """Write all of them, or, with an OSError, none; `skip` is called with what cannot become a line, and why.

        Raises RunEnded when the run is over.
        """
        self._look_whether_it_ended()
        self._know_rank(skip, trains=any("step" in fields for _, fields in reports))
        data = self._encoder.lines(reports, skip)
        if self._file is not None and self._file.size >= SEGMENT_BYTES:
            self._file.close()
            self._continues, self._file = self._file.name, None
            self._stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime())
        if self._file is None:
            self._file = SegmentFile(self._folder, self._stamp, self._rank.number)
        if self._file.size == 0:
            data = self._encoder.lines([(time.monotonic(), self._head())], skip) + data
        self._file.write(data)

    def write_provenance(self) -> None:
        """Write what is known of the training by now. Raises OSError, or RunEnded when the run is over."""
        trains = self._file is not None
        if (
            trains and not in_pool_worker()
        ):  # which is to write its reports before it is ended, and is described by its parent
            self._provenance.describe()
        if self._provenance.is_due(trains):
            self._look_whether_it_ended()
            self._provenance.write(self._process_rank.now(trains=False).number, trains)

    def _look_whether_it_ended(self) -> None:
        """The variables of a run may outlive it, in a terminal or in workers; and so may its processes."""
        now = time.monotonic()
        if now >= self._next_look:
            if has_ended(self._folder):
                self._close_file()
                raise RunEnded(os.path.dirname(self._folder))
            self._next_look = now + LIVENESS_SECONDS

    def close(self) -> None:
        """The process ends, or reports nothing more: the last line of its file says so."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: there is nothing more to lose
                self._file.write(self._encoder.lines([(time.monotonic(), _end_note())], lambda what, why: None))
        self._close_file()
        self._process_rank.close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _know_rank(self, skip: Callable[[str, str], object], *, trains: bool) -> None:
        """Write as the rank that is known by now. Of a file that was begun as another, the last line corrects it."""
        rank = self._process_rank.now(trains=trains)
        if rank.number != self._rank.number:
            encoder = LineEncoder(self._started, rank.number)
            if self._file is not None:
                if not self._rank.of_group:
                    self._file.write(encoder.lines([(time.monotonic(), _rank_note(rank.number))], skip))
                self._file.close()
                self._file = None
            self._encoder = encoder
        self._rank = rank

    def _head(self) -> dict[str, Any]:
        """The first line of a file: who writes it, and which one it continues. That one may be sealed."""
        head: dict[str, Any] = {
            "event": "training_process",
            "severity": "info",
            "message": "records",
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "began_seconds": round(began_at() - self._started, 6),
        }
        head.update(start_up())
        head.update(self._about, world_size=self._rank.world_size)
        if (count := restarts()) is not None:
            head["restarts"] = count
        return {**head, "continues": self._continues} if self._continues else head


def _end_note() -> dict[str, Any]:
    return {
        "event": "training_process_end",
        "severity": "info",
        "message": "ends",
        "pid": os.getpid(),
        "outcome": outcome(),
    }


def _rank_note(number: int) -> dict[str, Any]:
    """The last line of a file whose lines are all of this rank, whatever they say."""
    return {"event": "training_rank", "severity": "info", "message": "This process is rank %d." % number}

"""The training loop, from the files that the recorders inside the training processes write.

Every process has its own file; they are followed as they grow. A half line waits for its rest. A file that is full is
continued in another, and may be sealed and gone before we have come to its end: an open one can still be read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.catalog import METRICS, STEP_BUCKETS, STEP_COUNTS
from pulsetrain.snapshot import Event, Sample, Severity, Subject, Value

MOST_BYTES = 4 * 2**20
"""Read of one file at one tick; a loop that reports faster than this can be read shows a little late."""
TEXT_FIELDS = frozenset({"timestamp", "phase", "training"})
NOT_VALUES = frozenset({"timestamp", "elapsed_seconds", "rank", "nonfinite"})
NONFINITE = ("nan", "inf", "-inf")
BUCKETS = (*map(str, STEP_BUCKETS), "+Inf")
AMOUNTS = frozenset(metric.field for metric in METRICS if metric.table == "training" and metric.kind == "amount")


class Training:
    """Follows the training files in one host's folder of a run."""

    name = "training"
    period = 0.5

    def __init__(self, folder: Path, closed: Callable[[Path], None] | None = None) -> None:
        """`closed` is called with each file that is full and no longer written."""
        self._folder = folder
        self._closed = closed
        self._tails: dict[str, Tail] = {}
        self.seen = False
        """Whether anything of a training loop has come."""
        self.newest_seconds = 0.0
        """When the newest report was made, in elapsed time of the run."""

    def read(self) -> Iterator[Sample | Event]:
        ranks: dict[int, dict[str, Value]] = {}
        names = {path.name for path in self._folder.glob("training_metrics_*.jsonl")}
        for name in names - self._tails.keys():
            self._tails[name] = Tail(self._folder / name)
        for name, tail in sorted(self._tails.items()):
            for line in tail.lines():
                if line.get("event") == "training_process":  # the head of a file
                    self._note_closed(line)
                elif "event" in line:
                    yield from tail.event(line)
                else:
                    self.seen = True
                    self._note_time(line)
                    merge(ranks.setdefault(int(line.get("rank") or 0), {}), line)
            if tail.at_end and name not in names:
                self._tails.pop(name).close()
        for rank, values in ranks.items():
            yield Sample(subject(rank), values)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    @property
    def caught_up(self) -> bool:
        """Whether the last reading came to the end of every file."""
        return all(tail.at_end for tail in self._tails.values())

    def _note_time(self, line: Mapping[str, Any]) -> None:
        if isinstance(seconds := line.get("elapsed_seconds"), int | float):
            self.newest_seconds = max(self.newest_seconds, seconds)

    def _note_closed(self, head: Mapping[str, Any]) -> None:
        if self._closed and isinstance(head.get("continues"), str):
            self._closed(self._folder / head["continues"])


def subject(rank: int) -> Subject:
    """The subject of a rank's reports."""
    return Subject("training", f"rank {rank}", {"rank": rank})


def merge(values: dict[str, Value], line: Mapping[str, Any]) -> None:
    """The last of everything, and the sum of what is an amount. Step durations are counted by their length as well."""
    for field, value in line.items():
        if value is None or field in NOT_VALUES:
            continue
        before = values.get(field)
        if field in AMOUNTS and isinstance(before, int | float) and isinstance(value, int | float):
            values[field] = before + value
        else:
            values[field] = value
    if isinstance(odd := line.get("nonfinite"), dict):
        values.update({field: float(what) for field, what in odd.items() if what in NONFINITE and field not in AMOUNTS})
    if isinstance(seconds := line.get("step_seconds"), int | float):
        _count(values, BUCKETS[bisect_left(STEP_BUCKETS, seconds)])


def _count(values: dict[str, Value], bucket: str) -> None:
    counts = values.setdefault(STEP_COUNTS.field, {})
    assert isinstance(counts, dict)
    counts[bucket] = counts.get(bucket, 0) + 1


class Tail:
    """A file of JSON lines, followed as it grows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self._decoder = msgspec.json.Decoder(dict[str, Any])
        self.at_end = False

    def lines(self) -> Iterator[dict[str, Any]]:
        data = self._file.read(MOST_BYTES)
        self.at_end = len(data) < MOST_BYTES
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            try:
                yield self._decoder.decode(line)
            except msgspec.DecodeError:
                continue  # cut off by a kill; the reader of the run counts it

    def event(self, line: Mapping[str, Any]) -> Iterator[Event]:
        severity: Severity = line["severity"] if line.get("severity") in ("info", "warning", "error") else "info"
        known = {"timestamp", "elapsed_seconds", "event", "severity", "message"}
        details = {key: value for key, value in line.items() if key not in known}
        yield Event(str(line["event"]), str(line.get("message", "")), severity, details)

    def close(self) -> None:
        self._file.close()

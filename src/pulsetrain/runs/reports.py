"""The reports of a training: followed in the files of its processes as they grow, and merged for each rank."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pulsetrain import catalog
from pulsetrain.catalog import NONFINITE, STEP_BUCKETS, STEP_COUNTS, TABLES, TRAINING_TIME
from pulsetrain.regular_files import is_regular
from pulsetrain.runs.codec import END_NOTE, HEAD_NOTE, NOTE, RANK_NOTE, Line, elapsed_of, event_of, rank_of, time_of
from pulsetrain.runs.line_file import LineFile
from pulsetrain.runs.time_so_far import TimeSoFar
from pulsetrain.snapshot import Event, Metric, Sample, Subject, Value

NOT_VALUES = frozenset({"timestamp", "elapsed_seconds", "rank", "nonfinite"})
NOT_FINITE = ("nan", "inf", "-inf")
BUCKETS = (*map(str, STEP_BUCKETS), "+Inf")
AMOUNTS = frozenset(metric.field for metric in catalog.metrics_of("training") if metric.kind == "amount")
DECLARED = frozenset(metric.field for metric in catalog.metrics_of("training"))
OTHER_VALUES = "other"
"""Values that a program names itself are counted together: it can make up names without end."""


class TrainingReports:
    """A source that follows the training files in one host's folder of a run. Every process has its own."""

    name = "training"
    period = 0.5

    def __init__(self, folder: Path, closed: Callable[[Path], None] | None = None) -> None:
        """`closed` is called with each file that is full and no longer written."""
        self._folder = folder
        self._closed = closed
        self._files: dict[str, LineFile] = {}
        self._times: dict[int, TimeSoFar] = defaultdict(TimeSoFar)
        """By rank."""
        self.seen = False
        """Whether anything of a training loop has come."""
        self.newest_seconds = 0.0
        """When the newest report was made, in elapsed time of the run."""

    def read(self) -> Iterator[Sample | Event]:
        reports = MergedReports()
        pattern = f"{TABLES['training'].files}.jsonl"
        names = {path.name for path in self._folder.glob(pattern) if is_regular(path)}
        for name in names - self._files.keys():
            self._files[name] = LineFile(self._folder / name)
        for name, file in sorted(self._files.items()):
            for line in file.lines():
                if line.get(NOTE) == HEAD_NOTE:
                    self._times[rank_of(line)].begin(line)
                    self._note_closed(line)
                elif NOTE in line:
                    if line[NOTE] not in (RANK_NOTE, END_NOTE):  # what came before is shown already
                        yield event_of(line)
                else:
                    self.seen = True
                    self.newest_seconds = max(self.newest_seconds, elapsed_of(line) or 0.0)
                    reports.add(line)
                    self._times[rank_of(line)].add(line)
            if file.at_end and name not in names:
                self._files.pop(name).close()
        for sample in reports.take():
            if seconds := self._times[rank_of(sample.subject.labels)].seconds:
                sample.values[TRAINING_TIME.field] = dict(seconds)
            yield sample

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    @property
    def caught_up(self) -> bool:
        """Whether the last reading came to the end of every file."""
        return all(file.at_end for file in self._files.values())

    def _note_closed(self, head: Mapping[str, Any]) -> None:
        if self._closed and isinstance(head.get("continues"), str):
            self._closed(self._folder / head["continues"])


class MergedReports:
    """Reports, merged for each rank until they are taken."""

    def __init__(self) -> None:
        self._ranks: dict[int, dict[str, Value]] = {}
        self.time = self.elapsed = 0.0
        """Of the report that was added last."""

    def add(self, line: Line) -> None:
        merge(self._ranks.setdefault(rank_of(line), {}), line)
        self.time, self.elapsed = time_of(line) or self.time, elapsed_of(line) or self.elapsed

    def take(self) -> list[Sample]:
        """A sample for each rank that has reported since the last call."""
        ranks, self._ranks = self._ranks, {}
        return [Sample(subject(rank), values) for rank, values in ranks.items()]


def subject(rank: int) -> Subject:
    """The subject of a rank's reports."""
    return catalog.subject("training", {"rank": rank})


def merge(values: dict[str, Value], line: Mapping[str, Any]) -> None:
    """The last of everything, and the sum of what is an amount.

    Step durations are counted by their length as well, and values that are NaN or infinite by what they are of.

    `phase` is the one that the program is in after the line: the line of its end, or a step outside of any, ends it.
    """
    for field, value in line.items():
        if value is None or field in NOT_VALUES:
            continue
        before = values.get(field)
        if field in AMOUNTS and isinstance(before, int | float) and isinstance(value, int | float):
            values[field] = before + value
        else:
            values[field] = value
    if line.get("phase_seconds") is not None or (line.get("step_seconds") is not None and line.get("phase") is None):
        values.pop("phase", None)
    if isinstance(odd := line.get("nonfinite"), dict):
        odd = {field: float(what) for field, what in odd.items() if what in NOT_FINITE}
        values.update({field: value for field, value in odd.items() if field not in AMOUNTS})
        for of in {field if field in DECLARED else OTHER_VALUES for field in odd}:
            _count(values, NONFINITE, of)
    if isinstance(seconds := line.get("step_seconds"), int | float):
        _count(values, STEP_COUNTS, BUCKETS[bisect_left(STEP_BUCKETS, seconds)])


def _count(values: dict[str, Value], metric: Metric, key: str) -> None:
    counts = values.setdefault(metric.field, {})
    assert isinstance(counts, dict)
    counts[key] = counts.get(key, 0) + 1

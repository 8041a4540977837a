"""A run while it is being written: its files, followed as they grow, as the snapshots of its ticks.

The files may be written on another machine, into a folder that both share. A half line waits for its rest. A file that
is full is continued in another, and may be sealed and gone before we have come to its end: an open one can still be
read.
"""

import math
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from pulsetrain.catalog import LABELS, METRICS
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, RunFolder, host_name
from pulsetrain.snapshot import Event, Label, Sample, Severity, Snapshot, Subject, Value
from pulsetrain.sources import training
from pulsetrain.sources.training import Tail

SEARCH_BYTES = 64 * 2**10
"""A line that is looked for by its time is found to so many bytes by halving, and then by reading."""
MOST_REPORTS = 50_000
"""Of a training whose machine nobody reads any more, so many reports are held."""
STATUS_SECONDS = 1.0
"""How often it is looked whether the run has ended."""

Line = dict[str, Any]

_FIELDS = {table: frozenset(metric.field for metric in METRICS if metric.table == table) for table in LABELS}
_EVENT_FIELDS = frozenset({"timestamp", "elapsed_seconds", "kind", "severity", "message", "run", "host", "other"})
_ELAPSED = re.compile(rb'"elapsed_seconds": ?([0-9.]+)')
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Follow:
    """One host of a run, from a moment on. Each `read` gives what has come since the one before, in order of time."""

    def __init__(self, run: RunFolder, host: str, start: float = -math.inf) -> None:
        """`start` in seconds since the run began. What was before is left to `outline`."""
        self._run = run
        self._folder = run.host_folder(host)
        self._files: dict[str, File] = {}
        self._ticks: dict[float, Tick] = {}
        self._reports: deque[Line] = deque()
        self._origin: float | None = None
        self._newest = Snapshot(time.time(), 0.0, ())
        """The time of the last one that was shown."""
        self._looked = -math.inf
        self._ended = False
        self._start = start

    def read(self) -> list[Snapshot]:
        """The snapshots of the ticks that are complete; the last one of all says so.

        Lines are written file by file. What the last look brought is complete with this one.
        """
        complete = max(self._ticks, default=-math.inf)
        self._ended = self._ended or self._has_ended()  # before the files: they then hold all that will come
        self._find()
        self._start = -math.inf  # what is begun from now on is read whole
        for name, file in list(self._files.items()):
            gone = file.gone
            for line in file.all_lines():
                self._take(file.table, line)
            if gone:
                self._files.pop(name).close()
        return self._rest() if self._ended else list(self._up_to(complete))

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _find(self) -> None:
        """Open the files that are new."""
        # Events last: some have no elapsed time of their own, and are placed by that of other lines.
        for path in sorted(self._folder.glob("*.jsonl"), key=lambda path: (path.stem == "events", path.name)):
            table = table_of(path)
            if table and path.name not in self._files:
                try:
                    file = self._files[path.name] = File(path, table)
                except FileNotFoundError:
                    continue  # sealed just now
                if self._start > -math.inf:
                    file.seek(self._start)

    def _has_ended(self) -> bool:
        now = time.monotonic()
        if now < self._looked + STATUS_SECONDS:
            return False
        self._looked = now
        try:
            return self._run.load().status != "running"
        except PulsetrainError:
            return True  # its folder is gone

    def _take(self, table: str, line: Line) -> None:
        at, elapsed = moment(line), line.get("elapsed_seconds")
        if at is None:
            return
        if table == "training":
            if is_report(line):
                self._reports.append(line)
            return
        if not isinstance(elapsed, int | float):  # the run's writer knows no elapsed time: its own events have none
            elapsed = at - (at if self._origin is None else self._origin)
        elif self._origin is None:
            self._origin = at - elapsed
        tick = self._ticks.setdefault(elapsed, Tick(at))
        if table == "events":
            tick.events.append(event_of(line))
        else:
            tick.add(sample_of(table, line))

    def _up_to(self, last: float) -> Iterator[Snapshot]:
        self._reports = deque(sorted(self._reports, key=_elapsed), MOST_REPORTS)  # each process has its own order
        for elapsed in sorted(elapsed for elapsed in self._ticks if elapsed <= last):
            tick = self._ticks.pop(elapsed)
            for report in merged(self._reported(elapsed)):
                tick.add(report)
            snapshot = tick.snapshot(elapsed)
            self._newest = snapshot._replace(samples=(), events=())
            yield snapshot

    def _reported(self, until: float) -> Iterator[Line]:
        """What the training has reported up to a tick."""
        while self._reports and _elapsed(self._reports[0]) <= until:
            yield self._reports.popleft()

    def _rest(self) -> list[Snapshot]:
        """All that is left, and then no more."""
        snapshots = list(self._up_to(math.inf))
        if late := list(self._reported(math.inf)):  # after the last tick
            at = moment(late[-1]) or self._newest.time
            snapshots.append(Snapshot(at, _elapsed(late[-1]), tuple(merged(late))))
        last = snapshots.pop() if snapshots else self._newest
        return [*snapshots, last._replace(last=True)]


class File(Tail):
    """A file of a run: read as it grows, or at any moment of the run."""

    def __init__(self, path: Path, table: str = "") -> None:
        super().__init__(path)
        self.table = table
        self._path = path

    def all_lines(self) -> Iterator[Line]:
        """Those that have come, to the end of the file. One that a kill has cut off is skipped."""
        yield from self.lines()
        while not self.at_end:
            yield from self.lines()

    @property
    def gone(self) -> bool:
        """No longer in its folder: what is not yet read of it is all there will be."""
        return not self._path.exists()

    def seek(self, elapsed: float) -> None:
        """Go to the first line of this moment or later; lines are in order, but for a few."""
        low, high = 0, self._file.seek(0, 2)
        while high - low > SEARCH_BYTES:
            middle = (low + high) // 2
            self._file.seek(middle)
            self._file.readline()
            found = _ELAPSED.search(self._file.readline())
            if found and float(found[1]) < elapsed:
                low = middle
            else:
                high = middle
        self._file.seek(low)
        if low:
            self._file.readline()
        position = self._file.tell()
        while line := self._file.readline():
            if (found := _ELAPSED.search(line)) and float(found[1]) >= elapsed:
                break
            position = self._file.tell()
        self._file.seek(position)

    def first_elapsed(self, position: int = 0) -> float:
        """Of the first whole line after a position; infinity when there is none."""
        self._file.seek(max(0, position))
        if position > 0:
            self._file.readline()
        found = _ELAPSED.search(self._file.readline())
        return float(found[1]) if found else math.inf

    def last_elapsed(self) -> float:
        """Of the last line; 0 when there is none."""
        self._file.seek(max(0, self._file.seek(0, 2) - SEARCH_BYTES))
        found = _ELAPSED.findall(self._file.read())
        return float(found[-1]) if found else 0.0

    def next_tick(self) -> list[Line]:
        """The lines from here on that have the same time."""
        lines: list[Line] = []
        for text in self._file:
            line = _decoded(text)
            if line is None:
                continue
            if lines and line.get("elapsed_seconds") != lines[0].get("elapsed_seconds"):
                break
            lines.append(line)
        return lines

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Tick:
    """What was read at one moment."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.samples: dict[Subject, Sample] = {}
        self.events: list[Event] = []

    def add(self, sample: Sample) -> None:
        """Of two lines about one subject, one was late: they belong together."""
        self.samples.setdefault(sample.subject, sample).values.update(sample.values)

    def snapshot(self, elapsed: float) -> Snapshot:
        return Snapshot(self.time, elapsed, tuple(self.samples.values()), tuple(self.events))


def newest_live(home: Home) -> RunFolder | None:
    """The run that was last begun of those that this machine records now."""
    for folder in reversed(list(home.runs())):
        try:
            run = folder.load()
        except PulsetrainError:
            continue
        if run.status == "running" and host_name() in run.hosts:
            return folder
    return None


def sample_of(table: str, line: Mapping[str, Any]) -> Sample:
    """A line of a table as the sample that it was."""
    labels: dict[str, Label] = {label: line[label] for label in LABELS[table] if line.get(label) is not None}
    values: dict[str, Value] = {
        field: value for field, value in line.items() if value is not None and field in _FIELDS[table]
    }
    return Sample(Subject(table, key_of(table, labels), labels), values)


def event_of(line: Mapping[str, Any]) -> Event:
    details = {name: value for name, value in line.items() if name not in _EVENT_FIELDS and value is not None}
    severity: Severity = line["severity"] if line.get("severity") in ("info", "warning", "error") else "info"
    return Event(str(line.get("kind", "")), str(line.get("message", "")), severity, details)


def is_report(line: Mapping[str, Any]) -> bool:
    """Whether a line of a training file is a report. The recorder's notes are none: they are events of the run."""
    return "event" not in line and isinstance(line.get("elapsed_seconds"), int | float)


def merged(reports: Iterable[Line]) -> Iterator[Sample]:
    """Reports of a training as one sample for each rank."""
    ranks: dict[int, dict[str, Value]] = {}
    for line in reports:
        training.merge(ranks.setdefault(int(line.get("rank") or 0), {}), line)
    for rank, values in ranks.items():
        yield Sample(training.subject(rank), values)


def moment(line: Mapping[str, Any]) -> float | None:
    """The time of a line, in seconds since the epoch; None when the line is damaged."""
    try:
        return datetime.fromisoformat(line["timestamp"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def table_of(path: Path) -> str | None:
    """Whose lines a file of a host's folder holds."""
    table, metrics, _ = path.stem.partition("_metrics_")
    return table if (table in LABELS and metrics) or table == "events" else None


def _elapsed(line: Line) -> float:
    return float(line["elapsed_seconds"])


def _decoded(text: bytes) -> Line | None:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def key_of(table: str, labels: Mapping[str, Label]) -> str:
    """What tells subjects of a table apart, as in the sources."""
    if table == "process":
        return f"{labels.get('pid')}@{labels['uuid']}" if "uuid" in labels else str(labels.get("pid"))
    if table == "mig":
        return str(labels.get("mig_uuid"))
    if table == "gpu":
        return str(labels.get("uuid", f"index {labels.get('gpu_index')}"))
    return ""

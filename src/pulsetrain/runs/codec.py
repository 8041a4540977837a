"""The one codec of a line: samples and events become lines of a run's files, and lines become samples and events.

A line is a JSON object: its times, the labels of its subject, its values. What a reader does not know is left alone,
and what is damaged is None, never an exception: a run folder may come from anywhere.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from pulsetrain import catalog
from pulsetrain.catalog import EVENT_TABLE, SAMPLE_TABLES, TABLES
from pulsetrain.snapshot import Event, Label, Sample, Snapshot, Subject, Value, severity_of
from pulsetrain.untrusted import showable_document

Line = dict[str, Any]
Skip = Callable[[str, Exception], None]
"""Takes what is left out, in words, and why."""

NOTE = "event"
"""Marks a line of a training file as a note of the recorder: an event of the run, not a report."""
HEAD_NOTE = "training_process"
"""The first line of a training file: who writes it."""
END_NOTE = "training_process_end"
"""The last line of a training process that ended as Python lets it be seen."""
RANK_NOTE = "training_rank"
"""The last line of a training file of a process that learned its rank late: all lines of the file are of that rank."""
MOST_KNOWN_LABELS = 1000
NO_ELAPSED = 1e12
"""No run takes this many seconds, 30,000 years: a line that says so is damaged."""

FROM_TRAINING = frozenset(table.name for table in SAMPLE_TABLES if table.from_training)
"""Tables whose lines the training processes write."""
_ABSENT = {table.name: dict.fromkeys(table.always) for table in SAMPLE_TABLES}
_LABELS = {table.name: [label.name for label in table.labels] for table in SAMPLE_TABLES}
_FIELDS = {table: frozenset(metric.field for metric in catalog.metrics_of(table)) for table in TABLES}
_ALL_EVENTS_HAVE = frozenset(
    {"timestamp", "elapsed_seconds", "kind", NOTE, "severity", "message", "run", "host", "other"}
)
_OF_ROWS_ALONE = frozenset({"run", "host", "other"})
_ELAPSED = re.compile(rb'"elapsed_seconds": ?([0-9]+(?:\.[0-9]+)?)')
_decode = msgspec.json.Decoder(Line).decode


class Encoder:
    """Makes lines of snapshots, each with the name of its table. Of a training, its own process writes the lines."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._known_labels: dict[Subject, tuple[object, bytes]] = {}

    def lines(self, snapshot: Snapshot, skip: Skip) -> Iterator[tuple[str, bytes]]:
        """The lines of all that JSON can hold; each sample or event that it cannot hold is given to `skip`."""
        head = b'{"timestamp":"%s","elapsed_seconds":%.3f' % (time_text(snapshot.time).encode(), snapshot.elapsed)
        for sample in snapshot.samples:
            try:
                table = sample.subject.table
                if table in FROM_TRAINING:
                    continue
                line = head + self._labels(sample.subject) + self._values(table, sample.values) + b"}\n"
            except Exception as error:  # noqa: BLE001 - a source gave anything at all
                skip(f"a sample of {sample.subject.table}, which cannot be written", error)
            else:
                yield table, line
        for event in snapshot.events:
            try:
                line = head + self._event(event) + b"}\n"
            except Exception as error:  # noqa: BLE001
                skip("an event, which cannot be written", error)
            else:
                yield EVENT_TABLE.name, line

    def event_line(self, event: Event, time: float) -> bytes:
        """An event outside of all ticks, which has no elapsed time."""
        return b'{"timestamp":"%s"' % time_text(time).encode() + self._event(event) + b"}\n"

    def _labels(self, subject: Subject) -> bytes:
        """The front of a subject's lines, made once: its labels are the same object until they change."""
        known = self._known_labels.get(subject)
        if known is None or known[0] is not subject.labels:
            if len(self._known_labels) >= MOST_KNOWN_LABELS:  # processes come and go
                self._known_labels.clear()
            known = self._known_labels[subject] = (subject.labels, self._members(subject.labels))
        return known[1]

    def _values(self, table: str, values: dict[str, Value]) -> bytes:
        absent = _ABSENT[table]
        return self._members(absent | values if absent else values)

    def _event(self, event: Event) -> bytes:
        fields = {"kind": event.kind, "severity": event.severity, "message": event.message, **event.details}
        return self._members(fields)

    def _members(self, fields: object) -> bytes:
        """The inside of a JSON object, with a comma before it."""
        text = self._encode(fields)
        return b"," + text[1:-1] if len(text) > 2 else b""


def decoded(text: bytes | str) -> Line | None:
    """A line as it is in a file; None for one that was cut off by a kill, or is damaged otherwise."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def from_row(row: Mapping[str, Any]) -> Line:
    """A row of the database as the line that it was: what has no column of its own is in `other`.

    All text in it is fit to be shown.
    """
    line = {name: value for name, value in row.items() if value is not None and name not in _OF_ROWS_ALONE}
    if other := row.get("other"):
        line |= decoded(other) or {}
    shown: Line = showable_document(line)
    return shown


def time_of(line: Mapping[str, Any]) -> float | None:
    """The time of a line, in seconds since the epoch; None when the line is damaged."""
    time = line.get("timestamp")
    try:
        if isinstance(time, datetime):  # as the database has it, in UTC
            return time.replace(tzinfo=UTC).timestamp()
        return datetime.fromisoformat(time).timestamp()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def time_text(seconds: float) -> str:
    """A time in seconds since the epoch, as lines have it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def elapsed_of(line: Mapping[str, Any]) -> float | None:
    """The elapsed time of a line; the run's writer does not know that of its own events."""
    elapsed = line.get("elapsed_seconds")
    return elapsed if isinstance(elapsed, int | float) and abs(elapsed) < NO_ELAPSED else None


def elapsed_times(text: bytes) -> list[float]:
    """The elapsed times in a piece of a file, found without decoding its lines."""
    return [elapsed for found in _ELAPSED.findall(text) if (elapsed := float(found)) < NO_ELAPSED]


def rank_of(line: Mapping[str, Any]) -> int:
    """The rank that reported a line."""
    rank = line.get("rank")
    return int(rank) if isinstance(rank, int | float) else 0


def is_report(line: Mapping[str, Any]) -> bool:
    """Whether a line of a training file is a report, and not a note of the recorder."""
    return NOTE not in line and elapsed_of(line) is not None


def sample_of(table: str, line: Mapping[str, Any]) -> Sample:
    """A line of a table as the sample that it was."""
    labels: dict[str, Label] = {label: line[label] for label in _LABELS[table] if line.get(label) is not None}
    fields = _FIELDS[table]
    values: dict[str, Value] = {field: value for field, value in line.items() if value is not None and field in fields}
    return Sample(catalog.subject(table, labels), values)


def event_of(line: Mapping[str, Any]) -> Event:
    """A line of the events, or a note of the recorder, as the event that it was."""
    details = {name: value for name, value in line.items() if name not in _ALL_EVENTS_HAVE and value is not None}
    kind = line[NOTE] if NOTE in line else line.get("kind", "")
    return Event(str(kind), str(line.get("message", "")), severity_of(line.get("severity")), details)

"""What is known of a training from inside it: its configuration, its versions, the files it wrote.

Hooks note it in memory. Once this process is seen to train, the recorder's thread writes it, masked, to a file of its
own beside the reports; the watching process merges that into run.json. Of several ranks, the first alone writes.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Union

from pulsetrain.training.masking import masked_document

MOST_WAITING = 500
"""Notes in memory; of more, the oldest are dropped."""
AGAIN_SECONDS = 30.0
"""By then, all is set up."""
MOST_BYTES = 2 * 2**20
"""Written by one process."""

Values = Union[Mapping[str, Any], Callable[[], Mapping[str, Any]]]


class ProvenanceNote(NamedTuple):
    kind: str
    """What it is about, such as `config`."""
    source: str
    """Who says so, such as `argparse`."""
    values: Values
    """Plain values, nested; or what gives them, called in the background."""
    explicit: bool
    """Whether the program asked for it: then it is written even where nothing is seen to train."""


_waiting: deque[ProvenanceNote] = deque(maxlen=MOST_WAITING)


def note(kind: str, source: str, values: Values, *, explicit: bool = False) -> None:
    """Have this recorded of the run. Costs next to nothing: all else is done in the background."""
    _waiting.append(ProvenanceNote(kind, source, values, explicit))
    if explicit:
        from pulsetrain.training import process  # which imports the writer of these notes

        recorder = process.current()
        if recorder is not None:
            recorder.attend()


class ProvenanceFile:
    """Writes the notes of this process; not for two threads at once."""

    def __init__(self, folder: str, stamp: str) -> None:
        self._path = os.path.join(folder, "provenance_%s.pid%d.jsonl" % (stamp, os.getpid()))
        self._size = 0
        self._written: set[str] = set()
        self._describe_at = 0.0
        """When to ask what this process runs on."""

    @staticmethod
    def is_due(trains: bool) -> bool:
        """Whether there is something to write, in a process that is seen to train or not."""
        return bool(_waiting) and (trains or any(note.explicit for note in tuple(_waiting)))

    def describe(self) -> None:
        """Ask what this process runs on and what is known of its training: as it begins, and once more later."""
        now = time.monotonic()
        if now >= self._describe_at:
            from pulsetrain.training import seen, software

            note("versions", "training process", software.versions)
            note("training", "training process", seen.facts)
            if not self._describe_at:
                note("packages", "training process", software.packages)
            self._describe_at = float("inf") if self._describe_at else now + AGAIN_SECONDS

    def write(self, rank: int, trains: bool) -> None:
        """Write what is due. After an OSError it is due again."""
        later: list[ProvenanceNote] = []
        try:
            while _waiting:
                note = _waiting.popleft()
                if not (trains or note.explicit):
                    later.append(note)
                elif rank == 0:
                    self._append(note)
        finally:
            _waiting.extendleft(reversed(later))

    def _append(self, note: ProvenanceNote) -> None:
        line = _line(note)
        if line in self._written or self._size + len(line) > MOST_BYTES:
            return
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(self._path, "ab") as file:
                file.write(line.encode())
        except OSError:
            _waiting.appendleft(note)
            raise
        self._written.add(line)
        self._size += len(line)


def _line(note: ProvenanceNote) -> str:
    try:
        values = note.values() if callable(note.values) else note.values
    except Exception as error:  # the program's own objects are asked here: what they raise is worth a note, no more
        values = {"error": "%s: %s" % (type(error).__name__, error)}
        note = note._replace(kind="failed")
    document = {"kind": note.kind, "source": note.source, "values": masked_document(values)}
    if note.explicit:
        document["explicit"] = True
    return json.dumps(document, allow_nan=False, default=str) + "\n"

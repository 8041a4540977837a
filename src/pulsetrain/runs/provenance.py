"""What training processes know of a run: followed in the files that they write, and merged for run.json."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pulsetrain.regular_files import is_regular
from pulsetrain.runs.line_file import LineFile
from pulsetrain.snapshot import Sample

FILES = "*/provenance_*.jsonl"
MOST_FILES = 64
MOST_CONFIG_BYTES = 256 * 2**10
"""Of the merged configuration; run.json is read often."""


class SaidNote(NamedTuple):
    """One line of a training process."""

    source: str
    values: dict[str, Any]
    explicit: bool


class ProvenanceNotes:
    """A source that yields no samples: it reads what training processes of all hosts note, and hands it on by kind."""

    name = "provenance"
    period = 1.0

    def __init__(self, run: Path, noted: Callable[[Mapping[str, Sequence[SaidNote]]], None]) -> None:
        """`noted` is called with all notes so far, those of the newest attempt first, when there are new ones."""
        self._run = run
        self._noted = noted
        self._files: dict[Path, LineFile] = {}
        self._said: dict[Path, list[tuple[str, SaidNote]]] = defaultdict(list)

    def read(self) -> Iterator[Sample]:
        paths = sorted(path for path in self._run.glob(FILES) if is_regular(path))
        for path in paths[:MOST_FILES]:
            if path not in self._files:
                self._files[path] = LineFile(path)
        if sum(self._read(path, file) for path, file in self._files.items()):
            self._noted(self._by_kind())
        return iter(())

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _read(self, path: Path, file: LineFile) -> int:
        """How many notes have come."""
        before = len(self._said[path])
        for line in file.lines():
            kind, source, values = line.get("kind"), line.get("source"), line.get("values")
            if isinstance(kind, str) and isinstance(source, str) and isinstance(values, dict):
                self._said[path].append((kind, SaidNote(source, values, line.get("explicit") is True)))
        return len(self._said[path]) - before

    def _by_kind(self) -> dict[str, list[SaidNote]]:
        found: dict[str, list[SaidNote]] = defaultdict(list)
        attempts = sorted({_attempt(path) for path in self._said}, reverse=True)
        for attempt in attempts:
            for path in sorted(path for path in self._said if _attempt(path) == attempt):
                for kind, note in self._said[path]:
                    found[kind].append(note)
        return found


def _attempt(path: Path) -> str:
    """When the attempt began that a file is of: `provenance_20261116_013054.pid17.jsonl`."""
    return path.name.partition(".")[0]


def merged_config(given: Mapping[str, Any], notes: Sequence[SaidNote]) -> tuple[dict[str, Any], list[str]]:
    """The configuration, and who said something of it.

    What the program said last counts first, then what it gave at the start, then what was seen, in that order.
    """
    explicit = [note for note in notes if note.explicit]
    seen = [note for note in notes if not note.explicit]
    ordered = [*reversed(explicit), SaidNote("pulsetrain.init", dict(given), True), *seen]
    config: dict[str, Any] = {}
    sources: dict[str, None] = {}
    room = MOST_CONFIG_BYTES
    for note in ordered:
        size = len(msgspec.json.encode(note.values))
        if note.values and size <= room:
            room -= size
            sources[note.source] = None
            _add_missing(config, note.values)
    return config, list(sources)


def _add_missing(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        have = config.get(name)
        if name not in config:
            config[name] = dict(value) if isinstance(value, dict) else value
        elif isinstance(have, dict) and isinstance(value, dict):
            have = config[name] = dict(have)
            _add_missing(have, value)

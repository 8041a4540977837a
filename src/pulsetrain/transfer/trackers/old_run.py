"""A run of a tracker, and how it becomes an ordinary run folder.

All of it is a stranger's data: names, texts and numbers are checked before they are kept.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from pulsetrain.catalog import TABLES
from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.codec import time_text
from pulsetrain.runs.folder import Home, Host, HostAttempt, Run, RunFolder, slug
from pulsetrain.training.masking import masked, masked_document, masked_value, storable

HOST = "imported"
IMPORTED_JSON = "imported.json"
RESERVED = frozenset({"timestamp", "elapsed_seconds", "rank", "event", "nonfinite", "step"})
MOST_NAMES = 2000
LONGEST_NAME = 200
FIRST_TIME, LAST_TIME = 0.0, 4e9
"""Seconds since the epoch, up to the year 2096."""
TELLS = {"train/loss": "loss", "training_loss": "loss", "lr": "learning_rate", "grad_norm": "gradient_norm"}
"""Names that mean what ours do."""

Outcome = Literal["imported", "updated", "unchanged"]


class OldPoint(NamedTuple):
    """Figures of one moment."""

    time: float
    """Seconds since the epoch."""
    step: int | None
    values: Mapping[str, float]


class OldRun(NamedTuple):
    """A run as a tracker has it."""

    tracker: str
    key: str
    """What tells it apart from all others of this tracker, on whatever machine it is read."""
    name: str
    points: list[OldPoint]
    project: str = ""
    config: Mapping[str, Any] = {}
    tags: Mapping[str, str] = {}
    start: float | None = None
    end: float | None = None
    status: str = ""
    """As that of a run; empty where the tracker does not know: then it counts as finished."""
    command: str = ""
    user: str = ""


class ImportedFrom(msgspec.Struct, kw_only=True):
    """What `imported.json` of a run holds."""

    tracker: str
    key: str
    checksum: str
    """Of all that was imported."""


def import_run(old: OldRun, home: Home) -> tuple[RunFolder, Outcome]:
    """Make it a run folder; one that is there already is replaced if the tracker has more of it now."""
    points = sorted(filter(_is_sound, old.points), key=lambda point: point.time)
    start = old.start if old.start is not None and _is_time(old.start) else points[0].time if points else None
    if start is None:
        raise PulsetrainError(f"{old.tracker} run {old.name} has neither a start time nor any values.")
    start = min(start, points[0].time) if points else start
    began = datetime.fromtimestamp(start, UTC)
    identity = hashlib.sha256(f"{old.tracker}:{old.key}".encode()).hexdigest()
    folder = RunFolder(home.path / f"{began:%Y%m%d-%H%M%S}-{slug(old.name)}-{identity[:6]}")
    lines = "".join(json.dumps(line) + "\n" for line in _lines(points, start))
    run = _run(old, folder.path.name, began, points[-1].time if points else start)
    origin = ImportedFrom(tracker=old.tracker, key=storable(old.key), checksum=_checksum(run, lines))
    found = _origin(folder)
    if found is not None and found.checksum == origin.checksum:
        return folder, "unchanged"
    _write(folder, run, lines, origin)
    return folder, "updated" if found else "imported"


def _run(old: OldRun, id: str, began: datetime, last: float) -> Run:
    ended = old.end if old.end is not None and _is_time(old.end) else last
    seconds = round(max(0.0, ended - began.timestamp()), 3)
    status = old.status or "finished"
    return Run(
        id=id,
        name=storable(masked(old.name))[:LONGEST_NAME] or "run",
        command=[storable(masked(old.command))] if old.command else [],
        user=storable(old.user),
        project=storable(masked(old.project)),
        tags={
            **{storable(name): storable(masked_value(name, str(value))) for name, value in old.tags.items()},
            "imported_from": old.tracker,
        },
        config=masked_document(old.config),
        start=began,
        end=datetime.fromtimestamp(began.timestamp() + seconds, UTC),
        seconds=seconds,
        status=status,
        hosts={HOST: Host(attempts=[HostAttempt(start=began, ended=seconds, status=status)])},
    )


def _lines(points: Iterable[OldPoint], start: float) -> Iterator[dict[str, Any]]:
    """One line for each moment and step, as a training process writes them."""
    names: set[str] = set()
    waiting: dict[str, Any] = {}
    for point in points:
        step = point.step
        line = {"timestamp": time_text(point.time), "elapsed_seconds": round(point.time - start, 6), "rank": 0}
        figures = {_name(name): value for name, value in point.values.items() if not name.startswith("system/")}
        names |= set(list(figures)[: max(0, MOST_NAMES - len(names))])
        figures = {name: value for name, value in figures.items() if name in names}
        if waiting and (waiting.get("step") != step or figures.keys() & waiting.keys()):
            yield waiting
            waiting = {}
        if not figures:
            continue
        if not waiting:
            waiting = {**line, **({"step": step} if step is not None else {})}
        odd = {name: _spelling(value) for name, value in figures.items() if not math.isfinite(value)}
        waiting |= {name: None if name in odd else value for name, value in figures.items()}
        if odd:
            waiting["nonfinite"] = {**waiting.get("nonfinite", {}), **odd}
    if waiting:
        yield waiting


def _name(name: str) -> str:
    name = storable(TELLS.get(name, name))[:LONGEST_NAME]
    return f"logged_{name}" if name in RESERVED else name


def _spelling(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _is_sound(point: OldPoint) -> bool:
    return _is_time(point.time) and (point.step is None or abs(point.step) < 2**53)


def _is_time(seconds: float) -> bool:
    return FIRST_TIME < seconds < LAST_TIME


def _checksum(run: Run, lines: str) -> str:
    about = msgspec.json.encode([run.name, run.project, run.tags, run.config, run.status, run.seconds])
    return hashlib.sha256(about + lines.encode()).hexdigest()


def _origin(folder: RunFolder) -> ImportedFrom | None:
    try:
        return msgspec.json.decode((folder.path / IMPORTED_JSON).read_bytes(), type=ImportedFrom)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(folder: RunFolder, run: Run, lines: str, origin: ImportedFrom) -> None:
    """Whole or not at all: beside its place first, then renamed."""
    path = folder.path
    temporary = path.with_name(f".importing-{os.getpid()}-{path.name}")
    try:
        (temporary / HOST).mkdir(0o700, parents=True)
        (temporary / HOST / _file_name(run)).write_text(lines, encoding="utf-8")
        (temporary / IMPORTED_JSON).write_bytes(msgspec.json.encode(origin))
        RunFolder(temporary).save(run)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise PulsetrainError(f"{path} cannot be written: {error.strerror}.") from None


def _file_name(run: Run) -> str:
    return f"{TABLES['training'].files}.jsonl".replace("*", f"{run.start:%Y%m%d_%H%M%S}")

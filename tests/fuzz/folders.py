"""Run folders as nobody should find them: by halves right, by halves damaged, foreign, or laid as a trap.

A folder is described by plain data first, so that hypothesis can show and shrink what breaks a reader.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from pulsetrain import catalog
from pulsetrain.catalog import SAMPLE_TABLES, TABLES
from pulsetrain.runs.folder import Host, Run, RunFolder, host_name
from pulsetrain.runs.seal import seal_all

START = "2026-11-16T12:00:00.000Z"
STAMP = "20261116_120000"
GOOD, BAD, OTHER = "20261116-120000-good-0000", "20261116-120001-bad-0000", "20261116-120002-other-0000"
CANARY = "canary-3f9c0a1b"
"""In files outside of all run folders, to which links and names in them lead: no reader may show it."""


class Edit(NamedTuple):
    """A change of bytes: some of them, at a share of the whole, are replaced."""

    place: float
    length: int
    by: bytes

    def apply(self, text: bytes) -> bytes:
        at = int(self.place * len(text))
        return text[:at] + self.by + text[at + self.length :]


class File(NamedTuple):
    """One file of a run folder."""

    name: str
    lines: list[bytes]
    edits: list[Edit]
    sealed: bool = False
    kind: str = "file"
    """`file`; or what is there in its place: `link`, `pipe`, `folder`, `endless`."""


class Folder(NamedTuple):
    """A run folder."""

    about: bytes
    files: list[File]


# What is in lines

texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            *("", "nan", "NaN", "-inf", "0x10", "1e999", "null", "../../outside", "/etc/passwd", "run", "a" * 5000),
            *("\x1b[2J\x1b]0;x\x07", "<script>", "'; DROP TABLE gpu --", "{{7*7}}", "\u202e", "\ud800", "\x00", "$1"),
            *("2026-13-45T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "2026-11-16", "12:00"),
        ]
    ),
)
numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**53, 2**63, -(2**63), 2**64, 10**30, 10**400, 1e308, -1e308, 5e-324, 0.1, -0.0]),
    st.floats(),
)
odd_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
odd_bytes = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"\n", b"}\n{", b"[" * 3000, b'{"a":' * 2000, b"\xff", b"\0" * 99]),
)
edits = st.lists(st.builds(Edit, st.floats(0, 1), st.integers(0, 40), odd_bytes), max_size=3)


def _plausible(table: str) -> dict[str, Any]:
    """A line of a table with all its declared fields."""
    numbered = ("gpu_index", "rank", "pid", "parent_pid", "gpu_instance", "compute_instance")
    labels = {label.name: 0 if label.name in numbered else "x" for label in TABLES[table].labels}
    values = {metric.field: {"0": 1.5} if metric.by else 1.5 for metric in catalog.metrics_of(table)}
    return {"timestamp": START, "elapsed_seconds": 0.0, **labels, **values}


PLAUSIBLE = {table.name: _plausible(table.name) for table in SAMPLE_TABLES}
PLAUSIBLE["events"] = {"timestamp": START, "elapsed_seconds": 1.0, "kind": "gap", "severity": "info", "message": "m"}
NOTE = {"timestamp": START, "event": "training_process", "rank": 0, "continues": "x.jsonl", "pid": 1}


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("utf-8", "surrogatepass")


@st.composite
def lines(draw: st.DrawFn, table: str, number: int) -> bytes:
    """A line of a table: right but for some odd values, or something else altogether."""
    if draw(st.integers(0, 15)) == 0:
        return as_json(draw(odd_values))
    base = NOTE if table == "training" and draw(st.integers(0, 4)) == 0 else PLAUSIBLE[table]
    found = {**base, "elapsed_seconds": float(number), "timestamp": f"2026-11-16T12:00:{number:02}.000Z"}
    for _ in range(draw(st.integers(0, 3))):
        field = draw(st.one_of(st.sampled_from(sorted(found)), texts))
        if draw(st.booleans()):
            found[field] = draw(odd_values)
        else:
            found.pop(field, None)
    return as_json(found)


@st.composite
def files(draw: st.DrawFn) -> File:
    table = draw(st.sampled_from(sorted(PLAUSIBLE)))
    ending = draw(st.sampled_from(["", "_1", ".rank1", ".pid9"]))
    name = "events" if table == "events" else f"{table}_metrics_{STAMP}{ending}"
    kind = draw(st.sampled_from(["file"] * 12 + ["link", "pipe", "folder", "endless"]))
    text = [draw(lines(table, number)) for number in range(draw(st.integers(0, 6)))]
    return File(name, text, draw(edits), sealed=draw(st.integers(0, 4)) == 0, kind=kind)


@st.composite
def descriptions(draw: st.DrawFn) -> bytes:
    """run.json: as it may be, with odd values somewhere, or damaged."""
    gpu = {"gpu_index": 0, "uuid": "GPU-0", "name": "NVIDIA L4"} | draw(st.dictionaries(texts, odd_values, max_size=1))
    host = Host(gpus=[gpu], cpu_cores=4, started=1.0)
    status = draw(st.sampled_from(["running", "finished", "failed"]))
    run = Run(id=BAD, name="bad", start=datetime(2026, 11, 16, 12, tzinfo=UTC), status=status, tags={"a": "b"})
    document: dict[str, Any] = msgspec.to_builtins(run) | {"hosts": {host_name(): msgspec.to_builtins(host)}}
    if draw(st.booleans()):
        document["hosts"][draw(st.sampled_from(["../outside", "../../outside/vm", "", ".", "/etc", "a/b", "x"]))] = {}
    places = [document, document["hosts"][host_name()], document["account"]]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.sampled_from(places))
        place[draw(st.one_of(st.sampled_from(sorted(place) or ["id"]), texts))] = draw(odd_values)
    text = as_json(document)
    for edit in draw(edits) if draw(st.integers(0, 7)) == 0 else ():
        text = edit.apply(text)
    return text


folders = st.builds(Folder, descriptions(), st.lists(files(), max_size=5, unique_by=lambda file: file.name))


# On disk


def write(folder: Folder, path: Path, outside: Path) -> None:
    """Make it; links in it lead outside."""
    host = path / host_name()
    host.mkdir(parents=True)
    # What is sealed is sealed by the sealer, and damaged after that.
    (path / "run.json").write_bytes(as_json({"id": path.name, "name": "x", "start": START, "status": "finished"}))
    for file in folder.files:
        if file.sealed and file.kind == "file":
            (host / f"{file.name}.jsonl").write_bytes(_text(file.lines))
    seal_all(RunFolder(path))
    for file in folder.files:
        _write_file(file, host, outside)
    (path / "run.json").write_bytes(folder.about)


def write_good(path: Path, *, secret: bool = False) -> None:
    """A run in progress without any fault; a secret one is not to be read at all."""
    host = path / host_name()
    host.mkdir(parents=True)
    name = CANARY if secret else "good"
    run = {"id": path.name, "name": name, "start": START, "status": "running", "hosts": {host_name(): {"started": 1.0}}}
    (path / "run.json").write_bytes(as_json(run))
    for table in ("gpu", "host", "training"):
        line = PLAUSIBLE[table] | ({"name": CANARY, "uuid": CANARY} if secret else {})
        text = [as_json(line | {"elapsed_seconds": float(number)}) for number in range(3)]
        (host / f"{table}_metrics_{STAMP}.jsonl").write_bytes(_text(text))


def _text(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write_file(file: File, host: Path, outside: Path) -> None:
    path = host / f"{file.name}.jsonl"
    if file.sealed and path.with_suffix(".parquet").exists():
        path = path.with_suffix(".parquet")
    match file.kind:
        case "link":
            path.symlink_to(outside / f"{host_name()}/gpu_metrics_{STAMP}.jsonl")
        case "endless":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            text = path.read_bytes() if path.exists() else _text(file.lines)
            for edit in file.edits:
                text = edit.apply(text)
            path.write_bytes(text)

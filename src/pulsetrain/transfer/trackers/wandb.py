"""Runs of Weights & Biases on this disk: the `.wandb` files of its runs, whose records wandb itself explains."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pulsetrain.errors import UsageError
from pulsetrain.transfer.trackers.old_run import OldPoint, OldRun
from pulsetrain.wandb_files import wandb_records

STEP_NAMES = ("trainer/global_step", "train/global_step", "global_step", "step")
"""Where a program says the step itself, `_step` only counts its calls."""


def old_runs(place: str) -> Iterator[OldRun]:
    root = Path(place).expanduser()
    if not root.is_dir():
        raise UsageError(f"{place} is not a folder.")
    files: dict[str, list[Path]] = {}
    for file in sorted(root.rglob("*.wandb")):
        if file.is_file() and not file.is_symlink():
            files.setdefault(file.stem.removeprefix("run-"), []).append(file)
    for id, parts in sorted(files.items()):
        yield _old_run(id, parts)


def _old_run(id: str, parts: list[Path]) -> OldRun:
    """A run that was resumed has several files."""
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    about: Any = None
    points: list[OldPoint] = []
    config: dict[str, Any] = {}
    exit_code: int | None = None
    for data in (data for part in parts for data in wandb_records(part)):
        record: Any = wandb_internal_pb2.Record()
        try:
            record.ParseFromString(data)
        except DecodeError:
            continue
        kind = record.WhichOneof("record_type")
        if kind == "run":
            about = record.run
            config |= _settings(record.run.config.update)
        elif kind == "config":
            config |= _settings(record.config.update)
        elif kind == "history":
            points.append(_point(record.history))
        elif kind == "exit":
            exit_code = record.exit.exit_code
    config.pop("_wandb", None)
    return OldRun(
        "wandb",
        id,
        (about.display_name if about else "") or id,
        points,
        project=about.project if about else "",
        config=config,
        tags=dict.fromkeys(about.tags, "") if about else {},
        start=about.start_time.seconds + about.start_time.nanos / 1e9 if about else None,
        status={None: "died", 0: "finished"}.get(exit_code, "failed"),
    )


def _settings(updates: Any) -> dict[str, Any]:
    return {item.key: _decoded(item.value_json) for item in updates if item.key}


def _point(history: Any) -> OldPoint:
    values = {item.key or ".".join(item.nested_key): _decoded(item.value_json) for item in history.item}
    named = next((values[name] for name in STEP_NAMES if isinstance(values.get(name), int)), None)
    figures = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not name.startswith("_") and name not in STEP_NAMES
    }
    time = values.get("_timestamp")
    return OldPoint(
        float(time) if isinstance(time, int | float) else 0.0,
        int(history.step.num) if named is None else named,
        figures,
    )


def _decoded(text: str) -> Any:
    """JSON as wandb writes it, with NaN and Infinity."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

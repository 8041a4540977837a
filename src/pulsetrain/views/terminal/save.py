"""What is on the screen, as a file: the present state of each machine, and its curves over the time that is shown."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.catalog import SAMPLE_TABLES
from pulsetrain.live import Live
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.terminal.state import Scene

TABLES = tuple(table.name for table in SAMPLE_TABLES)
POINTS = 300


def save(scene: Scene, folder: Path) -> Path:
    """Write it as JSON into a file with the time in its name; the file."""
    moment = datetime.fromtimestamp(scene.moment or 0.0, UTC)
    file = folder / f"pulsetrain-{moment:%Y%m%d-%H%M%S}.json"
    with scene.locked():
        machines = [_machine(scene, machine) for machine in scene.machines]
    document = {"timestamp": moment, "window_seconds": scene.seconds, "machines": machines}
    file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    return file


def _machine(scene: Scene, machine: WatchedMachine) -> dict[str, Any]:
    live = scene.live(machine)
    now = {
        table: [{**state.subject.labels, **state.values} for state in live.table(table)]
        for table in TABLES
        if any(live.table(table))
    }
    return {
        "host": machine.title,
        "run": machine.run.id if machine.run else None,
        "verdict": machine.verdict if scene.state.moment is None else None,
        **now,
        "curves": _curves(scene, machine, live),
    }


def _curves(scene: Scene, machine: WatchedMachine, live: Live) -> list[dict[str, Any]]:
    """Means over even stretches of the window; null where nothing is known."""
    return [
        {
            "table": table,
            **state.subject.labels,
            "field": field,
            "values": scene.series(machine, table, state.subject.key, field, POINTS),
        }
        for table in TABLES
        for state in live.table(table)
        for field in machine.history.fields(table, state.subject.key)
    ]

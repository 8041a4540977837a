"""All runs of a home in short, for lists: what each is doing, how busy its GPUs are, what it has used."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.codec import Line
from pulsetrain.runs.folder import Home, Run, RunFolder
from pulsetrain.runs.line_file import LineFile
from pulsetrain.views.live.history import Points

TAIL_BYTES = 128 * 1024
"""So much of the end of a file is read: some minutes of readings."""
MOST_RUNS = 200
"""So many of the newest runs are listed."""


class RunOverview(NamedTuple):
    """A run in one row."""

    folder: RunFolder
    run: Run
    busy: Points
    """Mean utilization of its GPUs at its latest readings."""
    joules: float | None


class RunOverviews:
    """The runs of a home. One that has ended is read once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._ended: dict[Path, RunOverview] = {}

    def read(self) -> list[RunOverview]:
        """The newest runs. Reads files: not for the thread that draws."""
        found = []
        for folder in list(self._home.runs())[-MOST_RUNS:]:
            one = self._ended.get(folder.path) or _overview(folder)
            if one is None:
                continue
            found.append(one)
            if one.run.status != "running":
                self._ended[folder.path] = one
        return sorted(found, key=lambda one: (one.run.start, one.run.id), reverse=True)


def _overview(folder: RunFolder) -> RunOverview | None:
    """None for a folder whose run.json is damaged, or which was removed meanwhile."""
    try:
        run = folder.load()
        busy = _busy([line for file in _newest(folder, "gpu") for line in _last_lines(file)])
        accounts = [line for file in _newest(folder, "account") for line in _last_lines(file)[-1:]]
    except (PulsetrainError, FileNotFoundError):
        return None
    joules = [sum(line["energy_joules"].values()) for line in accounts if line.get("energy_joules")]
    return RunOverview(folder, run, busy, sum(joules) if joules else None)


def _newest(folder: RunFolder, table: str) -> list[Path]:
    """The last file of each host that still has lines: one that is sealed has none."""
    files = [file for file in folder.files(table) if file.suffix == ".jsonl"]
    return list({file.parent: file for file in files}.values())


def _last_lines(file: Path) -> list[Line]:
    with LineFile(file) as opened:
        return opened.last_lines(TAIL_BYTES)


def _busy(lines: Sequence[Line]) -> Points:
    """The mean of all GPUs at each moment."""
    moments: dict[float, list[float]] = {}
    for line in lines:
        if (busy := line.get("utilization_percent")) is not None:
            moments.setdefault(line["elapsed_seconds"], []).append(busy)
    return tuple(sum(values) / len(values) for _, values in sorted(moments.items()))

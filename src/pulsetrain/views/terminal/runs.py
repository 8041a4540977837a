"""All runs, the newest first: what each is doing, how busy its GPUs are, what it has used."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pulsetrain.errors import PulsetrainError
from pulsetrain.runs.folder import Home, Run, RunFolder
from pulsetrain.views.terminal import braille
from pulsetrain.views.terminal.lines import Column, Line, Span, acting, cut, table, text
from pulsetrain.views.terminal.look import Points, Scene
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.text import duration, energy, number

TAIL_BYTES = 128 * 1024
"""So much of the end of a file is read: some minutes of readings."""
MOST_RUNS = 200
CURVE_WIDTH = 24
STATUS = {"running": "accent", "failed": "bad", "died": "bad", "interrupted": "warn"}


class Overview(NamedTuple):
    """A run in one row."""

    folder: RunFolder
    run: Run
    busy: Points
    """Mean utilisation of its GPUs at its latest readings."""
    joules: float | None


class Overviews:
    """The runs of a home. One that has ended is read once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._ended: dict[Path, Overview] = {}

    def read(self) -> list[Overview]:
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


def _overview(folder: RunFolder) -> Overview | None:
    """None for a folder whose run.json is damaged, or which was removed meanwhile."""
    try:
        run = folder.load()
        busy = _busy([line for file in _newest(folder, "gpu") for line in _tail(file)])
        accounts = [line for file in _newest(folder, "account") for line in _tail(file)[-1:]]
    except (PulsetrainError, FileNotFoundError):
        return None
    joules = [sum(line["energy_joules"].values()) for line in accounts if line.get("energy_joules")]
    return Overview(folder, run, busy, sum(joules) if joules else None)


def _newest(folder: RunFolder, table: str) -> list[Path]:
    """The last file of each host that still has lines: one that is sealed has none."""
    files = [file for file in folder.files(table) if file.suffix == ".jsonl"]
    return list({file.parent: file for file in files}.values())


def _tail(file: Path) -> list[dict[str, Any]]:
    """The last whole lines of a file."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - TAIL_BYTES))
        lines = opened.read().split(b"\n")[1 if size > TAIL_BYTES else 0 : -1]
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.MsgspecError:
            continue
    return found


def _busy(lines: Sequence[dict[str, Any]]) -> Points:
    """The mean of all GPUs at each moment."""
    moments: dict[float, list[float]] = {}
    for line in lines:
        if (busy := line.get("utilization_percent")) is not None:
            moments.setdefault(line["elapsed_seconds"], []).append(busy)
    return tuple(sum(values) / len(values) for _, values in sorted(moments.items()))


def wanted_runs(scene: Scene, found: Sequence[Overview]) -> list[Overview]:
    wanted = scene.look.wanted.lower()
    return [one for one in found if wanted in f"{one.run.id} {one.run.name} {one.run.status} {_hosts(one)}".lower()]


def runs_pane(scene: Scene, number: int, found: Sequence[Overview] | None) -> Pane:
    def draw(width: int, height: int) -> list[Line]:
        return _draw(scene, number, found, width, height)

    return Pane("Runs", draw, least=3, wanted=3, most=math.inf)


def _draw(scene: Scene, number: int, found: Sequence[Overview] | None, most: int, height: int) -> list[Line]:
    title = heading(number, "Runs", scene.look.pane == number)
    if found is None:
        return [title, text("  reading", "dim")]
    if scene.look.wanted:
        title += [Span("  with ", "dim"), Span(scene.look.wanted, "accent", "filter")]
    if not found:
        return [title, text("  none; record one: pulsetrain run -- python train.py", "dim")]
    room = height - 2
    chosen = next((index for index, one in enumerate(found) if one.run.id == scene.look.run), 0)
    first = max(0, min(chosen - room // 2, len(found) - room))
    visible = found[first : first + room]
    if len(visible) < len(found):
        title += [Span(f"  {first + 1} to {first + len(visible)} of {len(found)}", "dim")]
    titles, *rows = _table(scene, visible, most - 2)
    lines = [title, [Span("  "), *titles]]
    for one, row in zip(visible, rows, strict=True):
        under = one.run.id == found[chosen].run.id
        lines.append([Span("  "), *acting(row, f"open({one.run.id!r})", "cursor" if under else None)])
    return lines


def _table(scene: Scene, visible: Sequence[Overview], most: int) -> list[Line]:
    def column(title: str, cells: list[Line], align: str = "l", rank: int = 0, least: int = 0) -> Column:
        return Column(title, cells, align, rank, least)

    runs = [one.run for one in visible]
    return table(
        [
            column("run", [text(cut(run.name, 24), "title") for run in runs], least=8),
            column("status", [text(run.status, STATUS.get(run.status, "dim")) for run in runs], least=11),
            column("started", [text(f"{run.start.astimezone():%m-%d %H:%M}") for run in runs], rank=3),
            column("took", [text(_took(scene, run)) for run in runs], "r", 2, 8),
            column("GPUs", [text(_gpus(run)) for run in runs], rank=4),
            column("busy", [text(_now(one.busy)) for one in visible], "r", least=5),
            column("latest use", [text(_curve(one, scene.braille), "accent") for one in visible], rank=1),
            column("energy", [text("" if one.joules is None else energy(one.joules)) for one in visible], "r", 1, 8),
            column("host", [text(cut(_hosts(one), 24)) for one in visible], rank=5),
            column("id", [text(run.id, "dim") for run in runs], rank=6),
        ],
        most,
    )


def _took(scene: Scene, run: Run) -> str:
    """To its end; of one that goes on, up to now."""
    if run.end:
        return duration((run.end - run.start).total_seconds())
    return duration(max(0.0, scene.now - run.start.timestamp())) if run.status == "running" and scene.now else ""


def _gpus(run: Run) -> str:
    names: dict[str, int] = {}
    for host in run.hosts.values():
        for gpu in host.gpus:
            name = str(gpu.get("name", "?")).removeprefix("NVIDIA ").removesuffix(" (simulated)")
            names[name] = names.get(name, 0) + 1
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _now(busy: Points) -> str:
    known = [point for point in busy if point is not None]
    return number(sum(known) / len(known), "%") if known else ""


def _curve(one: Overview, blocks: bool) -> str:
    return braille.sparkline(one.busy, CURVE_WIDTH, 0.0, 100.0, ascii=not blocks) if one.busy else ""


def _hosts(one: Overview) -> str:
    return ", ".join(one.run.hosts)

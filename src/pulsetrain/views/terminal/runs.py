"""All runs, the newest first: status, GPU utilization, energy."""

import math
from collections.abc import Sequence

from pulsetrain.runs.folder import Run
from pulsetrain.views.live.history import Points
from pulsetrain.views.live.overviews import RunOverview
from pulsetrain.views.terminal import braille
from pulsetrain.views.terminal.lines import Line, Span, TableColumn, acting, table, text
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.terminal.state import Scene
from pulsetrain.views.text import cut, durations, energy, in_one_unit, number

CURVE_WIDTH = 24
STATUS = {"running": "accent", "failed": "bad", "died": "bad", "interrupted": "warn"}


def wanted_runs(scene: Scene, found: Sequence[RunOverview]) -> list[RunOverview]:
    wanted = scene.state.filter_text.lower()
    return [one for one in found if wanted in f"{one.run.id} {one.run.name} {one.run.status} {_hosts(one)}".lower()]


def runs_pane(scene: Scene, number: int, found: Sequence[RunOverview] | None) -> Pane:
    def draw(width: int, height: int) -> list[Line]:
        return _draw(scene, number, found, width, height)

    return Pane("Runs", draw, least=3, wanted=3, most=math.inf)


def _draw(scene: Scene, number: int, found: Sequence[RunOverview] | None, most: int, height: int) -> list[Line]:
    title = heading(number, "Runs", scene.state.pane == number)
    if found is None:
        return [title, text("  reading", "dim")]
    if scene.state.filter_text:
        title += [Span("  with ", "dim"), Span(scene.state.filter_text, "accent", "filter")]
    if not found:
        return [title, text("  none; record one: pulsetrain run -- python train.py", "dim")]
    room = height - 2
    chosen = next((index for index, one in enumerate(found) if one.run.id == scene.state.run), 0)
    first = max(0, min(chosen - room // 2, len(found) - room))
    visible = found[first : first + room]
    if len(visible) < len(found):
        title += [Span(f"  {first + 1} to {first + len(visible)} of {len(found)}", "dim")]
    energies = in_one_unit([one.joules for one in found], energy)[first : first + room]
    titles, *rows = _table(scene, visible, energies, most - 2)
    lines = [title, [Span("  "), *titles]]
    for one, row in zip(visible, rows, strict=True):
        under = one.run.id == found[chosen].run.id
        lines.append([Span("  "), *acting(row, f"open({one.run.id!r})", "cursor" if under else None)])
    return lines


def _table(scene: Scene, visible: Sequence[RunOverview], energies: Sequence[str], most: int) -> list[Line]:
    def column(title: str, cells: list[Line], align: str = "l", rank: int = 0, least: int = 0) -> TableColumn:
        return TableColumn(title, cells, align, rank, least)

    runs = [one.run for one in visible]
    return table(
        [
            column("run", [text(cut(run.name, 24), "title") for run in runs], least=8),
            column("status", [text(run.status, STATUS.get(run.status, "dim")) for run in runs], least=11),
            column("started", [text(f"{run.start.astimezone():%m-%d %H:%M}") for run in runs], rank=3),
            column("took", [text(took) for took in durations([_seconds(scene, run) for run in runs])], "r", 2, 8),
            column("GPUs", [text(_gpus(run)) for run in runs], rank=4),
            column("utilization", [text(_now(one.busy)) for one in visible], "r"),
            column("latest", [text(_curve(one, scene.braille), "accent") for one in visible], rank=1),
            column("energy", [text(joules) for joules in energies], "r", 1, 8),
            column("host", [text(cut(_hosts(one), 24)) for one in visible], rank=5),
            column("id", [text(run.id, "dim") for run in runs], rank=6),
        ],
        most,
    )


def _seconds(scene: Scene, run: Run) -> float | None:
    """To its end; of one in progress, up to now."""
    if run.seconds is None and run.status == "running" and scene.now:
        return max(0.0, scene.now - run.start.timestamp())
    return run.seconds


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


def _curve(one: RunOverview, blocks: bool) -> str:
    return braille.sparkline(one.busy, CURVE_WIDTH, 0.0, 100.0, ascii=not blocks) if one.busy else ""


def _hosts(one: RunOverview) -> str:
    return ", ".join(one.run.hosts)

"""A whole screen as lines: header, banner, panes, keys. What Textual shows, and what `--once` prints."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from pulsetrain.views import thresholds
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.live.overviews import RunOverview
from pulsetrain.views.live.progress import RunProgress
from pulsetrain.views.terminal.events import event_panes
from pulsetrain.views.terminal.gpus import gpu_pane, gpu_rows, history_pane
from pulsetrain.views.terminal.host import host_pane
from pulsetrain.views.terminal.lines import Line, Span, between, fitted, text, width
from pulsetrain.views.terminal.panes import Pane, stack
from pulsetrain.views.terminal.processes import process_pane, process_rows
from pulsetrain.views.terminal.run import charts_pane, run_pane
from pulsetrain.views.terminal.runs import runs_pane, wanted_runs
from pulsetrain.views.terminal.state import Scene, View
from pulsetrain.views.text import cut, duration, round_duration

VIEWS: dict[View, str] = {"machine": "machine", "run": "run", "runs": "all runs"}
KEYS = {
    "machine": "? help|tab view|q quit|space pause|+ - window|/ filter|o sort|t tree|k signal|s save|r reset",
    "run": "? help|tab view|q quit|space pause|+ - window|s save|r reset",
    "runs": "? help|tab view|q quit|enter open|/ filter",
}
"""In the last line, as far as there is room: those that lead on come first."""


def frame(scene: Scene, most: int, height: int, runs: Sequence[RunOverview] | None = None) -> list[Line]:
    """The screen at this size. `runs` is None while they have not been read."""
    with scene.locked():
        top = [_header(scene, most), *_banner(scene, most)]
        room = height - len(top) - 1
        body = stack(_chosen(scene, panes(scene, runs)), most, room)
        blank = [[Span(" " * most)]] * (room - len(body))
        return [*top, *body, *blank, _footer(scene, most)][:height]


def panes(scene: Scene, runs: Sequence[RunOverview] | None) -> list[Pane]:
    """The panes of the view, in their order on the screen; their keys are 1, 2, ..."""
    if scene.state.view == "runs":
        return [runs_pane(scene, 1, None if runs is None else wanted_runs(scene, runs))]
    if scene.state.view == "run":
        progress = RunProgress(scene.machines, scene.state.moment)
        return [run_pane(scene, 1, progress), charts_pane(scene, 2, progress), *event_panes(scene, 3)]
    rows = gpu_rows(scene)
    return [
        gpu_pane(scene, 1, rows),
        history_pane(scene, 2, rows),
        host_pane(scene, 3),
        process_pane(scene, 4, process_rows(scene)),
        *event_panes(scene, 5),
    ]


def _chosen(scene: Scene, all_panes: Sequence[Pane]) -> Sequence[Pane]:
    number = scene.state.pane
    return all_panes[number - 1 : number] if scene.state.maximized and number <= len(all_panes) else all_panes


def _header(scene: Scene, most: int) -> Line:
    """Where we are, and when."""
    left: Line = [Span("pulsetrain  ", "title")] if most >= 80 else []
    for view, name in VIEWS.items():
        here = view == scene.state.view
        left += [Span(name, "accent" if here else "dim", f"view({view!r})"), Span("  ")]
    right: Line = []
    if (moment := scene.moment) is not None:
        clock = datetime.fromtimestamp(moment, UTC).astimezone()
        right = [*_pace(scene), Span(f"{clock:%Y-%m-%d %H:%M:%S}" if most >= 100 else f"{clock:%H:%M:%S}")]
    names = ", ".join(machine.title for machine in scene.machines)
    room = most - width(left) - width(right) - 2
    simulated = "  simulated GPUs" if any(_simulated(scene, machine) for machine in scene.machines) else ""
    named = text(cut(names, room), "title")
    return between([*left, *named, *text(cut(simulated, room - width(named)), "warn")], right, most)


def _simulated(scene: Scene, machine: WatchedMachine) -> bool:
    return any(gpu.subject.labels.get("simulated") for gpu in scene.live(machine).table("gpu"))


def _pace(scene: Scene) -> Line:
    """The window, and whether the view is paused."""
    window = "all" if math.isinf(scene.state.window) else round_duration(scene.state.window)
    line = [Span(window, "dim", "window(1)"), Span("  ")]
    if scene.state.moment is not None and scene.now is not None:
        behind = scene.now - scene.state.moment
        words = f"paused, {duration(behind)} ago" if behind >= 1 else "paused"
        line = [*line, Span(words, "warn", "pause"), Span("  ")]
    if not all(machine.feed.live for machine in scene.machines):
        line = [*line, Span("recorded", "warn"), Span("  ")]
    return line


def _banner(scene: Scene, most: int) -> list[Line]:
    """What has crossed a threshold. Nothing, and no line, while all is well."""
    found: list[str] = []
    for machine in scene.machines:
        crossed = thresholds.crossed(scene.live(machine), scene.thresholds)
        found += [f"{machine.title}: {what}" if len(scene.machines) > 1 else what for what in crossed]
    return [fitted(text(f" {'   '.join(found)}".ljust(most), "banner"), most)] if found else []


def _footer(scene: Scene, most: int) -> Line:
    if scene.notice:
        return fitted(text(scene.notice, "accent"), most)
    line: Line = []
    for hint in KEYS[scene.state.view].split("|"):
        key, _, what = hint.rpartition(" ")
        if width(line) + len(hint) + 2 > most:
            break
        line += [Span(key, "key"), Span(f" {what}  ", "dim")]
    return fitted(line, most)

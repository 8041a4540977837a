"""The processes on GPUs and those of the watched command: sorted, filtered, as a list or a tree."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pulsetrain.views.live.processes import Process, processes_of
from pulsetrain.views.terminal.lines import Line, Span, TableColumn, acting, fitted, table, text, width
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.terminal.state import Scene, ViewState
from pulsetrain.views.text import COLUMN_GAP, bytes_text, cut, in_one_unit, percent, running_time

LEAST_COMMAND = 12
SORTS = ("memory", "sm", "cpu", "ram", "seconds", "gpu", "pid", "user", "run", "command")
"""Columns that `o` goes through."""


class ProcessRow(NamedTuple):
    """A row of the table: a process, and its place in the tree."""

    process: Process
    branch: str = ""
    """The lines that lead to it from its parent."""


def process_rows(scene: Scene) -> list[ProcessRow]:
    """The processes that pass the filter, in the order of the view."""
    found = [
        process for machine in scene.machines for process in processes_of(machine, scene.live(machine), scene.shows)
    ]
    wanted = scene.state.filter_text.lower()
    ordered = _ordered([process for process in found if wanted in process.words], scene.state)
    return list(_tree(ordered)) if scene.state.tree else [ProcessRow(process) for process in ordered]


def process_pane(scene: Scene, number: int, shown: Sequence[ProcessRow]) -> Pane:
    return Pane(
        "Processes",
        lambda width, height: _draw(scene, number, shown, width, height),
        least=4 if shown else 2,
        wanted=2 + min(len(shown), 12),
        rank=2,
        most=2 + len(shown),
    )


def _ordered(found: list[Process], state: ViewState) -> list[Process]:
    """What is not known comes last, whichever way it is sorted."""
    known = [process for process in found if getattr(process, state.sort) not in (None, "")]
    rest = [process for process in found if getattr(process, state.sort) in (None, "")]
    known.sort(key=lambda process: (getattr(process, state.sort), process.pid), reverse=state.descending)
    return known + rest


def _tree(found: Sequence[Process]) -> Iterator[ProcessRow]:
    """Children below their parents; among siblings the order stays."""
    pids = {(process.machine.title, process.pid) for process in found}
    children: dict[tuple[str, int | None], list[Process]] = {}
    for process in found:
        above = (process.machine.title, process.parent)
        children.setdefault(above if above in pids and process.parent != process.pid else ("", None), []).append(
            process
        )

    def below(parent: tuple[str, int | None], indent: str, walked: frozenset[int]) -> Iterator[ProcessRow]:
        siblings = children.get(parent, [])
        for number, process in enumerate(siblings):
            last = number == len(siblings) - 1
            top = parent == ("", None)
            yield ProcessRow(process, "" if top else indent + ("└─ " if last else "├─ "))
            if process.pid not in walked:
                further = "" if top else indent + ("   " if last else "│  ")
                yield from below((process.machine.title, process.pid), further, walked | {process.pid})

    yield from below(("", None), "", frozenset())


def _draw(scene: Scene, number: int, shown: Sequence[ProcessRow], most: int, height: int) -> list[Line]:
    state = scene.state
    title = heading(number, "Processes", state.pane == number)
    if state.filter_text:
        title += [Span("  with ", "dim"), Span(state.filter_text, "accent", "filter")]
    if not shown:
        return [title, text("  no match" if state.filter_text else "  none on a GPU", "dim")]
    room = height - 2
    chosen = next((index for index, row in enumerate(shown) if row.process.key == state.process), 0)
    first = max(0, min(chosen - room // 2, len(shown) - room))
    visible = shown[first : first + room]
    if len(visible) < len(shown):
        title += [Span(f"  {first + 1} to {first + len(visible)} of {len(shown)}", "dim")]
    titles, *rows = _table(scene, visible, most - 2)
    lines = [title, [Span("  "), *titles]]
    for row, figures in zip(visible, rows, strict=True):
        machine, key = row.process.key
        under = row.process.key == state.process and state.pane == number
        lines.append([Span("  "), *acting(figures, f"process({machine!r}, {key!r})", "cursor" if under else None)])
    return lines


def _table(scene: Scene, visible: Sequence[ProcessRow], most: int) -> list[Line]:
    state = scene.state
    processes = [row.process for row in visible]

    def column(
        title: str, field: str, cells: list[str], align: str = "r", rank: int = 0, least: int = 0
    ) -> TableColumn:
        mark = ("▾" if state.descending else "▴") if scene.braille else ("v" if state.descending else "^")
        name = title + (mark if state.sort == field else "")
        return TableColumn(
            name, [text(cell) for cell in cells], align, rank, max(least, len(title) + 1), f"sort({field!r})"
        )

    shown = [
        column("host", "host", [process.machine.title for process in processes], "l", 1)
        if len(scene.machines) > 1
        else None,
        column("GPU", "gpu", ["" if process.gpu is None else str(process.gpu) for process in processes]),
        column("pid", "pid", [str(process.pid) for process in processes], least=7),
        column("user", "user", [cut(process.user, 12) for process in processes], "l", 3),
        column("memory", "memory", in_one_unit([process.memory for process in processes], bytes_text), least=8),
        column("SM", "sm", [_known(process.sm, percent) for process in processes], rank=2, least=5),
        column("CPU", "cpu", [_known(process.cpu, percent) for process in processes], rank=2, least=6),
        column("RAM", "ram", in_one_unit([process.ram for process in processes], bytes_text), rank=5, least=8),
        column("time", "seconds", [_known(process.seconds, running_time) for process in processes], rank=4, least=7),
        column("run", "run", [cut(process.run, 16) for process in processes], "l", 6),
        column("container", "container", [cut(process.container, 24) for process in processes], "l", 7),
    ]
    lines = table([one for one in shown if one], most - LEAST_COMMAND - COLUMN_GAP)
    room = most - width(lines[0]) - COLUMN_GAP
    title = "command" + ("" if state.sort != "command" else "▾" if state.descending else "▴")
    commands = [[Span(title, "dim", "sort('command')")]]
    commands += [[Span(row.branch, "dim"), Span(row.process.command)] for row in visible]
    return [
        [*line, Span(" " * COLUMN_GAP), *fitted(command, room)] for line, command in zip(lines, commands, strict=True)
    ]


def _known(value: float | None, words: Callable[[float], str]) -> str:
    """Nothing where nothing is known: a dash in every row would be noise."""
    return "" if value is None else words(value)

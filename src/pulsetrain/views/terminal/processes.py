"""The processes on GPUs and those of the watched command: sorted, filtered, as a list or a tree."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pulsetrain.live import State
from pulsetrain.views.terminal.lines import GAP, Column, Line, Span, acting, cut, fitted, table, text, width
from pulsetrain.views.terminal.look import Look, Machine, Scene
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.text import bytes_text, percent

MIB = 2**20
LEAST_COMMAND = 12
SORTS = ("memory", "sm", "cpu", "ram", "gpu", "pid", "user", "run", "command")
"""Columns that `o` goes through."""


class Process(NamedTuple):
    """A process on one GPU, or one of the command that uses none."""

    machine: Machine
    host: str
    key: tuple[str, str]
    pid: int
    parent: int | None
    gpu: int | None
    user: str
    memory: float | None
    """Bytes of the GPU."""
    sm: float | None
    cpu: float | None
    """Cores kept busy."""
    ram: float | None
    run: str
    """The run it is of, as far as that is known."""
    container: str
    command: str
    branch: str = ""
    """Its place in the tree."""


def processes(scene: Scene) -> list[Process]:
    """Those that are wanted, in the order that is wanted."""
    found = [process for machine in scene.machines for process in _of(scene, machine)]
    wanted = scene.look.wanted.lower()
    if wanted:
        found = [process for process in found if wanted in _words(process)]
    ordered = _ordered(found, scene.look)
    return list(_tree(ordered)) if scene.look.tree else ordered


def process_pane(scene: Scene, number: int, shown: Sequence[Process]) -> Pane:
    return Pane(
        "Processes",
        lambda width, height: _draw(scene, number, shown, width, height),
        least=4 if shown else 2,
        wanted=2 + min(len(shown), 12),
        rank=2,
        most=2 + len(shown),
    )


def _of(scene: Scene, machine: Machine) -> Iterator[Process]:
    """A process of the command that is on a GPU has two lines; here they are one."""
    states = list(scene.live(machine).table("process"))
    job = {state.subject.labels.get("pid"): state for state in states if "uuid" not in state.subject.labels}
    on_gpus = [state for state in states if "uuid" in state.subject.labels and scene.shows(state.subject)]
    seen = {state.subject.labels.get("pid") for state in on_gpus}
    for state in (*on_gpus, *(state for pid, state in job.items() if pid not in seen)):
        yield _process(machine, state, job.get(state.subject.labels.get("pid")))


def _process(machine: Machine, state: State, job: State | None) -> Process:
    labels = state.subject.labels
    memory = state.number("gpu_memory_mb")
    parent, gpu = labels.get("parent_pid"), labels.get("gpu_index")
    own = job or state
    return Process(
        machine,
        machine.title,
        (machine.title, state.subject.key),
        int(labels.get("pid") or 0),
        int(parent) if parent is not None else None,
        int(gpu) if gpu is not None else None,
        str(labels.get("user") or ""),
        None if memory is None else memory * MIB,
        state.number("sm_ratio"),
        own.number("cpu_cores"),
        own.number("memory_bytes"),
        str(labels.get("run") or (machine.run.name if machine.run and job else "")),
        str(labels.get("container") or ""),
        str(labels.get("command") or ""),
    )


def _words(process: Process) -> str:
    words = (process.machine.title, process.pid, process.user, process.run, process.container, process.command)
    return " ".join(map(str, words)).lower()


def _ordered(found: list[Process], look: Look) -> list[Process]:
    """What is not known comes last, whichever way it is sorted."""
    known = [process for process in found if getattr(process, look.sort) not in (None, "")]
    rest = [process for process in found if getattr(process, look.sort) in (None, "")]
    known.sort(key=lambda process: (getattr(process, look.sort), process.pid), reverse=look.descending)
    return known + rest


def _tree(found: Sequence[Process]) -> Iterator[Process]:
    """Children below their parents; among siblings the order stays."""
    pids = {(process.machine.title, process.pid) for process in found}
    children: dict[tuple[str, int | None], list[Process]] = {}
    for process in found:
        above = (process.machine.title, process.parent)
        children.setdefault(above if above in pids and process.parent != process.pid else ("", None), []).append(
            process
        )

    def below(parent: tuple[str, int | None], indent: str, walked: frozenset[int]) -> Iterator[Process]:
        siblings = children.get(parent, [])
        for number, process in enumerate(siblings):
            last = number == len(siblings) - 1
            top = parent == ("", None)
            yield process._replace(branch="" if top else indent + ("└─ " if last else "├─ "))
            if process.pid not in walked:
                further = "" if top else indent + ("   " if last else "│  ")
                yield from below((process.machine.title, process.pid), further, walked | {process.pid})

    yield from below(("", None), "", frozenset())


def _draw(scene: Scene, number: int, shown: Sequence[Process], most: int, height: int) -> list[Line]:
    look = scene.look
    title = heading(number, "Processes", look.pane == number)
    if look.wanted:
        title += [Span("  with ", "dim"), Span(look.wanted, "accent", "filter")]
    if not shown:
        return [title, text("  none has it" if look.wanted else "  none on a GPU", "dim")]
    room = height - 2
    chosen = next((index for index, process in enumerate(shown) if process.key == look.process), 0)
    first = max(0, min(chosen - room // 2, len(shown) - room))
    visible = shown[first : first + room]
    if len(visible) < len(shown):
        title += [Span(f"  {first + 1} to {first + len(visible)} of {len(shown)}", "dim")]
    titles, *rows = _table(scene, visible, most - 2)
    lines = [title, [Span("  "), *titles]]
    for process, row in zip(visible, rows, strict=True):
        under = process.key == look.process and look.pane == number
        action = f"process({process.key[0]!r}, {process.key[1]!r})"
        lines.append([Span("  "), *acting(row, action, "cursor" if under else None)])
    return lines


def _table(scene: Scene, visible: Sequence[Process], most: int) -> list[Line]:
    look = scene.look

    def column(title: str, field: str, cells: list[str], align: str = "r", rank: int = 0, least: int = 0) -> Column:
        mark = ("▾" if look.descending else "▴") if scene.braille else ("v" if look.descending else "^")
        name = title + (mark if look.sort == field else "")
        return Column(name, [text(cell) for cell in cells], align, rank, max(least, len(title) + 1), f"sort({field!r})")

    shown = [
        column("host", "host", [process.machine.title for process in visible], "l", 1)
        if len(scene.machines) > 1
        else None,
        column("GPU", "gpu", ["" if process.gpu is None else str(process.gpu) for process in visible]),
        column("pid", "pid", [str(process.pid) for process in visible], least=7),
        column("user", "user", [cut(process.user, 12) for process in visible], "l", 3),
        column("memory", "memory", [_known(process.memory, bytes_text) for process in visible], least=9),
        column("SM", "sm", [_known(process.sm, percent) for process in visible], rank=2, least=5),
        column("CPU", "cpu", [_known(process.cpu, percent) for process in visible], rank=2, least=6),
        column("RAM", "ram", [_known(process.ram, bytes_text) for process in visible], rank=4, least=9),
        column("run", "run", [cut(process.run, 16) for process in visible], "l", 5),
        column("container", "container", [cut(process.container, 24) for process in visible], "l", 6),
    ]
    lines = table([one for one in shown if one], most - LEAST_COMMAND - GAP)
    room = most - width(lines[0]) - GAP
    title = "command" + ("" if look.sort != "command" else "▾" if look.descending else "▴")
    commands = [[Span(title, "dim", "sort('command')")]]
    commands += [[Span(process.branch, "dim"), Span(process.command)] for process in visible]
    return [[*line, Span(" " * GAP), *fitted(command, room)] for line, command in zip(lines, commands, strict=True)]


def _known(value: float | None, words: Callable[[float], str]) -> str:
    """Nothing where nothing is known: a dash in every row would be noise."""
    return "" if value is None else words(value)

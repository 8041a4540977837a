"""The machine itself: CPU, memory, disks, network; one cell each."""

from collections.abc import Callable
from typing import NamedTuple

from pulsetrain.live import SubjectState
from pulsetrain.views import thresholds
from pulsetrain.views.live.history import Points
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.terminal.charts import bar, combined, spark
from pulsetrain.views.terminal.lines import Line, Span, beside, fitted, text
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.terminal.state import Scene
from pulsetrain.views.text import bytes_text, number, percent, used_of

CELL_WIDTH = 48
"""What a cell with its curve takes; on a narrower screen it has none."""
FIGURE_WIDTH = 34
CURVE_HEIGHT = 2


class HostCell(NamedTuple):
    figures: list[Line]
    short: Line
    """The same where there is one line alone."""
    points: Callable[[int], Points]
    high: float | None
    """The top of the curve; None for the most that was seen."""


def host_pane(scene: Scene, number: int) -> Pane:
    """One line for each machine on a low screen; with curves where there is room."""
    count = len(scene.machines)
    named = count > 1
    return Pane(
        "Host",
        lambda width, height: _draw(scene, number, width, height),
        least=1 + (2 + named) * count,
        wanted=1 + (2 * CURVE_HEIGHT + named) * count,
        rank=1,
    )


def _draw(scene: Scene, number: int, most: int, height: int) -> list[Line]:
    title = heading(number, "Host", scene.state.pane == number)
    lines: list[Line] = []
    several = len(scene.machines) > 1
    room = (height - 1) // len(scene.machines) - several
    for machine in scene.machines:
        host = scene.live(machine).host
        if several:
            lines.append(text(f"  {machine.title}", "title"))
        lines += _cells(_machine_cells(scene, machine, host), scene, most, room)
    about = "" if several else _about(scene.live(scene.machines[0]).host)
    return [[*title, *text(f"  {about}", "dim")], *lines][:height]


def _about(host: SubjectState) -> str:
    """Limits and load, in the heading."""
    parts = []
    if (load := host.number("load_1m")) is not None:
        parts.append(f"load {load:.1f}")
    if (swap := host.number("swap_used_bytes")) and (total := host.number("swap_total_bytes")):
        parts.append(f"swap {used_of(swap, total)}")
    if (limit := host.number("container_memory_limit_bytes")) is not None:
        parts.append(f"container memory {used_of(host.number('container_memory_used_bytes'), limit)}")
    if (cores := host.number("container_cpu_limit_cores")) is not None:
        parts.append(f"container CPU limit {number(cores, 'cores', 1)}")
    return "  ".join(parts)


def _cells(cells: list[HostCell], scene: Scene, most: int, height: int) -> list[Line]:
    across = 4 if most >= 4 * CELL_WIDTH else 2
    size = (most - 2 * (across - 1)) // across
    rows = len(cells) // across
    high = max(1, min(CURVE_HEIGHT, height // rows))
    lines: list[Line] = []
    for first in range(0, len(cells), across):
        blocks = [_cell(cell, scene, size, high) for cell in cells[first : first + across]]
        lines += beside(blocks, [size] * across)
    return lines


def _cell(cell: HostCell, scene: Scene, size: int, high: int) -> list[Line]:
    """Figures on the left, their curve on the right."""
    figures = cell.figures[:high] if high > 1 else [cell.short]
    if size < CELL_WIDTH:
        return [fitted(line, size) for line in figures]
    figures = [fitted(line, FIGURE_WIDTH) for line in figures]
    room = size - FIGURE_WIDTH - 2
    if cell.high is None:
        points = cell.points(2 * room)
        top = max((point for point in points if point is not None), default=0.0) or 1.0
        curve = spark(lambda _: points, room, high, 0.0, top, scene.braille)
    else:
        curve = spark(cell.points, room, high, 0.0, cell.high, scene.braille)
    return beside([figures, [text(line, "accent") for line in curve]], [FIGURE_WIDTH, room])


def _machine_cells(scene: Scene, machine: WatchedMachine, host: SubjectState) -> list[HostCell]:
    def curve(*fields: str) -> Callable[[int], Points]:
        return lambda points: combined(tuple(scene.series(machine, "host", "", field, points) for field in fields), sum)

    value = host.number
    total, memory = value("memory_total_bytes"), thresholds.host_memory_percent(host)
    style = thresholds.grade(memory, thresholds.host_memory(scene.thresholds))
    disk, network = ("disk_read_bytes", "disk_written_bytes"), ("network_received_bytes", "network_sent_bytes")
    cpu = [
        Span("  CPU     "),
        *bar(value("cpu_ratio"), 8, "accent", scene.braille),
        Span(f" {percent(value('cpu_ratio')):>5}", "title"),
    ]
    ram = [
        Span("  memory  "),
        *bar(None if memory is None else memory / 100, 8, style or "accent", scene.braille),
        Span(f" {used_of(value('memory_used_bytes'), total)}", style or "title"),
    ]
    cores = f"of {number(value('cpu_cores'))} cores, {percent(value('cpu_iowait_ratio'))} iowait"
    free = f"{bytes_text(value('memory_available_bytes'))} available"
    return [
        HostCell([cpu, text(f"{'':10}{cores}", "dim")], cpu, curve("cpu_ratio"), 1.0),
        HostCell([ram, text(f"{'':10}{free}", "dim")], ram, curve("memory_used_bytes"), total),
        _traffic_cell(host, "disk", ("read", "written"), disk, curve(*disk)),
        _traffic_cell(host, "network", ("in", "out"), network, curve(*network)),
    ]


def _traffic_cell(
    host: SubjectState, name: str, ways: tuple[str, str], fields: tuple[str, str], points: Callable[[int], Points]
) -> HostCell:
    """A line for each way; both in one where there is no room for two."""
    rates = [host.rates.get(field) for field in fields]
    starts = (f"  {name:<8}", " " * 10)
    figures = [
        [Span(start), Span(bytes_text(rate, "/s"), "title"), Span(f" {way}", "dim")]
        for start, rate, way in zip(starts, rates, ways, strict=True)
    ]
    return HostCell(figures, [Span(starts[0]), Span(" / ".join(map(bytes_text, rates)), "title")], points, None)

"""The GPUs: a row for each, as high as there is room, and the history of the one that is chosen or of all together."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from pulsetrain.live import SubjectState
from pulsetrain.units import MIB
from pulsetrain.views import thresholds
from pulsetrain.views.live.history import Points
from pulsetrain.views.live.machines import WatchedMachine
from pulsetrain.views.machine import driver, power_of_limit, throttled
from pulsetrain.views.terminal.charts import TextChart, bar, combined, grid, spark, wanted_height
from pulsetrain.views.terminal.lines import Line, Span, TableColumn, acting, beside, fitted, table, text, width
from pulsetrain.views.terminal.panes import Pane, heading
from pulsetrain.views.terminal.state import Scene
from pulsetrain.views.text import bytes_text, cut, flow, number, round_duration, used_of

COMPACT_FROM = 9
"""So many GPUs and more have rows of one line each."""
CURVE_WIDTH = 18
"""Room kept for the curves beside the figures, where the screen is not narrow."""


class GpuRow(NamedTuple):
    """A GPU of one of the machines."""

    machine: WatchedMachine
    gpu: SubjectState

    @property
    def key(self) -> tuple[str, str]:
        return self.machine.title, self.gpu.subject.key

    @property
    def model(self) -> str:
        return str(self.gpu.subject.labels.get("name") or "").removeprefix("NVIDIA ").removesuffix(" (simulated)")

    @property
    def lost(self) -> bool:
        return self.gpu.number("up") == 0

    def series(self, scene: Scene, field: str) -> Callable[[int], Points]:
        return lambda points: scene.series(self.machine, "gpu", self.gpu.subject.key, field, points)


def gpu_rows(scene: Scene) -> list[GpuRow]:
    return [
        GpuRow(machine, gpu)
        for machine in scene.machines
        for gpu in scene.live(machine).table("gpu")
        if scene.shows(gpu.subject)
    ]


def gpu_pane(scene: Scene, number: int, rows: Sequence[GpuRow]) -> Pane:
    each = 1 if len(rows) >= COMPACT_FROM else 2 if len(rows) > 4 else 3
    named = [machine for machine in scene.machines if len(scene.machines) > 1]
    return Pane(
        "GPUs",
        lambda width, height: _table(scene, number, rows, width, height),
        least=2 + min(len(rows), 8) + len(named),
        wanted=2 + each * len(rows) + len(named),
    )


def _table(scene: Scene, number: int, rows: Sequence[GpuRow], most: int, height: int) -> list[Line]:
    title = heading(number, "GPUs", scene.state.pane == number)
    if not rows:
        why = scene.missing() or ("none" if scene.now else "waiting for the first reading")
        return [title, *(text(f"  {line}", "dim") for line in why.splitlines())]
    titles, *figures = _figures(scene, rows, most)
    left = width(titles)
    several = len(scene.machines) > 1
    room = height - 2 - (len({row.machine.title for row in rows}) if several else 0)
    high = 1 if len(rows) >= COMPACT_FROM else max(1, min(4, room // len(rows)))
    shown = range(len(rows)) if high * len(rows) <= room else _around(scene, rows, room)
    if len(shown) < len(rows):
        title += [Span(f"  {len(shown)} of {len(rows)}", "accent")]
    if not several:
        title += text(f"  {_about(scene, rows)}", "dim")
    lines = [title, _with_curve_titles(scene, titles, most - left - 2)]
    named = None
    for index in shown:
        row = rows[index]
        if several and row.machine is not named:
            named = row.machine
            own = [other for other in rows if other.machine is named]
            lines.append([*text(f"  {named.title}", "title"), *text(f"  {_about(scene, own)}", "dim")])
        lines += _row(scene, row, figures[index], most, high)
    return lines


def _about(scene: Scene, rows: Sequence[GpuRow]) -> str:
    """The models of one machine's GPUs, and their driver."""
    counts = Counter(name for row in rows if (name := row.model))
    models = ", ".join(name if len(rows) == 1 else f"{count} x {name}" for name, count in counts.items())
    return "  ".join(filter(None, (models, driver(scene.live(rows[0].machine).host))))


def _around(scene: Scene, rows: Sequence[GpuRow], room: int) -> range:
    """Those rows that have room, with the chosen one among them."""
    chosen = next((index for index, row in enumerate(rows) if row.key == scene.state.gpu), 0)
    first = max(0, min(chosen - room // 2, len(rows) - room))
    return range(first, min(first + max(1, room), len(rows)))


def _row(scene: Scene, row: GpuRow, figures: Line, most: int, high: int) -> list[Line]:
    """One GPU: its figures, what else is known of it below them, and its curves beside them."""
    left = width(figures)
    chosen = row.key == scene.state.gpu
    action = f"gpu({row.machine.title!r}, {row.gpu.subject.key!r})"
    block = [acting(figures, action, "cursor" if chosen else None)]
    if high > 1 and not row.lost:
        block += [text(f"     {line}", "dim") for line in flow(list(_details(row.gpu)), left - 5)[: high - 1]]
    block = [fitted(line, left) for line in (*block, *[[]] * (high - len(block)))]
    curves = _curves(scene, row, most - left - 2, high)
    return beside([block, *curves], [left, *(width(curve[0]) for curve in curves)]) if curves else block


def _curve_widths(room: int) -> list[int]:
    if room < 8:
        return []
    return [room] if room < 44 else [(room - 2) // 2] * 2


def _curves(scene: Scene, row: GpuRow, room: int, high: int) -> list[list[Line]]:
    """Utilization, and memory where there is room for both."""
    styles = ("accent", _memory_grade(row.gpu, scene) or "dim")
    fields = ("utilization_percent", "memory_percent")
    return [
        [text(line, style) for line in spark(row.series(scene, field), size, high, 0.0, 100.0, scene.braille)]
        for size, field, style in zip(_curve_widths(room), fields, styles, strict=False)
    ]


def _with_curve_titles(scene: Scene, titles: Line, room: int) -> Line:
    names = (f"utilization, {round_duration(scene.seconds)}", "memory")
    sizes = _curve_widths(room)
    curves = [[fitted(text(name, "dim"), size)] for name, size in zip(names, sizes, strict=False)]
    return beside([[titles], *curves], [width(titles), *sizes])[0] if curves else titles


def _figures(scene: Scene, rows: Sequence[GpuRow], most: int) -> list[Line]:
    """The table of the rows' figures, its titles first; as much of it as leaves room for curves."""
    gpus = [row.gpu for row in rows]
    roomy, wide = most >= 80, most >= 100
    size = 8 if wide else 4
    mixed = len({row.model for row in rows if row.model}) > 1

    def cells(make: Callable[[SubjectState], Line]) -> list[Line]:
        return [[] if row.lost else make(row.gpu) for row in rows]

    columns = [
        TableColumn("", [text(f"{gpu.subject.labels['gpu_index']}", "title") for gpu in gpus], "r", least=6),
        TableColumn(
            "model", [text(cut(row.model, 26 if wide else 14)) if mixed else [] for row in rows], rank=0 if roomy else 1
        ),
        TableColumn("utilization", [_busy(row, size, scene) for row in rows], least=size + 6),
        TableColumn("memory", cells(lambda gpu: _memory(gpu, size, scene)), "r"),
        TableColumn("power", cells(lambda gpu: text(power_of_limit(gpu))), "r", least=9),
        TableColumn("temp", cells(lambda gpu: _temperature(gpu, scene)), "r"),
        TableColumn("fan", cells(lambda gpu: _known(gpu, "fan_speed_percent", "%")), "r", rank=3),
        TableColumn("clock", cells(lambda gpu: _known(gpu, "clock_sm_hertz", "MHz", 1e-6)), "r", rank=2, least=8),
        TableColumn("memory clock", cells(lambda gpu: _known(gpu, "clock_memory_hertz", "MHz", 1e-6)), "r", rank=6),
        TableColumn(
            "limited by", cells(lambda gpu: text(", ".join(throttled(gpu)), "warn")), rank=1, least=11, stays=True
        ),
    ]
    return table(columns, most - CURVE_WIDTH - 2 if roomy else most)


def _busy(row: GpuRow, size: int, scene: Scene) -> Line:
    if row.lost:
        return text("lost", "bad")
    busy = row.gpu.number("utilization_percent")
    share = None if busy is None else busy / 100
    return [*bar(share, size, "accent", scene.braille), Span(f" {number(busy, '%'):>5}")]


def _memory(gpu: SubjectState, size: int, scene: Scene) -> Line:
    used, total = gpu.number("memory_used_mb"), gpu.number("memory_total_mb")
    percent, style = gpu.number("memory_percent"), _memory_grade(gpu, scene)
    words = used_of(None if used is None else used * MIB, None if total is None else total * MIB)
    return [
        *bar(None if percent is None else percent / 100, size, style or "accent", scene.braille),
        Span(f" {words:>13}", style),
    ]


def _memory_grade(gpu: SubjectState, scene: Scene) -> str:
    return thresholds.grade(gpu.number("memory_percent"), thresholds.gpu_memory(scene.thresholds))


def _temperature(gpu: SubjectState, scene: Scene) -> Line:
    value = gpu.number("temperature_celsius")
    return text(number(value, "°C"), thresholds.grade(value, thresholds.gpu_temperature(scene.thresholds)))


def _known(gpu: SubjectState, field: str, unit: str, factor: float = 1.0) -> Line:
    """A value with its unit; nothing where the device has none."""
    value = gpu.number(field)
    return [] if value is None else text(f"{value * factor:.0f} {unit}")


def _details(gpu: SubjectState) -> Iterator[str]:
    """What is of use when there is room for it."""
    value, rates = gpu.number, gpu.rates
    shares = {"SM": "sm_active_ratio", "tensor": "tensor_active_ratio", "DRAM": "dram_active_ratio"}
    active = [f"{name} {100 * share:.0f} %" for name, field in shares.items() if (share := value(field)) is not None]
    if active:
        yield " ".join(active)
    received, sent = value("pcie_received_bytes_per_second"), value("pcie_sent_bytes_per_second")
    if received is not None and sent is not None:
        yield f"PCIe in {bytes_text(received, '/s')} out {bytes_text(sent, '/s')}"
    if rates.get("nvlink_received_bytes"):
        yield f"NVLink in {bytes_text(rates['nvlink_received_bytes'], '/s')}"
    if (hot := value("memory_temperature_celsius")) is not None:
        yield f"memory {hot:.0f} °C"
    if errors := value("ecc_uncorrected_errors"):
        yield f"{errors:.0f} uncorrected memory errors"
    if errors := value("xid_errors"):
        yield f"{errors:.0f} XID errors"


def history_pane(scene: Scene, number: int, rows: Sequence[GpuRow]) -> Pane:
    """Utilization, memory, power and temperature over time."""
    chosen = [row for row in rows if row.key == scene.state.gpu] or list(rows)
    charts = gpu_charts(scene, chosen)

    def draw(width: int, height: int) -> list[Line]:
        title = heading(number, "History", scene.state.pane == number)
        shown = _whose(chosen, len(rows))
        return [
            [*title, Span(f"  {shown}", "dim")],
            *grid(charts, width, height - 1, scene.seconds, scene.braille),
        ]

    least = 5 if charts else sys.maxsize  # without a GPU there is no room for it on any screen
    return Pane("History", draw, least=least, wanted=1 + wanted_height(4, 100), rank=3, most=math.inf)


def _whose(chosen: Sequence[GpuRow], count: int) -> str:
    if len(chosen) == 1:
        labels = chosen[0].gpu.subject.labels
        return f"GPU {labels['gpu_index']}, {labels['name']}" + (", all: escape" if count > 1 else "")
    return f"all {len(chosen)} GPUs"


def gpu_charts(scene: Scene, rows: Sequence[GpuRow]) -> list[TextChart]:
    """What these GPUs did: mean utilization, all memory, all power, the hottest."""
    alive = [row for row in rows if not row.lost]
    if not rows:
        return []

    def curve(field: str, how: Callable[[Sequence[float]], float]) -> Callable[[int], Points]:
        return lambda points: combined(tuple(row.series(scene, field)(points) for row in rows), how)

    def now(field: str) -> list[float]:
        return [value for row in alive if (value := row.gpu.number(field)) is not None]

    busy, used, total = now("utilization_percent"), now("memory_used_mb"), now("memory_total_mb")
    watts, limits, heat = now("power_draw_watts"), now("power_limit_watts"), now("temperature_celsius")
    hottest = max(heat, default=None)
    several = len(rows) > 1
    return [
        TextChart(
            "mean utilization" if several else "utilization",
            curve("utilization_percent", fmean),
            number(fmean(busy), "%") if busy else "",
            high=100.0,
            label=lambda value: f"{value:.0f}",
        ),
        TextChart(
            "memory",
            curve("memory_used_mb", sum),
            used_of(sum(used) * MIB, sum(total) * MIB) if used and total else "",
            high=sum(total) or None,
            label=lambda value: bytes_text(value * MIB),
        ),
        TextChart(
            "power",
            curve("power_draw_watts", sum),
            number(sum(watts), "W") if watts else "",
            high=sum(limits) if len(limits) == len(watts) and limits else None,
            label=lambda value: f"{value:,.0f}",
        ),
        TextChart(
            "hottest" if several else "temperature",
            curve("temperature_celsius", max),
            number(hottest, "°C") if hottest is not None else "",
            low=20.0,
            high=max(100.0, hottest or 0.0),
            label=lambda value: f"{value:.0f}",
            style=thresholds.grade(hottest, thresholds.gpu_temperature(scene.thresholds)) or "accent",
        ),
    ]

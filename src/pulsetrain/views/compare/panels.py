"""The charts of a comparison: one color for each run in all of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.steps import Floats
from pulsetrain.units import MIB_PER_GIB
from pulsetrain.views.plots import UNITS, Panel, drawable, log_times, palette, panel_svg, panels_png
from pulsetrain.views.text import cut, energy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_POINTS = 300
"""Of a distribution: more would not be seen."""
LAST_SHARE = 0.995
"""The very slowest steps would squeeze all others together."""
FAR_APART = 20.0
"""Times that span more than this are drawn on a logarithmic axis."""
LABEL_LENGTH = 18
PART_COLORS = {
    "data_wait": "#7b3294",
    "copy": "#b07cc6",
    "forward": "#5f6b78",
    "backward": "#8d98a4",
    "communication": "#c26a1b",
    "optimizer": "#b9c1ca",
    "logging": "#2f7d5d",
    "gc": "#8fbfa5",
    "other": "#dde2e7",
}
"""Waiting stands out, and none of them is the color of a run."""
LEAST_ROWS = 4
"""A bar of fewer runs is no thicker."""


def compare_png(sides: Sequence[Side]) -> bytes:
    """The figure of a comparison, for a paper."""
    return panels_png(list(_panels(sides)), f"pulsetrain: {', '.join(side.label for side in sides)}", _labels(sides))


def compare_svgs(sides: Sequence[Side]) -> dict[str, str]:
    """The same charts as elements of a page, by their titles."""
    return {panel.title: panel_svg(panel, len(sides)) for panel in _panels(sides)}


def _panels(sides: Sequence[Side]) -> Iterator[Panel]:
    """Every chart for which at least one run has figures."""
    stepping = [side.steps for side in sides if side.steps]
    if stepping:
        yield Panel("Step time: share of steps that take no longer", lambda axes: _distribution(axes, sides))
    if any(mean is not None for steps in stepping for mean in steps.parts.values()):
        yield Panel("Where the step time goes, mean", lambda axes: _parts(axes, sides))
    for name in dict.fromkeys(name for side in sides for name in side.curves):
        yield Panel(name, _curves(sides, name))
    busy = [side.facts.timeline.busy_percent for side in sides]
    watts = [side.facts.timeline.watts for side in sides]
    memory = [side.facts.timeline.memory_mb / MIB_PER_GIB for side in sides]
    for title, unit, values in (
        ("GPU utilization, mean", "%", busy),
        ("Power of all GPUs", "W", watts),
        ("Memory in use on the fullest GPU", "GiB", memory),
    ):
        if any(np.isfinite(line).any() for line in values):
            yield Panel(title, _over_time(sides, values, unit))
    per_sample = [side.report.energy.joules_per_sample for side in sides]
    per_step = [side.report.energy.joules_per_step for side in sides]
    for title, joules in (("Energy per sample", per_sample), ("Energy per step", per_step)):
        if any(value is not None for value in joules):
            yield Panel(title, _bars(sides, joules))
            break


def _distribution(axes: "Axes", sides: Sequence[Side]) -> None:
    shares = np.linspace(0, LAST_SHARE, CURVE_POINTS)
    colors = palette(len(sides))
    curves = [
        (np.quantile(side.steps.seconds, shares), color)
        for side, color in zip(sides, colors, strict=True)
        if side.steps
    ]
    scale, unit = _unit(max(curve[-1] for curve, _ in curves))
    for curve, color in curves:
        axes.plot(curve / scale, 100 * shares, color=color, linewidth=1.4)
    if max(curve[-1] for curve, _ in curves) > FAR_APART * min(curve[0] for curve, _ in curves):
        log_times(axes)
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("%")


def _parts(axes: "Axes", sides: Sequence[Side]) -> None:
    means = {part: np.array([_part(side, part) for side in sides]) for part in STEP_PARTS}
    totals = np.sum(list(means.values()), axis=0)
    scale, unit = _unit(totals.max())
    left = np.zeros(len(sides))
    seen = [part for part in STEP_PARTS if means[part].any()]
    for part in seen:
        axes.barh(
            range(len(sides)),
            means[part] / scale,
            left=left,
            color=PART_COLORS[part],
            height=0.6,
            label=STEP_PARTS[part],
        )
        left += means[part] / scale
    _name_rows(axes, sides)
    axes.set_xlabel(f"time ({unit})")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.42, -0.24), ncols=min(5, len(seen)), handlelength=1, columnspacing=1
    )


def _part(side: Side, part: str) -> float:
    return (side.steps.parts[part] if side.steps else None) or 0.0


def _over_time(sides: Sequence[Side], values: Sequence[Floats], unit: str) -> Callable[["Axes"], None]:
    def draw(axes: "Axes") -> None:
        span = max(
            (float(side.facts.timeline.seconds[-1]) for side in sides if side.facts.timeline.seconds.size), default=0.0
        )
        scale, time_unit = next((seconds, name) for least, seconds, name in UNITS if span >= least)
        for side, line, color in zip(sides, values, palette(len(sides)), strict=True):
            axes.plot(side.facts.timeline.seconds / scale, line, color=color, linewidth=1.2, alpha=0.85)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0, top=102 if unit == "%" else None)
        axes.set_xlabel(f"time since the start of the run ({time_unit})")
        axes.set_ylabel(unit)
        axes.locator_params(axis="y", nbins=5)

    return draw


def _curves(sides: Sequence[Side], name: str) -> Callable[["Axes"], None]:
    """What the runs logged under one name, over each other."""

    def draw(axes: "Axes") -> None:
        shown = [(side.curves[name], n) for n, side in enumerate(sides) if name in side.curves]
        span = max(float(curve.seconds[-1]) for curve, _ in shown)
        scale, time_unit = next((seconds, unit) for least, seconds, unit in UNITS if span >= least)
        for curve, n in shown:
            axes.plot(curve.seconds / scale, curve.values, color=palette(len(sides))[n], linewidth=1.2, alpha=0.85)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"time since the start of the run ({time_unit})")
        axes.locator_params(axis="y", nbins=5)

    return draw


def _bars(sides: Sequence[Side], joules: Sequence[float | None]) -> Callable[["Axes"], None]:
    def draw(axes: "Axes") -> None:
        lengths = [value or 0.0 for value in joules]
        bars = axes.barh(range(len(sides)), lengths, color=palette(len(sides)), height=0.6)
        axes.bar_label(bars, [energy(value) for value in joules], padding=3)
        _name_rows(axes, sides)
        axes.margins(x=0.2)
        axes.xaxis.set_visible(False)

    return draw


def _name_rows(axes: "Axes", sides: Sequence[Side]) -> None:
    """A run in each row, the first on top."""
    axes.set_yticks(range(len(sides)), [drawable(label) for label in _labels(sides)])
    middle, reach = (len(sides) - 1) / 2, max(LEAST_ROWS, len(sides)) / 2
    axes.set_ylim(middle + reach, middle - reach)
    axes.grid(visible=False)


def _labels(sides: Sequence[Side]) -> list[str]:
    return [cut(side.label, LABEL_LENGTH) for side in sides]


def _unit(seconds: float) -> tuple[float, str]:
    return (1.0, "s") if seconds >= 1 else (1e-3, "ms")

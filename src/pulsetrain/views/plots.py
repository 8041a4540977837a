"""Charts drawn with matplotlib, as PNG for files and as SVG for pages. The one file that imports it."""

import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

# A home that cannot be written, and fonts that are looked up for the first time, are no news for our users.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

import matplotlib.style  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib import colormaps  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import findfont, get_font  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter  # noqa: E402

from pulsetrain.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE  # noqa: E402
from pulsetrain.views.charts import MANY_LINES, Chart, Line  # noqa: E402
from pulsetrain.views.colors import DARK, LIGHT  # noqa: E402

INK, RULE = "#24292f", "#d8dee4"
MOST_NAMED = 16
"""Lines that a legend names one by one."""
PNG_DPI = 200
MARGINS = {"left": 0.1, "right": 0.985, "top": 0.96, "bottom": 0.19}
UNITS = (
    (3 * SECONDS_PER_DAY, SECONDS_PER_DAY, "d"),
    (3 * SECONDS_PER_HOUR, SECONDS_PER_HOUR, "h"),
    (3 * SECONDS_PER_MINUTE, SECONDS_PER_MINUTE, "min"),
    (0.0, 1.0, "s"),
)
"""From which length of a run on, which unit of time is used."""
FONTS = ["DejaVu Sans"]  # ships with matplotlib
SETTINGS = {
    "font.family": FONTS,
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "path.simplify_threshold": 0.3,
    "svg.fonttype": "none",
    "svg.hashsalt": "pulsetrain",
}


def palette(count: int, dark: bool = False) -> list[str]:
    """A color for each line; beyond eight, steps from one end of a scale to the other."""
    colors = DARK if dark else LIGHT
    if count <= len(colors):
        return list(colors[:count])
    first, last = (0.3, 1.0) if dark else (0.0, 0.85)
    return [to_hex(colormaps["viridis"](x)) for x in np.linspace(first, last, count)]


@dataclass(frozen=True)
class Panel:
    """A chart that draws itself."""

    title: str
    draw: Callable[[Axes], None]


def png(charts: Sequence[Chart], title: str, span: float) -> bytes:
    """Charts of the same lines, as a picture."""
    panels = [Panel(chart.caption, partial(_draw, chart=chart, span=span)) for chart in charts]
    return panels_png(panels, title, [line.label for line in charts[0].lines])


def svg(chart: Chart, span: float) -> str:
    """A chart as an element for a page. All have the same margins, so that time lies above time."""
    panel = Panel(f"{chart.title} over time", partial(_draw, chart=chart, span=span))
    return _svg(panel, len(chart.lines), (5.6, 2.2), MARGINS)


def panels_png(panels: Sequence[Panel], title: str, legend: Sequence[str]) -> bytes:
    """Panels in two columns; below them the names whose colors they share."""
    rows = max(1, -(-len(panels) // 2))
    with matplotlib.style.context(["default", SETTINGS]):
        figure = Figure(figsize=(10, 0.9 + 2.7 * rows), dpi=PNG_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(drawable(title), fontsize=10, fontweight="bold", x=0.01, ha="left")
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            panel.draw(axes)
            axes.set_title(drawable(panel.title))
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        _legend(figure, legend)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def sheet_svg(charts: Sequence[Chart], title: str, span: float) -> str:
    """Charts of one run in two columns on a light sheet, for where there is no page with styles around them."""
    rows = max(1, -(-len(charts) // 2))
    with matplotlib.style.context(["default", SETTINGS]):
        figure = Figure(figsize=(9.6, 0.55 + 1.9 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        figure.suptitle("\n".join(map(drawable, title.splitlines())), fontsize=9, x=0.01, ha="left")
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes, chart in zip(grid.flat, charts, strict=False):
            _draw(axes, chart, span)
            axes.set_title(drawable(chart.caption))
            _name_lines(axes, chart)
        for axes in grid.flat[len(charts) :]:
            axes.set_axis_off()
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _small(stream.getvalue())


def _name_lines(axes: Axes, chart: Chart) -> None:
    """Which color is which; of very many lines nobody could tell."""
    if 1 < len(chart.lines) <= len(LIGHT):
        patches = [Patch(color=color) for color in palette(len(chart.lines))]
        names = [drawable(line.label) for line in chart.lines]
        axes.legend(
            patches,
            names,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),  # beside the drawing
            borderaxespad=0.2,
            fontsize=6,
            handlelength=0.8,
            handleheight=0.6,
            handletextpad=0.4,
        )


def panel_svg(panel: Panel, colors: int) -> str:
    """A panel as an element for a page, with so many of its colors."""
    return _svg(panel, colors, (5.6, 2.4))


def _svg(panel: Panel, colors: int, inches: tuple[float, float], margins: Mapping[str, float] | None = None) -> str:
    with matplotlib.style.context(["default", SETTINGS]):
        figure = Figure(figsize=inches, layout=None if margins else "constrained")
        FigureCanvasSVG(figure)
        if margins:
            figure.subplots_adjust(**margins)
        panel.draw(figure.subplots())
        stream = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    return _inline(stream.getvalue(), palette(colors), panel.title)


def _draw(axes: Axes, chart: Chart, span: float) -> None:
    scale, unit = next((seconds, unit) for least, seconds, unit in UNITS if span >= least)
    colors = palette(len(chart.lines))
    if chart.kind == "stack":
        layers = [line.values for line in chart.lines]
        axes.stackplot(chart.lines[0].seconds / scale, layers, colors=colors, alpha=0.85, linewidth=0)
    else:
        for line, color in zip(chart.lines, colors, strict=True):
            _draw_line(axes, line, scale, color, chart)
    axes.set_xlim(0, span / scale)
    axes.set_xlabel(f"time ({unit})")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    if chart.share:
        axes.set_ylim(0, 100)
    elif chart.zero:
        highest = max(float(axes.dataLim.y1), chart.top or 0.0)
        axes.set_ylim(0, chart.cut or 1.05 * highest or 1)


def _draw_line(axes: Axes, line: Line, scale: float, color: str, chart: Chart) -> None:
    seconds = line.seconds / scale
    few = len(chart.lines) <= MANY_LINES
    if few and line.low is not None and line.high is not None:
        axes.fill_between(seconds, line.low, line.high, color=color, alpha=0.18, linewidth=0)
    way = "steps-post" if chart.kind == "steps" else "default"
    if line.smooth is None:
        axes.plot(seconds, line.values, color=color, linewidth=1.2 if few else 0.9, drawstyle=way)
    else:
        axes.plot(seconds, line.values, color=color, linewidth=0.6, alpha=0.5)
        axes.plot(seconds, line.smooth, color=color, linewidth=1.4)


def _legend(figure: Figure, labels: Sequence[str]) -> None:
    """Below all charts. Of very many lines some are named: their colors are steps of one scale."""
    if len(labels) < 2:
        return
    colors = palette(len(labels))
    named = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), MOST_NAMED)).round().astype(int))
    figure.legend(
        [Patch(color=colors[index]) for index in named],
        [drawable(labels[index]) for index in named],
        loc="outside lower center",
        ncols=min(8, len(named)),
        handlelength=1.4,
        handleheight=0.4,
    )


def drawable(text: str) -> str:
    """A text without what the font cannot draw, and without the sign that begins a formula."""
    known = get_font(findfont(FONTS[0])).get_charmap()
    return "".join(character if ord(character) in known else "?" for character in text).replace("$", r"\$")


def _inline(drawing: str, colors: Sequence[str], label: str) -> str:
    """The bare element of a drawing, small; colors and font are the page's: --ink, --rule, --line-0, ..., --font."""
    drawing = _small(drawing)
    drawing = re.sub(r"(font: (?:bold )?[\d.]+px)[^;\"]*", r"\1 var(--font)", drawing)
    for name, color in (("ink", INK), ("rule", RULE), *((f"line-{i}", color) for i, color in enumerate(colors))):
        drawing = drawing.replace(color, f"var(--{name})")
    drawing = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawing, count=1)
    return drawing.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)


def _small(drawing: str) -> str:
    """The bare element of a drawing, without what nobody sees."""
    drawing = drawing[drawing.index("<svg") :]
    used = set(re.findall(r"#([\w-]+)[\")]", drawing))
    drawing = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", drawing)
    drawing = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' transform="rotate\(-?0 [^"]*"', "", drawing)
    drawing = re.sub(r' d="([^"]*)"', lambda path: f' d="{_short_path(path[1])}"', drawing)
    return re.sub(r">\s+<", "><", drawing).strip()


def _short_path(path: str) -> str:
    """To a tenth of a point, and without the points within a stretch that is level."""
    steps = re.findall(r"[A-Za-z][^A-Za-z]*", re.sub(r"(\d\.\d)\d+", r"\1", path))
    kept: list[str] = []
    for step in (" ".join(step.split()) for step in steps):
        level = len(kept) > 1 and step[0] == kept[-1][0] == "L" and step.split()[2] == kept[-1].split()[2]
        if level and kept[-2][0] in "LM" and kept[-2].split()[2] == step.split()[2]:
            kept.pop()
        kept.append(step)
    return " ".join(kept)


def log_times(axes: Axes) -> None:
    """Times on a logarithmic axis, with plain numbers at 1, 2, 5 and their tens."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())

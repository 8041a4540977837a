"""The figures of a comparison as words: the same in the terminal and on the page."""

from collections.abc import Callable
from dataclasses import dataclass

from pulsetrain.insight.compare import Compared
from pulsetrain.insight.compare.figures import Figure
from pulsetrain.insight.compare.significance import RELEVANT
from pulsetrain.insight.compare.words import time_text
from pulsetrain.views.phrases import OUTCOME
from pulsetrain.views.text import ABSENT, bytes_text, duration, energy, grams, money, number, percent

MIB = 2**20
NOISE = "~"
"""Before a change that cannot be told from none."""
SAME = "same"
LEGEND = f"{NOISE} cannot be told from no difference: noise, or within the error of the figure."


@dataclass(frozen=True)
class Cell:
    """A figure of one run, and how it differs from the first."""

    value: str
    change: str = ""
    mood: str = ""
    """better, worse, noise, or nothing of these."""


def cells(figure: Figure) -> list[Cell]:
    """A cell for each run."""
    return [Cell(_value(figure, run), _change(figure, run), _mood(figure, run)) for run in range(len(figure.values))]


def about(run: Compared) -> str:
    """A run in a line: what became of it, where."""
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    outcome = OUTCOME.get(run.status, run.status) + code
    steps = f"{number(run.steps)} steps" if run.steps else "no steps"
    if run.warm_up_steps:
        steps += f" ({number(run.warm_up_steps)} warm-up)"
    name = f"{run.name}, " if run.name != run.label else ""
    return (
        f"{name}{outcome} after {duration(run.seconds)}, {steps}, GPUs {run.gpus}, on {', '.join(run.hosts) or ABSENT}"
    )


def _value(figure: Figure, run: int) -> str:
    value = figure.values[run]
    text = _text(value, figure.unit)
    share = figure.shares[run] if figure.shares else None
    return text if share is None else f"{text} ({percent(share)})"


_TEXTS: dict[str, Callable[[float], str]] = {
    "seconds": time_text,
    "duration": duration,
    "share": percent,
    "cores": lambda value: f"{value:.2f}",
    "MiB": lambda value: bytes_text(value * MIB),
    "Hz": lambda value: number(value / 1e6, "MHz"),
    "W": lambda value: number(value, "W"),
    "J": energy,
    "g": grams,
    "number": lambda value: f"{value:.4g}",
    "count": lambda value: number(value, digits=0 if value == round(value) else 1),
    "rate": lambda value: number(value, digits=0 if value >= 100 else 1),
}


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return ABSENT
    kind, _, currency = unit.partition(" ")
    return money(value, currency) if kind == "money" else _TEXTS[unit](value)


def _change(figure: Figure, run: int) -> str:
    change, test = figure.changes[run], figure.tests[run]
    if change is None:
        return ""
    if abs(change) < (0.005 if figure.unit == "share" else 0.0005):
        return SAME
    noise = NOISE if test and not test.certain else ""
    if figure.unit == "share":
        return f"{noise}{100 * change:+.0f} pts"
    if change >= 1:
        return f"{noise}x {1 + change:,.{0 if change >= 99 else 1}f}"
    return f"{noise}{100 * change:+.1f} %"


def _mood(figure: Figure, run: int) -> str:
    change, test = figure.changes[run], figure.tests[run]
    if test and not test.certain:
        return "noise"
    if change is None or abs(change) < RELEVANT or not figure.better:
        return ""
    return "better" if (change > 0) == (figure.better == "higher") else "worse"

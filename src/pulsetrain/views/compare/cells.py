"""The figures of a comparison as words: the same in the terminal and on the page."""

from collections.abc import Callable
from dataclasses import dataclass

from pulsetrain.insight.compare.figures import Figure
from pulsetrain.insight.compare.significance import RELEVANT
from pulsetrain.units import MIB
from pulsetrain.views.compare.content import ComparedRun
from pulsetrain.views.outcomes import OUTCOME
from pulsetrain.views.text import (
    ABSENT,
    bytes_text,
    duration,
    energy,
    grams,
    listed,
    money,
    number,
    percent,
    rate,
    short_duration,
)

NOISE = "~"
"""Before a change that cannot be distinguished from none."""
SAME = "same"
LEGEND = f"{NOISE} no significant difference: noise, or within the error of the figure."


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


def about(run: ComparedRun) -> str:
    """A run in a line: what became of it, where."""
    code = f" (exit code {run.exit_code})" if run.exit_code else ""
    outcome = OUTCOME.get(run.status, run.status) + code
    steps = f"{number(run.steps)} steps" if run.steps else "no steps"
    left_out = {"warm-up": run.warm_up_steps, "interrupted": run.interrupted_steps}
    if words := [f"{number(count)} {kind}" for kind, count in left_out.items() if count]:
        steps += f" ({listed(words)} excluded)"
    name = f"{run.name}, " if run.name != run.label else ""
    return (
        f"{name}{outcome} after {duration(run.seconds)}, {steps}, GPUs {run.gpus}, on {', '.join(run.hosts) or ABSENT}"
    )


def verdict_text(run: ComparedRun) -> str:
    """What holds a run back by its own verdict, whatever it is compared with."""
    return f"{run.finding}: {run.verdict}" if run.finding else run.verdict


def _value(figure: Figure, run: int) -> str:
    value = figure.values[run]
    text = _text(value, figure.unit, max((abs(each) for each in figure.values if each is not None), default=0.0))
    share = figure.shares[run] if figure.shares else None
    return text if share is None else f"{text} ({percent(share)})"


_TEXTS: dict[str, Callable[[float, float], str]] = {
    "seconds": short_duration,
    "duration": lambda value, most: duration(value),
    "share": lambda value, most: percent(value),
    "cores": lambda value, most: f"{value:.2f}",
    "MiB": lambda value, most: bytes_text(value * MIB, whole=most * MIB),
    "Hz": lambda value, most: number(value / 1e6, "MHz"),
    "W": lambda value, most: number(value, "W"),
    "J": energy,
    "g": grams,
    "number": lambda value, most: f"{value:.4g}",
    "count": lambda value, most: number(value, digits=0 if value == round(value) else 1),
    "rate": lambda value, most: rate(value),
}
"""Of a value, in the unit that fits the most of its row."""


def _text(value: float | None, unit: str, most: float) -> str:
    if value is None:
        return ABSENT
    kind, _, currency = unit.partition(" ")
    return money(value, currency) if kind == "money" else _TEXTS[unit](value, most)


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

"""Results of benchmarks and gates as text."""

from collections.abc import Sequence

from pulsetrain.bench.gate import GatedBenchmark, GateFigure
from pulsetrain.bench.own_cost import OwnCost
from pulsetrain.bench.results import FIGURES, BenchmarkResult, Results
from pulsetrain.views.text import Style, UnitText, bytes_text, energy, grams, in_one_unit, short_duration, table

_UNIT_TEXT: dict[str, UnitText] = {
    "seconds": short_duration,
    "joules": energy,
    "grams": grams,
    "bytes": bytes_text,
    "number": lambda value, whole: f"{value:g}",
}
_UNITS = {figure.key: figure.unit for figure in FIGURES}
_NAMES = {figure.key: figure.name for figure in FIGURES}
BUSY = 0.1
"""A machine whose CPU is used more than this is not idle."""
COLORS = {"better": "green", "worse": "red", "cannot tell": "yellow"}
SUITE_FIGURES = ("seconds", "score", "joules", "carbon_grams", "memory_bytes", "gpu_memory_bytes")


def figure_text(key: str, value: float, whole: float | None = None) -> str:
    """A figure with its unit; with a `whole`, in the unit of that."""
    return _UNIT_TEXT[_UNITS[key]](value, whole=whole)


def result_lines(result: BenchmarkResult, style: Style) -> list[str]:
    """One benchmark: each figure with its spread, what stands out, and what did not finish."""
    lines = [style(_headline(result), "bold")]
    rows = [
        (
            _NAMES[key],
            figure_text(key, figure.median, figure.median),
            _noise(figure.noise),
            figure_text(key, figure.lowest, figure.median),
            figure_text(key, figure.highest, figure.median),
        )
        for key, figure in result.figures.items()
    ]
    if rows:
        several = len(result.counted) > 1
        head = ("", "median", "noise", "lowest", "highest") if several else ("", "", "", "", "")
        lines += table(head, rows if several else [(*row[:2], "", "", "") for row in rows], style, "lrrrr")
    return [*lines, *(style(note, "yellow") for note in _notes(result))]


def suite_lines(results: Results, style: Style) -> list[str]:
    """One table over all benchmarks."""
    keys = [key for key in SUITE_FIGURES if any(key in result.figures for result in results.benchmarks)]
    head = ("benchmark", "runs", *(_NAMES[key] for key in keys), "")
    columns = [_column(results.benchmarks, key) for key in keys]
    rows = [
        (
            result.name,
            f"{len(result.counted)}/{result.benchmark.repeat}",
            *(column[place] for column in columns),
            _state(result),
        )
        for place, result in enumerate(results.benchmarks)
    ]
    lines = table(head, rows, style, "lr" + "r" * len(keys) + "l")
    for result in results.benchmarks:
        lines += [style(f"{result.name}: {note}", "yellow") for note in _notes(result)]
    return lines


def gate_lines(gated: Sequence[GatedBenchmark], style: Style) -> list[str]:
    """Every figure against its baseline, and what that means."""
    lines: list[str] = []
    for one in gated:
        title = one.name if one.name == one.baseline else f"{one.name} against {one.baseline}"
        verdict = style(one.verdict, *filter(None, [COLORS.get(one.verdict, "")]))
        lines.append(f"{style(title, 'bold')}: {verdict}{f' ({one.reason})' if one.reason else ''}")
        if one.figures:
            head = ("", "baseline", "now", "change", "between", "", "")
            lines += table(head, [_gate_row(figure, style) for figure in one.figures], style, "lrrrrll")
    return lines


def own_cost_lines(cost: OwnCost) -> list[str]:
    """What watching cost."""
    lines = [
        f"pulsetrain itself, in {cost.seconds:.0f} s of watching:",
        f"CPU     {100 * cost.cpu_ratio:.2f} % of a core ({short_duration(cost.cpu_seconds)})",
        f"memory  {bytes_text(cost.memory_bytes)}",
    ]
    for gpu in cost.gpus:
        more = gpu.watched_watts - gpu.unwatched_watts
        lines.append(
            f"GPU {gpu.gpu_index}   {more:+.2f} W: {gpu.watched_watts:.2f} W watched, {gpu.unwatched_watts:.2f} W not; "
            f"repeated measurements differ by {gpu.spread_watts:.2f} W"
        )
    if any(gpu.simulated for gpu in cost.gpus):
        lines.append("simulated GPUs are always busy: their power says nothing about pulsetrain")
    if cost.gpus_without_counter:
        lines.append(f"{cost.gpus_without_counter} GPUs have no energy counter: their power is not compared")
    if cost.others_cpu_ratio is not None and cost.others_cpu_ratio > BUSY:
        lines.append(f"the machine was not idle: {100 * cost.others_cpu_ratio:.0f} % of its CPU was used")
    return lines


def _gate_row(figure: GateFigure, style: Style) -> Sequence[str]:
    change = between = ""
    if figure.difference:
        low, high = 100 * figure.difference.low, 100 * figure.difference.high
        change, between = f"{100 * figure.difference.change:+.1f} %", f"{low:+.1f} % and {high:+.1f} %"
    return (
        figure.name,
        figure_text(figure.key, figure.base, figure.base),
        figure_text(figure.key, figure.value, figure.base),
        change,
        between,
        style(figure.verdict, *filter(None, [COLORS.get(figure.verdict, "")])),
        figure.reason,
    )


def _headline(result: BenchmarkResult) -> str:
    counted, wanted = len(result.counted), result.benchmark.repeat
    runs = f"{counted} of {wanted} runs" if counted != wanted else "1 run" if wanted == 1 else f"{wanted} runs"
    warm_ups = sum(repeat.warm_up for repeat in result.repeats)
    after = f" after {warm_ups} warm-up run{'s' if warm_ups > 1 else ''}" if warm_ups else ""
    return f"{result.name}: {runs}{after}"


def _noise(noise: float | None) -> str:
    return "" if noise is None else f"± {100 * noise:.1f} %"


def _column(results: Sequence[BenchmarkResult], key: str) -> list[str]:
    """A figure of all benchmarks."""
    figures = [result.figures.get(key) for result in results]
    medians = in_one_unit([figure.median if figure else None for figure in figures], _UNIT_TEXT[_UNITS[key]])
    return [
        f"{median} {_noise(figure.noise)}".rstrip() if figure else ""
        for median, figure in zip(medians, figures, strict=True)
    ]


def _state(result: BenchmarkResult) -> str:
    if result.failed:
        return result.failed[0].status
    return "" if result.complete else "incomplete"


def _notes(result: BenchmarkResult) -> list[str]:
    notes = [
        f"{repeat.folder} {repeat.status}{f': {repeat.reason}' if repeat.reason else ''}" for repeat in result.failed
    ]
    counted = result.counted
    for key, figure in result.figures.items():
        notes += [
            f"{counted[place].folder} stands out: {_NAMES[key]} {figure_text(key, figure.values[place])}"
            for place in figure.outliers
        ]
    if result.first_is_slow and not result.benchmark.warm_up:
        notes.append("the first run was slow, probably cold caches: --warm-up 1 excludes it")
    noted = dict.fromkeys(note for repeat in result.repeats for note in repeat.notes)
    return [*notes, *noted]

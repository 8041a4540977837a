"""Whether a benchmark has become worse than a baseline: by more than noise, and by more than a margin."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from pulsetrain.bench.results import FIGURES, BenchFigure, BenchmarkResult, Surroundings, load
from pulsetrain.bench.statistics import Statistics, difference_of, repeats_needed
from pulsetrain.errors import UsageError
from pulsetrain.insight.compare.significance import Difference

Verdict = Literal["better", "same", "worse", "cannot tell"]
EXIT_CODES: dict[str, int] = {"better": 0, "same": 0, "worse": 1, "cannot tell": 3}
DEFAULT_MARGIN = 0.03


class GateFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a benchmark against its baseline."""

    key: str
    name: str
    unit: str
    base: float
    value: float
    """The medians."""
    difference: Difference | None
    """None when there are too few runs for one."""
    verdict: Verdict
    reason: str = ""


class GatedBenchmark(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark against its baseline."""

    name: str
    baseline: str
    figures: list[GateFigure] = []
    verdict: Verdict
    reason: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def chosen(where: str) -> list[BenchmarkResult]:
    """`results/`, or `results/:NAME` for one of its benchmarks."""
    path, colon, name = where.rpartition(":")
    if not colon or Path(where).exists():
        path, name = where, ""
    found = load(Path(path)).benchmarks
    if not name:
        return found
    named = [result for result in found if result.name == name]
    if not named:
        raise UsageError(
            f"{path} has no benchmark {name!r}.", hint=f"It has {', '.join(result.name for result in found)}."
        )
    return named


def gate(
    baseline: Sequence[BenchmarkResult],
    current: Sequence[BenchmarkResult],
    *,
    margin: float = DEFAULT_MARGIN,
    only: Sequence[str] = (),
) -> list[GatedBenchmark]:
    """Each benchmark against that of the same name; one alone against one alone, whatever they are called."""
    if len(baseline) == len(current) == 1:
        return [_gated(baseline[0], current[0], margin, only)]
    bases = {result.name: result for result in baseline}
    found = [_gated(bases[one.name], one, margin, only) for one in current if one.name in bases]
    if not found:
        raise UsageError("the two results have no benchmark in common.")
    names = {one.name for one in current}
    found += [
        GatedBenchmark(name=name, baseline=name, verdict="cannot tell", reason="it is only in the baseline")
        for name in bases
        if name not in names
    ]
    return found


def exit_code(gated: Sequence[GatedBenchmark]) -> int:
    """1 when one is worse, else 3 when one is uncertain, else 0."""
    codes = {one.exit_code for one in gated}
    return next((code for code in (1, 3) if code in codes), 0)


def _gated(base: BenchmarkResult, current: BenchmarkResult, margin: float, only: Sequence[str]) -> GatedBenchmark:
    def ending(verdict: Verdict, reason: str = "", figures: list[GateFigure] | None = None) -> GatedBenchmark:
        return GatedBenchmark(
            name=current.name, baseline=base.name, figures=figures or [], verdict=verdict, reason=reason
        )

    if current.failed or not current.counted:
        failed = current.failed[0] if current.failed else None
        reason = f"{failed.folder} {failed.status}: {failed.reason}" if failed else "no run finished"
        return ending("worse", reason)
    if not base.counted:
        return ending("cannot tell", "no baseline run finished")
    if unlike := _unlike(base.surroundings, current.surroundings):
        return ending("cannot tell", f"the baseline ran on a different setup: {unlike}")
    figures = [
        _gate_figure(figure, base.figures[figure.key], current.figures[figure.key], margin, _better(figure, current))
        for figure in FIGURES
        if (figure.key in only if only else figure.gated)
        and figure.key in base.figures
        and figure.key in current.figures
    ]
    if not figures:
        return ending("cannot tell", "the two results have no figure in common")
    verdicts = {figure.verdict for figure in figures}
    worst = next(verdict for verdict in ("worse", "cannot tell", "better", "same") if verdict in verdicts)
    return ending(worst, figures=figures)


def _better(figure: BenchFigure, current: BenchmarkResult) -> str:
    return current.benchmark.score_better if figure.key == "score" else figure.better


def _gate_figure(figure: BenchFigure, base: Statistics, current: Statistics, margin: float, better: str) -> GateFigure:
    difference = difference_of(base.values, current.values)
    worsening = _worsening(difference, better) if difference else None
    verdict, reason = _judge(worsening, margin, base, current)
    return GateFigure(
        key=figure.key,
        name=figure.name,
        unit=figure.unit,
        base=base.median,
        value=current.median,
        difference=difference,
        verdict=verdict,
        reason=reason,
    )


def _judge(worsening: Difference | None, margin: float, base: Statistics, current: Statistics) -> tuple[Verdict, str]:
    if worsening is None:
        if base.lowest == base.highest == current.lowest == current.highest:
            return "same", ""
        return "cannot tell", "too few runs: at least four on each side are needed"
    if worsening.low > 0 and worsening.change > margin:
        return "worse", ""
    if worsening.high < 0 and worsening.change < -margin:
        return "better", ""
    if worsening.high > margin:
        noise = max(base.noise or 0.0, current.noise or 0.0)
        more = repeats_needed(noise, margin) if noise else 0
        hint = (
            f"; about {more} runs on each side would settle it"
            if more > min(len(base.values), len(current.values))
            else ""
        )
        return "cannot tell", f"it may be up to {100 * worsening.high:.1f} % worse{hint}"
    return "same", ""


def _worsening(difference: Difference, better: str) -> Difference:
    """The same change, counted so that more is worse: of a score that should be high, by what it must be multiplied."""
    if better != "higher":
        return difference
    return Difference(
        change=1 / (1 + difference.change) - 1,
        low=1 / (1 + difference.high) - 1,
        high=1 / (1 + difference.low) - 1 if difference.low > -1 else math.inf,
    )


def _unlike(base: Surroundings, current: Surroundings) -> str:
    """What keeps two results from being compared."""
    for name, before, after in (
        ("GPUs", base.gpus, current.gpus),
        ("CPU cores", base.cpu_cores, current.cpu_cores),
        ("power limits", base.power_limit_watts, current.power_limit_watts),
    ):
        if before != after:
            return f"{name} {_words(before)} in the baseline, {_words(after)} now"
    return ""


def _words(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)

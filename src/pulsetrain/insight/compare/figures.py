"""The figures of a comparison, declared once: how each is found, its unit, and whether more or less of it is better."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pulsetrain.catalog.time_classes import TIME_CLASSES
from pulsetrain.insight.compare.sides import MOST_OWN_METRICS, Side
from pulsetrain.insight.compare.significance import BootstrapSample, Difference, difference
from pulsetrain.insight.compare.speed import same_batches
from pulsetrain.insight.energy.figures import Energy
from pulsetrain.insight.metric_names import Better, better
from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.steps import StepFacts
from pulsetrain.insight.summary import mean
from pulsetrain.units import JOULES_PER_KWH

STEADY = "steady steps"
"""The section of figures that leave out the warm-up and steps with a phase inside."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of all runs. Lists have an entry for each run, in their order."""

    key: str
    name: str
    section: str
    unit: str
    better: Better = ""
    """Empty where neither more nor less is."""
    values: list[float | None]
    changes: list[float | None]
    """From the first run: 0.1 is 10 % more, or, of shares, 10 points more."""
    tests: list[Difference | None]
    """How certain the change is, where that is known."""
    shares: list[float | None] = []
    """Of the step time, for the parts of a step."""
    how: str = ""
    """Measured, estimated, simulated, assumed: where it is not plain."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """How a figure is found."""

    key: str
    name: str
    unit: str
    value: Callable[[Side], float | None]
    better: Better = ""
    share: Callable[[Side], float | None] | None = None
    drawn: Callable[[Side], BootstrapSample | None] | None = None
    error: Callable[[Side], float | None] | None = None
    """The part by which it may be off."""
    how: Callable[[Side], str] = lambda side: ""
    per_step: bool = False
    """Neither better nor worse when runs put different numbers of samples into a step."""


def figures(sides: Sequence[Side]) -> list[Figure]:
    """All figures that at least one run has."""
    steps = [side.steps for side in sides if side.steps]
    batches_differ = any(not same_batches(steps[0], other) for other in steps[1:])
    found = [
        _figure(section, row, sides, batches_differ)
        for section, rows in (*_sections(sides), ("energy", [*_carbon_rows(sides), *_cost_rows(sides)]))
        for row in rows
    ]
    return [figure for figure in found if any(value is not None for value in figure.values)]


def _sections(sides: Sequence[Side]) -> Iterator[tuple[str, list[_Row]]]:
    """What all ranks do together is added where a run has several; what the program logged comes after the steps."""
    trainings = [side.report.summary.training for side in sides]
    several_ranks = any(training.ranks > 1 for training in trainings if training)
    for section, rows in _SECTIONS.items():
        if section != STEADY:
            yield section, rows
            continue
        yield section, [*rows, *_OF_ALL_RANKS] if several_ranks else rows
        yield "logged by the program", list(_own_rows(sides))
        yield "time", list(_time_rows(sides))


def _time_rows(sides: Sequence[Side]) -> Iterator[_Row]:
    """The time ledgers beside each other: what the time of all ranks went into."""
    ledgers = [side.report.ledger for side in sides if side.report.ledger]
    yield _Row(
        key="goodput",
        name="goodput",
        unit="share",
        value=lambda side: side.report.ledger.goodput if side.report.ledger else None,
        better="higher",
    )
    for name, words in TIME_CLASSES.items():
        if any(name in ledger.classes for ledger in ledgers):
            yield _Row(
                key=f"time_{name}_seconds",
                name=words,
                unit="duration",
                value=_of_class(name, "seconds"),
                share=_of_class(name, "share"),
            )


def _of_class(name: str, figure: str) -> Callable[[Side], float | None]:
    def value(side: Side) -> float | None:
        ledger = side.report.ledger
        if ledger is None:
            return None
        return float(getattr(ledger.classes[name], figure)) if name in ledger.classes else 0.0

    return value


def _own_rows(sides: Sequence[Side]) -> Iterator[_Row]:
    """The last value of each name, and the best one where the name tells which that is."""
    names = dict.fromkeys(metric.name for side in sides for metric in side.report.own_metrics[:MOST_OWN_METRICS])
    for name in list(names)[:MOST_OWN_METRICS]:
        good = better(name)
        yield _Row(key=f"{name}_last", name=name, unit="number", value=_own(name, "last"), better=good)
        if good:
            yield _Row(key=f"{name}_best", name=f"{name}, best", unit="number", value=_own(name, "best"), better=good)


def _own(name: str, figure: str) -> Callable[[Side], float | None]:
    def value(side: Side) -> float | None:
        metric = next((metric for metric in side.report.own_metrics if metric.name == name), None)
        return getattr(metric, figure, None)

    return value


def _figure(section: str, row: _Row, sides: Sequence[Side], batches_differ: bool) -> Figure:
    values = [row.value(side) for side in sides]
    ways = [row.how(side) for side, value in zip(sides, values, strict=True) if value is not None]
    return Figure(
        key=row.key,
        name=row.name,
        section=section,
        unit=row.unit,
        better="" if row.per_step and batches_differ else row.better,
        values=values,
        changes=[None, *(_change(values[0], value, row.unit) for value in values[1:])],
        tests=[None, *(_test(row, sides[0], side) for side in sides[1:])],
        shares=[row.share(side) for side in sides] if row.share else [],
        how=" / ".join(dict.fromkeys(filter(None, ways))),
    )


def _change(base: float | None, value: float | None, unit: str) -> float | None:
    if base is None or value is None:
        return None
    if unit == "share":
        return value - base
    return value / base - 1 if base > 0 else None


def _test(row: _Row, base: Side, side: Side) -> Difference | None:
    if row.drawn:
        return difference(row.drawn(base), row.drawn(side))
    if row.error:
        return _bounded(row.value(base), row.error(base), row.value(side), row.error(side))
    return None


def _bounded(
    base: float | None, base_error: float | None, value: float | None, error: float | None
) -> Difference | None:
    """The change of a figure with an error bound; None when a bound is unknown, or as large as the figure."""
    if not base or value is None or base_error is None or error is None or base_error >= 1:
        return None
    ratio = value / base
    low, high = ratio * (1 - error) / (1 + base_error), ratio * (1 + error) / (1 - base_error)
    return Difference(change=ratio - 1, low=low - 1, high=high - 1)


def _of_steps(value: Callable[[StepFacts], float | None]) -> Callable[[Side], float | None]:
    return lambda side: value(side.steps) if side.steps else None


def _part(part: str) -> _Row:
    return _Row(
        key=f"{part}_seconds",
        name=STEP_PARTS[part],
        unit="seconds",
        value=_of_steps(lambda steps: steps.parts[part]),
        share=_of_steps(lambda steps: steps.share(part)),
        better="lower",
        per_step=True,
    )


def _busy(side: Side) -> float | None:
    percent = mean(gpu.utilization_percent_mean for gpu in side.report.summary.gpus)
    return None if percent is None else percent / 100


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _gpu_joules(side: Side) -> float | None:
    energy = side.report.energy.of_kind("gpu")
    return energy.joules if energy else None


def _energy_error(side: Side) -> float | None:
    total = side.report.energy.total
    return total.error_joules / total.joules if total and total.joules and total.error_joules is not None else None


def _how_gpu(side: Side) -> str:
    return "simulated" if side.simulated else ""


def _how_energy(side: Side) -> str:
    shares = side.report.energy.origin_shares
    words = ", ".join(f"{origin} {100 * share:.0f} %" if share < 1 else origin for origin, share in shares.items())
    return _how_obtained(side, side.report.energy.total, words)


def _how_gpu_energy(side: Side) -> str:
    energy = side.report.energy.of_kind("gpu")
    return _how_obtained(side, energy, energy.origin if energy else "")


def _how_obtained(side: Side, energy: Energy | None, origin: str) -> str:
    return f"{'simulated, ' if side.simulated else ''}{origin} ({energy.method})" if energy else ""


_SECTIONS: dict[str, list[_Row]] = {
    "run": [
        _Row(key="seconds", name="length", unit="duration", value=lambda side: side.report.seconds),
        _Row(key="steps", name="steps", unit="count", value=_of_steps(lambda steps: steps.total)),
    ],
    STEADY: [
        _Row(
            key="step_seconds_p50",
            name="step time, median",
            unit="seconds",
            value=_of_steps(lambda steps: steps.quantile(0.5)),
            drawn=lambda side: side.typical,
            better="lower",
            per_step=True,
        ),
        _Row(
            key="step_seconds_p95",
            name="step time, 95th percentile",
            unit="seconds",
            value=_of_steps(lambda steps: steps.quantile(0.95)),
            drawn=lambda side: side.slow,
            better="lower",
            per_step=True,
        ),
        _Row(
            key="step_seconds_mean",
            name="step time, mean",
            unit="seconds",
            value=_of_steps(lambda steps: steps.mean_seconds),
            drawn=lambda side: side.average,
            better="lower",
            per_step=True,
        ),
        *(_part(part) for part in STEP_PARTS),
        _Row(
            key="samples_per_step",
            name="samples per step",
            unit="count",
            value=_of_steps(lambda steps: steps.samples_per_step),
        ),
        _Row(
            key="sample_seconds_p50",
            name="time per sample, median",
            unit="seconds",
            value=_of_steps(lambda steps: steps.sample_seconds_p50),
            drawn=lambda side: side.typical_sample,
            better="lower",
        ),
        _Row(
            key="samples_per_second",
            name="samples per second",
            unit="rate",
            value=_of_steps(lambda steps: steps.samples_per_second),
            better="higher",
        ),
        _Row(
            key="tokens_per_second",
            name="tokens per second",
            unit="rate",
            value=_of_steps(lambda steps: steps.tokens_per_second),
            better="higher",
        ),
        _Row(
            key="mfu_ratio",
            name="peak FLOPs used (MFU)",
            unit="share",
            value=_of_steps(lambda steps: steps.mfu_ratio),
            better="higher",
            how=lambda side: "estimated",
        ),
        _Row(
            key="loss_last",
            name="last loss",
            unit="number",
            value=lambda side: side.report.summary.training.loss_last if side.report.summary.training else None,
        ),
    ],
    "GPUs": [
        _Row(key="gpu_busy_share", name="utilization", unit="share", value=_busy, better="higher", how=_how_gpu),
        _Row(
            key="gpu_busy_training_share",
            name="utilization while training",
            unit="share",
            value=lambda side: side.facts.machine.gpu_busy_share if side.steps else None,
            better="higher",
            how=_how_gpu,
        ),
        _Row(
            key="gpu_memory_mb_peak",
            name="memory peak",
            unit="MiB",
            value=lambda side: max(
                (gpu.memory_mb_peak for gpu in side.report.summary.gpus if gpu.memory_mb_peak is not None), default=None
            ),
            how=_how_gpu,
        ),
        _Row(
            key="gpu_watts",
            name="power, all GPUs",
            unit="W",
            value=lambda side: _sum(gpu.power_watts_mean for gpu in side.report.summary.gpus),
            how=_how_gpu,
        ),
        _Row(
            key="gpu_clock_hertz",
            name="clock",
            unit="Hz",
            value=lambda side: side.facts.machine.clock_hertz,
            how=_how_gpu,
        ),
        _Row(
            key="gpu_throttled_share",
            name="throttled",
            unit="share",
            value=lambda side: side.report.summary.throttled_share,
            better="lower",
            how=_how_gpu,
        ),
    ],
    "host": [
        _Row(
            key="job_cpu_cores",
            name="cores used by the job",
            unit="cores",
            value=lambda side: side.facts.machine.job_cores,
        ),
        _Row(key="cpu_share", name="CPU utilization", unit="share", value=lambda side: side.facts.machine.cpu_share),
        _Row(
            key="cpu_iowait_share",
            name="CPU waiting for I/O",
            unit="share",
            value=lambda side: side.facts.machine.iowait_share,
            better="lower",
        ),
    ],
    "energy": [
        _Row(key="gpu_joules", name="GPU energy", unit="J", value=_gpu_joules, how=_how_gpu_energy),
        *(
            _Row(
                key=f"joules_per_{thing}",
                name=f"energy per {thing}",
                unit="J",
                value=value,
                better="lower",
                error=_energy_error,
                how=_how_energy,
                per_step=thing == "step",
            )
            for thing, value in (
                ("step", lambda side: side.report.energy.joules_per_step),
                ("sample", lambda side: side.report.energy.joules_per_sample),
                ("token", lambda side: side.report.energy.joules_per_token),
            )
        ),
    ],
}


_OF_ALL_RANKS = [
    _Row(
        key=f"all_ranks_{thing}_per_second",
        name=f"{thing} per second, all ranks",
        unit="rate",
        value=value,
        better="higher",
    )
    for thing, value in (
        ("samples", _of_steps(lambda steps: steps.totals.samples_per_second)),
        ("tokens", _of_steps(lambda steps: steps.totals.tokens_per_second)),
    )
]


def _carbon_rows(sides: Sequence[Side]) -> list[_Row]:
    """A row for each kind of accounting: they must not be compared with each other."""
    kinds = dict.fromkeys(side.report.carbon.accounting for side in sides if side.report.carbon)

    def row(kind: str) -> _Row:
        def grams(side: Side) -> float | None:
            carbon, joules = side.report.carbon, side.report.energy.joules_per_sample
            if carbon is None or carbon.accounting != kind or joules is None:
                return None
            return 1000 * joules / JOULES_PER_KWH * carbon.grams_per_kwh

        return _Row(
            key=f"grams_per_1000_samples_{kind}",
            name=f"carbon per 1000 samples, {kind}",
            unit="g",
            value=grams,
            better="lower",
            error=_energy_error,
            how=lambda side: f"{side.report.carbon.region}, {side.report.carbon.quality}" if side.report.carbon else "",
        )

    return [row(kind) for kind in kinds]


def _cost_rows(sides: Sequence[Side]) -> list[_Row]:
    """A row for each currency."""
    currencies = dict.fromkeys(side.report.cost.currency for side in sides if side.report.cost)

    def row(currency: str) -> _Row:
        def cost(side: Side) -> float | None:
            found = side.report.cost
            if found is None or found.currency != currency or found.per_sample is None:
                return None
            return 1000 * found.per_sample

        return _Row(
            key=f"cost_per_1000_samples_{currency}".rstrip("_"),
            name="cost per 1000 samples, with start-up",
            unit=f"money {currency}".rstrip(),
            value=cost,
            better="lower",
            how=lambda side: side.report.cost.basis if side.report.cost else "",
        )

    return [row(currency) for currency in currencies]

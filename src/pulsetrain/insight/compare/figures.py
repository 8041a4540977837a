"""The figures of a comparison, declared once: how each is found, its unit, and whether more or less of it is better."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from pulsetrain.insight.compare.sides import PARTS, Side, Steps
from pulsetrain.insight.compare.significance import Difference, Drawn, difference
from pulsetrain.insight.compare.speed import same_batches
from pulsetrain.insight.energy.figures import Energy

JOULES_PER_KWH = 3.6e6

Better = Literal["lower", "higher", ""]


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
    """How sure the change is, where that can be told."""
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
    drawn: Callable[[Steps], Drawn | None] | None = None
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
        for section, rows in (*_SECTIONS.items(), ("energy", [*_carbon_rows(sides), *_cost_rows(sides)]))
        for row in rows
    ]
    return [figure for figure in found if any(value is not None for value in figure.values)]


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
    if row.drawn and base.steps and side.steps:
        return difference(row.drawn(base.steps), row.drawn(side.steps))
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


def _of_steps(value: Callable[[Steps], float | None]) -> Callable[[Side], float | None]:
    return lambda side: value(side.steps) if side.steps else None


def _part(part: str) -> _Row:
    return _Row(
        key=f"{part}_seconds",
        name=PARTS[part],
        unit="seconds",
        value=_of_steps(lambda steps: steps.parts[part]),
        share=_of_steps(lambda steps: steps.share(part)),
        better="lower",
        per_step=True,
    )


def _busy(side: Side) -> float | None:
    known = [g.utilization_percent_mean for g in side.report.summary.gpus if g.utilization_percent_mean is not None]
    return sum(known) / len(known) / 100 if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _gpu_energies(side: Side) -> list[Energy]:
    devices = side.report.energy.devices
    return [device.total for device in devices if device.device == "gpu" and device.charged and device.total]


def _gpu_joules(side: Side) -> float | None:
    return _sum(energy.joules for energy in _gpu_energies(side))


def _energy_error(side: Side) -> float | None:
    total = side.report.energy.total
    return total.error_joules / total.joules if total and total.joules and total.error_joules is not None else None


def _how_gpu(side: Side) -> str:
    return "simulated" if side.simulated else ""


def _how_energy(side: Side) -> str:
    return _origin(side, side.report.energy.total)


def _how_gpu_energy(side: Side) -> str:
    return ", ".join(dict.fromkeys(_origin(side, energy) for energy in _gpu_energies(side)))


def _origin(side: Side, energy: Energy | None) -> str:
    if energy is None:
        return ""
    return f"{'simulated, ' if side.simulated else ''}{energy.origin} ({energy.method})"


_SECTIONS: dict[str, list[_Row]] = {
    "run": [
        _Row(key="seconds", name="length", unit="duration", value=lambda side: side.seconds),
        _Row(key="steps", name="steps", unit="count", value=_of_steps(lambda steps: steps.count + steps.warm_up)),
    ],
    "steps after warm-up": [
        _Row(
            key="step_seconds_p50",
            name="time of a step, median",
            unit="seconds",
            value=_of_steps(lambda steps: steps.quantile(0.5)),
            drawn=lambda steps: steps.typical,
            better="lower",
            per_step=True,
        ),
        _Row(
            key="step_seconds_p95",
            name="time of a step, 95th percentile",
            unit="seconds",
            value=_of_steps(lambda steps: steps.quantile(0.95)),
            drawn=lambda steps: steps.slow,
            better="lower",
            per_step=True,
        ),
        _Row(
            key="step_seconds_mean",
            name="time of a step, mean",
            unit="seconds",
            value=_of_steps(lambda steps: steps.mean_seconds),
            drawn=lambda steps: steps.average,
            better="lower",
            per_step=True,
        ),
        *(_part(part) for part in PARTS),
        _Row(
            key="samples_per_step",
            name="samples in a step",
            unit="count",
            value=_of_steps(lambda steps: steps.samples_per_step),
        ),
        _Row(
            key="sample_seconds_p50",
            name="time of a sample, median",
            unit="seconds",
            value=_of_steps(lambda steps: steps.sample_seconds_p50),
            drawn=lambda steps: steps.typical_sample,
            better="lower",
        ),
        _Row(
            key="samples_per_second",
            name="samples per second",
            unit="rate",
            value=_of_steps(lambda steps: steps.per_second(steps.samples)),
            better="higher",
        ),
        _Row(
            key="tokens_per_second",
            name="tokens per second",
            unit="rate",
            value=_of_steps(lambda steps: steps.per_second(steps.tokens)),
            better="higher",
        ),
        _Row(
            key="mfu_ratio",
            name="of the peak FLOPs (MFU)",
            unit="share",
            value=lambda side: side.report.summary.training.mfu_ratio if side.report.summary.training else None,
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
        _Row(key="gpu_busy_share", name="busy", unit="share", value=_busy, better="higher", how=_how_gpu),
        _Row(
            key="gpu_busy_training_share",
            name="busy while training",
            unit="share",
            value=lambda side: side.machine.gpu_busy_share if side.steps else None,
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
        _Row(key="gpu_clock_hertz", name="clock", unit="Hz", value=lambda side: side.machine.clock_hertz, how=_how_gpu),
        _Row(
            key="gpu_throttled_share",
            name="throttled",
            unit="share",
            value=lambda side: side.throttled_share,
            better="lower",
            how=_how_gpu,
        ),
    ],
    "host": [
        _Row(
            key="job_cpu_cores", name="cores used by the job", unit="cores", value=lambda side: side.machine.job_cores
        ),
        _Row(key="cpu_share", name="CPU busy", unit="share", value=lambda side: side.machine.cpu_share),
        _Row(
            key="cpu_iowait_share",
            name="CPU waiting for I/O",
            unit="share",
            value=lambda side: side.machine.iowait_share,
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

"""Runs side by side: their figures, the differences from the first run, which of them are real, and why.

Figures of steps leave the warm-up out, so that a short run can stand beside a long one.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pulsetrain.insight.compare.causes import OTHERS, Explanation, explain
from pulsetrain.insight.compare.figures import Figure, figures
from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.speed import Speed, same_batches, speed
from pulsetrain.insight.compare.words import listed

SMALL = 0.2
"""A difference that another state of the same machine could bring about."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a comparison."""

    label: str
    """What the comparison calls it."""
    id: str
    name: str
    path: str
    status: str
    exit_code: int | None
    seconds: float
    gpus: str
    hosts: list[str]
    simulated: bool
    steps: int
    warm_up_steps: int
    """Of those, left out of all figures of steps."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs against the first of them."""

    runs: list[Compared]
    speeds: list[Speed]
    """One for each run but the first."""
    verdicts: list[str]
    """The same in words."""
    explanations: list[Explanation]
    figures: list[Figure]
    notes: list[str]
    """What makes the runs differ in kind, or doubtful."""


def compare(sides: Sequence[Side]) -> Comparison:
    """Compare the runs with the first of them."""
    base, others = sides[0], sides[1:]
    speeds = [speed(base, other) for other in others]
    return Comparison(
        runs=[_compared(side) for side in sides],
        speeds=speeds,
        verdicts=[found.sentence() for found in speeds],
        explanations=[explain(base, other, found) for other, found in zip(others, speeds, strict=True)],
        figures=figures(sides),
        notes=list(dict.fromkeys((*_notes(sides), *_caution(speeds)))),
    )


def _compared(side: Side) -> Compared:
    report, steps = side.report, side.steps
    return Compared(
        label=side.label,
        id=report.run.id,
        name=report.run.name,
        path=report.path,
        status=report.run.status,
        exit_code=report.run.exit_code,
        seconds=side.seconds,
        gpus=side.gpu_names,
        hosts=sorted(report.run.hosts),
        simulated=side.simulated,
        steps=steps.count + steps.warm_up if steps else 0,
        warm_up_steps=steps.warm_up if steps else 0,
    )


def _notes(sides: Sequence[Side]) -> Iterator[str]:
    """What a reader should know before believing a difference."""
    folders = [Path(side.report.path).resolve() for side in sides]
    for number, side in enumerate(sides):
        if folders[number] in folders[:number]:
            yield f"{side.label} is a run that stands here already: it is compared with itself."
    if simulated := [side.label for side in sides if side.simulated]:
        yield f"The GPUs of {listed(simulated)} are simulated: their figures say nothing about the program."
    yield from (note for side in sides for note in _doubts(side))
    yield from _differ("The GPUs differ", {side.label: side.gpu_names for side in sides})
    yield from _differ("The machines differ", {side.label: ", ".join(sorted(side.report.run.hosts)) for side in sides})
    yield from _differ(
        "The numbers of training processes differ, and figures of steps are those of one",
        {side.label: str(side.report.summary.training.ranks) for side in sides if side.report.summary.training},
    )
    yield from _batches(sides)
    yield from _accounts(sides)


def _caution(speeds: Sequence[Speed]) -> Iterator[str]:
    if any(found.deciding and abs(found.deciding.change) < SMALL for found in speeds):
        yield (
            "Runs of one and the same program differ too, by the state of the machine: "
            "repeat them before you believe a small difference."
        )


def _doubts(side: Side) -> Iterator[str]:
    """What is odd about one run."""
    run, report = side.report.run, side.report
    match run.status:
        case "running":
            yield f"{side.label} still runs: its figures are those so far."
        case "failed":
            yield f"{side.label} ended with exit code {run.exit_code}."
        case "interrupted" | "died":
            yield f"{side.label} was cut off before its end."
    if side.steps is None:
        yield f"{side.label} has no training steps: only figures of the machine can be compared."
    if report.damaged_lines:
        yield f"{report.damaged_lines} lines of {side.label} could not be read and are left out."
    if run.lost_samples:
        yield f"{run.lost_samples} readings of {side.label} could not be written."
    others, cores = side.others_cores, report.summary.cpu_cores
    if others is not None and cores and others > OTHERS * cores:
        yield f"Other programs kept {others:.1f} of {cores:.0f} cores busy while {side.label} ran."
    lost = sum(gpu.lost_samples for gpu in report.summary.gpus)
    if lost:
        yield f"A GPU of {side.label} did not answer at {lost} readings."
    yield from report.energy.also_counted_in


def _batches(sides: Sequence[Side]) -> Iterator[str]:
    known = {side.label: side.steps for side in sides if side.steps and side.steps.samples_per_step}
    first = next(iter(known.values()), None)
    if first and not all(same_batches(first, steps) for steps in known.values()):
        sizes = ", ".join(f"{label} {steps.samples_per_step:,.4g}" for label, steps in known.items())
        yield f"The samples in a step differ ({sizes}): compare by samples, not by steps."


def _accounts(sides: Sequence[Side]) -> Iterator[str]:
    """Energy, carbon and cost that were not counted in the same way."""
    energies = {side.label: side.report.energy for side in sides}
    yield from _differ(
        "Energy counts different devices",
        {
            label: " + ".join(sorted({d.device for d in energy.devices if d.charged and d.total})) or "none"
            for label, energy in energies.items()
        },
    )
    yield from _differ("PUE differs", {label: f"{energy.pue:g}" for label, energy in energies.items()})
    carbons = {side.label: side.report.carbon for side in sides}
    yield from _differ(
        "Carbon is that of different places or times",
        {label: f"{carbon.region}, {carbon.grams_per_kwh:.0f} g/kWh" for label, carbon in carbons.items() if carbon},
    )
    yield from _differ("Prices differ", {side.label: side.report.cost.basis for side in sides if side.report.cost})


def _differ(what: str, values: Mapping[str, str]) -> Iterator[str]:
    """A note, when the runs do not all have the same."""
    if len(set(values.values())) > 1:
        yield f"{what}: {'; '.join(f'{label} {value}' for label, value in values.items())}."

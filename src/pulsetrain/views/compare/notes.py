"""What a reader should know before believing a difference between runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pulsetrain.insight.compare import Comparison
from pulsetrain.insight.compare.sides import Side
from pulsetrain.insight.compare.speed import Speed, same_batches
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.views.text import listed

SMALL = 0.2
"""A difference that another state of the same machine could bring about."""


def notes(comparison: Comparison) -> list[str]:
    """What makes the runs differ in kind, or doubtful."""
    return list(dict.fromkeys((*_of_runs(comparison.sides, comparison.thresholds), *_caution(comparison.speeds))))


def gpus_text(side: Side) -> str:
    """`2x L4`, or `none`."""
    return ", ".join(f"{count}x {name}" for name, count in side.report.summary.gpu_counts.items()) or "none"


def _of_runs(sides: Sequence[Side], limits: Thresholds) -> Iterator[str]:
    folders = [Path(side.report.path).resolve() for side in sides]
    for number, side in enumerate(sides):
        if folders[number] in folders[:number]:
            yield f"{side.label} is listed twice: it is compared with itself."
    if simulated := [side.label for side in sides if side.simulated]:
        yield f"The GPUs of {listed(simulated)} are simulated: their figures say nothing about the program."
    yield from (note for side in sides for note in _doubts(side, limits))
    yield from _differ("The GPUs differ", {side.label: gpus_text(side) for side in sides})
    yield from _differ("The machines differ", {side.label: ", ".join(sorted(side.report.run.hosts)) for side in sides})
    yield from _differ(
        "The numbers of training processes differ, and figures of steps are those of one",
        {side.label: str(side.report.summary.training.ranks) for side in sides if side.report.summary.training},
    )
    yield from _batches(sides)
    yield from _counted_differently(sides)


def _caution(speeds: Sequence[Speed]) -> Iterator[str]:
    if any(found.deciding and abs(found.deciding.change) < SMALL for found in speeds):
        yield (
            "Runs of the same program also differ with the state of the machine: "
            "repeat them before you trust a small difference."
        )


def _doubts(side: Side, limits: Thresholds) -> Iterator[str]:
    """What is odd about one run."""
    run, report = side.report.run, side.report
    match run.status:
        case "running":
            yield f"{side.label} is still running: its figures are those so far."
        case "failed":
            yield f"{side.label} ended with exit code {run.exit_code}."
        case "interrupted" | "died":
            yield f"{side.label} was cut off before its end."
        case "detached":
            yield f"{side.label} was watched for only part of its time: its process was still running."
    if side.steps is None:
        yield f"{side.label} has no training steps: only figures of the machine can be compared."
    if report.damaged_lines:
        yield f"{report.damaged_lines} lines of {side.label} could not be read and were skipped."
    if run.lost_samples:
        yield f"{run.lost_samples} readings of {side.label} could not be written."
    others, cores = side.facts.machine.others_cores, side.facts.machine.cpu_cores
    if others is not None and cores and others > limits.other_programs_ratio * cores:
        yield f"Other programs used {others:.1f} of {cores:.0f} cores while {side.label} ran."
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


def _counted_differently(sides: Sequence[Side]) -> Iterator[str]:
    """Energy, carbon and cost that were not counted in the same way."""
    energies = {side.label: side.report.energy for side in sides}
    yield from _differ(
        "Energy counts different devices",
        {label: " + ".join(sorted(energy.kinds)) or "none" for label, energy in energies.items()},
    )
    yield from _differ("PUE differs", {label: f"{energy.pue:g}" for label, energy in energies.items()})
    carbons = {side.label: side.report.carbon for side in sides}
    yield from _differ(
        "Carbon is for different places or times",
        {label: f"{carbon.region}, {carbon.grams_per_kwh:.0f} g/kWh" for label, carbon in carbons.items() if carbon},
    )
    yield from _differ("Prices differ", {side.label: side.report.cost.basis for side in sides if side.report.cost})


def _differ(what: str, values: Mapping[str, str]) -> Iterator[str]:
    """A note, when the runs do not all have the same."""
    if len(set(values.values())) > 1:
        yield f"{what}: {'; '.join(f'{label} {value}' for label, value in values.items())}."

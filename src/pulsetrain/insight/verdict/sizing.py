"""Whether the run would fit a larger batch, another machine or a slice of its GPU, by what was measured."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from pulsetrain.insight.prices import ListedPrice, load_prices
from pulsetrain.insight.verdict.case import Case
from pulsetrain.rules.text import share_text

USABLE = 0.9
"""Share of a resource that may be planned for."""
WORTH_A_HINT = 1.5
"""A batch must have room to grow by this, a machine be cheaper by this."""
MIB_PER_GIB = 1024


class MachineSpec(NamedTuple):
    """What is in a machine of the price list."""

    gpus: int
    gpu_gib: float
    gpu_tflops: float
    """Dense, in BF16, or FP16 where there is none."""
    cores: int
    gib: float


MACHINES = {
    "g2-standard-4": MachineSpec(1, 24, 121, 4, 16),
    "a2-highgpu-1g": MachineSpec(1, 40, 312, 12, 85),
    "a2-ultragpu-1g": MachineSpec(1, 80, 312, 12, 170),
    "a3-highgpu-1g": MachineSpec(1, 80, 989, 26, 234),
    "a3-highgpu-8g": MachineSpec(8, 80, 989, 208, 1872),
    "n1-standard-4+T4": MachineSpec(1, 16, 65, 4, 15),
    "n1-standard-8+V100": MachineSpec(1, 16, 125, 8, 30),
    "n1-standard-8+P100": MachineSpec(1, 16, 19, 8, 30),
}
"""Those of the shipped list."""
SLICES = (("1g", 1 / 7, 1 / 8), ("2g", 2 / 7, 2 / 8), ("3g", 3 / 7, 4 / 8))
"""MIG profiles of A100, H100 and H200: shares of the multiprocessors and of the memory."""
MIG_BOARDS = ("A100", "H100", "H200")


def sizing(case: Case) -> Iterator[str]:
    """A sentence for each hint. None where it is not measured whether the run would fit."""
    if case.steps is None:
        return
    if case.gpus and case.facts.machine.on_gpu is not False:
        yield from _larger_batch(case)
        yield from _smaller_machine(case)
        yield from _slice(case)
    yield from _more_cores(case)


def _larger_batch(case: Case) -> Iterator[str]:
    peak = _memory_percent(case)
    if peak and 100 * USABLE / peak >= WORTH_A_HINT:
        room = 100 * USABLE / peak
        yield f"GPU memory peaked at {peak:.0f} %: batches up to about {room:.2g} times as large would fit."


def _smaller_machine(case: Case) -> Iterator[str]:
    prices = load_prices()
    now = prices.get((case.run.account.price or "").strip().lower())
    spec, busy, memory = MACHINES.get(now.machine) if now else None, case.gpu_busy_share, _memory_percent(case)
    if now is None or spec is None or busy is None or memory is None:
        return
    cheaper = [
        entry
        for entry in prices.values()
        if (entry.region, entry.spot, entry.currency) == (now.region, now.spot, now.currency)
        and entry.per_hour * WORTH_A_HINT < now.per_hour
        and (other := MACHINES.get(entry.machine))
        and _fits(case, spec, other, busy, memory)
    ]
    if cheaper:
        best = min(cheaper, key=lambda entry: entry.per_hour)
        cost = share_text(best.per_hour / now.per_hour)
        yield f"It would fit a {best.machine} at {cost} of the cost{_why(busy, memory, now)}."


def _why(busy: float, memory: float, now: ListedPrice) -> str:
    return f": the GPU of the {now.machine} was busy {share_text(busy)} of the time, with {memory:.0f} % of its memory"


def _fits(case: Case, spec: MachineSpec, other: MachineSpec, busy: float, memory_percent: float) -> bool:
    summary, machine = case.summary, case.facts.machine
    compute = busy * spec.gpus * spec.gpu_tflops <= USABLE * other.gpus * other.gpu_tflops
    memory = memory_percent / 100 * spec.gpu_gib <= USABLE * other.gpu_gib and other.gpus >= len(case.gpus)
    cores = (machine.job_cores or 0.0) <= USABLE * other.cores
    return compute and memory and cores and (summary.job_memory_bytes_peak or 0.0) <= USABLE * other.gib * 2**30


def _slice(case: Case) -> Iterator[str]:
    busy, memory = case.gpu_busy_share, _memory_percent(case)
    if busy is None or memory is None or not all(any(b in gpu.name for b in MIG_BOARDS) for gpu in case.gpus):
        return
    for name, compute, share in SLICES:
        if busy <= USABLE * compute and memory / 100 <= USABLE * share:
            part, used = share_text(compute), share_text(busy)
            yield f"A MIG slice of {part} of the GPU ({name}) would do: it was busy {used} of the time."
            return


def _more_cores(case: Case) -> Iterator[str]:
    """Where loading needs all cores and is still too slow."""
    machine, limits, steps = case.facts.machine, case.limits, case.steps
    wait = steps.share("data_wait") if steps else None
    cores, cpu = machine.cpu_cores, machine.cpu_share
    if wait is None or wait <= limits.data_wait_ratio or not cores or cpu is None or cpu <= limits.cpu_saturated_ratio:
        return
    if (machine.others_cores or 0.0) > limits.other_programs_ratio * cores or not case.facts.devices.loading.workers:
        return
    needed = math.ceil(cores / max(0.1, 1 - wait))
    yield f"Loading data keeps all {cores:.0f} cores busy: about {needed} would keep up."


def _memory_percent(case: Case) -> float | None:
    peaks = [gpu.memory_percent_peak for gpu in case.gpus if gpu.memory_percent_peak is not None]
    return max(peaks, default=None)

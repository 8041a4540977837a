"""Why two runs differ, in sentences: where the time of a step went, and what the records say about the reason.

Each cause names the figures it rests on. What the records do not show is not claimed.
"""

from collections.abc import Callable, Iterator

import msgspec

from pulsetrain.insight.compare.sides import PARTS, Side, Steps
from pulsetrain.insight.compare.significance import RELEVANT
from pulsetrain.insight.compare.speed import Speed, same_batches
from pulsetrain.insight.compare.words import listed, percent, time_text

BUSY_POINTS = 0.10
"""GPUs whose busy time differs by less are used alike."""
MORE = 0.05
"""A share of the time that is larger by less than this is no cause."""
SATURATED = 0.90
"""Of all cores: more work would only wait for them."""
SHORT_STEP_SECONDS = 0.02
"""Below this, starting the kernels of a step from Python takes a good part of it on most machines."""
CONTEXT_MB = 100.0
"""A process that uses a GPU at all takes more of its memory than this."""
SAME_WORK = 0.15
OTHERS = 0.2
"""Of all cores: other programs that take more may well be in the way."""
_VERBS = {"data_wait": "waits for data", "other": "does something else (logging, checkpoints, validation)"}


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the records that can explain a difference."""

    kind: str
    share: float | None
    """Of the run's time (or of its GPUs): how much it can account for. None where nobody can say."""
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What sets a run apart from the first one."""

    run: str
    sentences: list[str]
    question: str = ""
    """What the causes answer; empty when there is nothing to ask."""
    causes: list[Cause] = []
    """The likeliest first."""


def explain(base: Side, other: Side, speed: Speed) -> Explanation:
    """Why the other run differs from the base, when it does."""
    sentences = []
    slower = None
    if speed.deciding and base.steps and other.steps:
        slower = other if speed.deciding.change > 0 else base
        if speed.average and speed.average.real:
            sentences.append(_decomposition(other.label, base.steps, other.steps, speed.per))
    busier, idler = sorted((base, other), key=lambda side: -(side.machine.gpu_busy_share or 0.0))
    if _used_differently(busier, idler):
        sentences += _use_of_gpus(busier, idler)
        question = f"Why the GPU of {idler.label} is less busy"
    elif slower:
        busier, idler = (base, other) if slower is other else (other, base)
        question = f"What holds {idler.label} back"
    else:
        return Explanation(run=other.label, sentences=sentences)
    found = sorted(
        (cause for judge in _JUDGES for cause in judge(idler, busier)), key=lambda cause: -(cause.share or 0)
    )
    if not found:
        sentences.append(f"The records do not show {question[0].lower()}{question[1:]}.")
    return Explanation(run=other.label, sentences=sentences, question=question if found else "", causes=found)


def _decomposition(label: str, before: Steps, after: Steps, per: str) -> str:
    """How much longer a step, or a sample, takes on average, and in which parts."""
    old, new = (1.0, 1.0) if per == "step" else (before.samples_per_step or 1.0, after.samples_per_step or 1.0)
    first, second = before.mean_seconds / old, after.mean_seconds / new
    longer = second > first
    text = f"On average a {per} of {label} takes {time_text(abs(second - first))} {'more' if longer else 'less'}"
    text += f" ({time_text(first)} -> {time_text(second)})"
    changes = {
        PARTS[part]: now / new - then / old
        for part in PARTS
        if (then := before.parts[part]) is not None and (now := after.parts[part]) is not None
    }
    if not changes:
        return f"{text}; its parts were not recorded in both runs."
    large = sorted(
        (part for part, change in changes.items() if abs(change) > MORE * abs(second - first)),
        key=lambda part: -abs(changes[part]),
    )
    along = [f"{time_text(abs(changes[part]))} {part}" for part in large if (changes[part] > 0) == longer]
    against = [
        f"{time_text(abs(changes[part]))} {'less' if longer else 'more'} {part}"
        for part in large
        if (changes[part] > 0) != longer
    ]
    pieces = (f"of these {listed(along)}" if along else "", f"but {listed(against)}" if against else "")
    return f"{text}: {'; '.join(filter(None, pieces))}."


def _used_differently(busier: Side, idler: Side) -> bool:
    """Simulated GPUs are busy by a timetable of their own: nothing of the program explains it."""
    gap = _minus(busier.machine.gpu_busy_share, idler.machine.gpu_busy_share)
    return gap is not None and gap >= BUSY_POINTS and not (busier.simulated or idler.simulated)


def _use_of_gpus(busier: Side, idler: Side) -> Iterator[str]:
    high, low = busier.machine.gpu_busy_share, idler.machine.gpu_busy_share
    assert high is not None and low is not None
    when = "while training" if busier.steps and idler.steps else "on average"
    yield (
        f"The GPUs of {busier.label} were busy {percent(high)} of the time {when}, "
        f"those of {idler.label} {percent(low)}."
    )
    more, less = _kernel_seconds_per_sample(busier), _kernel_seconds_per_sample(idler)
    if not more or not less:
        return
    text = f"For a sample, kernels ran {time_text(more)} in {busier.label} and {time_text(less)} in {idler.label}"
    if abs(less / more - 1) < SAME_WORK:
        yield f"{text}: the work is about the same, the waiting differs."
    else:
        yield f"{text}: not only the waiting differs, but also what the GPU does (model, precision, size of batches)."


def _kernel_seconds_per_sample(side: Side) -> float | None:
    """Time in which a kernel ran, by the samples of that time. Only where each process has one GPU."""
    training, steps, busy = side.report.summary.training, side.steps, side.machine.gpu_busy_share
    if training is None or steps is None or busy is None or len(side.report.summary.gpus) != training.ranks:
        return None
    return busy * (steps.ended - steps.began) / training.samples if training.samples else None


def _no_gpu(side: Side, other: Side) -> Iterator[Cause]:
    machine = side.machine
    rise, busy = machine.gpu_memory_rise_mb, machine.gpu_busy_share
    if side.simulated or machine.on_gpu is not False or rise is None or busy is None:
        return
    if rise < CONTEXT_MB and busy < MORE:
        yield Cause(
            kind="gpu_not_used",
            share=1.0,
            text=f"No process of {side.label} was seen on a GPU, and GPU memory in use rose by {rise:.0f} MiB at most: "
            "it seems to work on the CPU.",
        )


def _idle_gpus(side: Side, other: Side) -> Iterator[Cause]:
    idle, count = side.machine.gpus_idle, len(side.report.summary.gpus)
    if not side.simulated and 0 < idle < count:
        were = "were" if idle > 1 else "was"
        yield Cause(
            kind="idle_gpus",
            share=idle / count,
            text=f"{idle} of the {count} GPUs of {side.label} {were} busy less than 2 % of the time.",
        )


def _data(side: Side, other: Side) -> Iterator[Cause]:
    if (share := _larger_share("data_wait", side, other)) is None:
        return
    machine, cores = side.machine, side.report.summary.cpu_cores
    text = _of_its_steps("data_wait", side, other, share)
    if machine.iowait_share is not None and machine.iowait_share > MORE:
        text += (
            f" The CPUs waited for I/O {percent(machine.iowait_share)} of the time: look at the disk or the network."
        )
    elif machine.cpu_share is not None and machine.cpu_share > SATURATED and cores:
        text += (
            f" All {cores:.0f} cores were busy ({percent(machine.cpu_share)}): more loading processes need more cores."
        )
    elif machine.job_cores is not None and cores and machine.job_cores < 0.5 * cores:
        text += (
            f" Its processes kept {machine.job_cores:.1f} of {cores:.0f} cores busy: "
            "more loading processes (num_workers) may help."
        )
    yield Cause(kind="data_wait", share=share, text=text)


def _other_work(side: Side, other: Side) -> Iterator[Cause]:
    if (share := _larger_share("other", side, other)) is not None:
        yield Cause(kind="other", share=share, text=_of_its_steps("other", side, other, share))


def _outside_steps(side: Side, other: Side) -> Iterator[Cause]:
    """Validation and checkpoints between steps, where the loop does not count them as part of one."""
    here, there = _outside(side), _outside(other)
    if here is not None and here - (there or 0.0) > MORE:
        seconds = side.steps.ended - side.steps.began if side.steps else 0.0
        yield Cause(
            kind="outside_steps",
            share=here,
            text=f"From its first step to its last, {side.label} spent {time_text(here * seconds)} of "
            f"{time_text(seconds)} outside of steps{_beside(other, there)}.",
        )


def _throttling(side: Side, other: Side) -> Iterator[Cause]:
    here, there = side.throttled_share, other.throttled_share
    if here is None or here - (there or 0.0) <= MORE or side.simulated:
        return
    text = f"Power or heat held the clocks of {side.label} down {percent(here)} of the time{_beside(other, there)}"
    slow, fast = side.machine.clock_hertz, other.machine.clock_hertz
    lost = None
    if slow and fast and slow < fast and side.gpu_names == other.gpu_names:
        text += f", to {slow / 1e6:,.0f} MHz on average (against {fast / 1e6:,.0f} MHz)"
        lost = 1 - slow / fast
    yield Cause(kind="throttled", share=lost, text=f"{text}.")


def _small_batches(side: Side, other: Side) -> Iterator[Cause]:
    if not side.steps or not other.steps:
        return
    here, there = side.steps.samples_per_step, other.steps.samples_per_step
    if here and there and here < 0.8 * there:
        yield Cause(
            kind="small_batches",
            share=None,
            text=f"A step of {side.label} has {here:,.0f} samples ({other.label}: {there:,.0f}): what a step costs "
            "whatever its size weighs more on each sample.",
        )


def _host_bound(side: Side, other: Side) -> Iterator[Cause]:
    """Python that cannot give the GPU work fast enough: one core is full, others are free, nobody waits for data."""
    machine, steps, cores = side.machine, side.steps, side.report.summary.cpu_cores
    busiest, job = machine.busiest_process_cores, machine.job_cores
    if steps is None or busiest is None or job is None or not cores or cores < 2 or side.simulated:
        return
    waiting = steps.share("data_wait") or 0.0
    if 0.85 < busiest < 1.3 and job < 1.5 and waiting < 0.3 and steps.mean_seconds < SHORT_STEP_SECONDS:
        yield Cause(
            kind="host_bound",
            share=None,
            text=f"One process of {side.label} kept one core busy ({busiest:.2f} of {cores:.0f}) and a step takes only "
            f"{time_text(steps.mean_seconds)}: the host seems to set the pace, not the GPU. Larger batches, CUDA "
            "graphs or torch.compile give the GPU more to do for each call.",
        )


def _busy_machine(side: Side, other: Side) -> Iterator[Cause]:
    here, there, cores = side.others_cores, other.others_cores, side.report.summary.cpu_cores
    if here is not None and cores and here - (there or 0.0) > OTHERS * cores:
        beside = "" if there is None else f" ({other.label}: {there:.1f})"
        yield Cause(
            kind="busy_machine",
            share=None,
            text=f"Other programs kept {here:.1f} of {cores:.0f} cores busy while {side.label} trained{beside}.",
        )


def _slower_all_over(side: Side, other: Side) -> Iterator[Cause]:
    """Every part of a step is longer by about as much."""
    if not side.steps or not other.steps or not same_batches(side.steps, other.steps):
        return
    overall = side.steps.mean_seconds / other.steps.mean_seconds - 1
    longer = [
        here / there - 1
        for part in PARTS
        if (here := side.steps.parts[part]) is not None
        and (there := other.steps.parts[part]) is not None
        and there > MORE * other.steps.mean_seconds
    ]
    if overall > RELEVANT and len(longer) > 2 and min(longer) > 0.5 * overall and max(longer) < 1.5 * overall:
        yield Cause(
            kind="slower_all_over",
            share=None,
            text="All parts of a step take longer by about as much "
            f"({100 * min(longer):.0f} to {percent(max(longer))}): as with more work in each, lower clocks, or a "
            "machine that others use too.",
        )


_JUDGES: tuple[Callable[[Side, Side], Iterator[Cause]], ...] = (
    _no_gpu,
    _idle_gpus,
    _data,
    _other_work,
    _outside_steps,
    _throttling,
    _small_batches,
    _host_bound,
    _busy_machine,
    _slower_all_over,
)


def _larger_share(part: str, side: Side, other: Side) -> float | None:
    """The share of a part of the step time, where it is clearly larger than in the other run."""
    share = side.steps.share(part) if side.steps else None
    there = other.steps.share(part) if other.steps else None
    return share if share is not None and share - (there or 0.0) > MORE else None


def _of_its_steps(part: str, side: Side, other: Side, share: float) -> str:
    there = other.steps.share(part) if other.steps else None
    return f"{side.label} {_VERBS[part]} {percent(share)} of its step time{_beside(other, there)}."


def _beside(other: Side, share: float | None) -> str:
    return "" if share is None else f" ({other.label}: {percent(share)})"


def _outside(side: Side) -> float | None:
    """Share of the time between the first and the last step that lies in none."""
    steps = side.steps
    return steps.outside / (steps.ended - steps.began) if steps and steps.ended > steps.began else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b

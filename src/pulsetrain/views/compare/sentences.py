"""A comparison in sentences: which run is faster, where the time went, and what the records say about the reason."""

from collections.abc import Callable, Iterator

from pulsetrain.insight.compare.causes import Cause, CauseKind
from pulsetrain.insight.compare.explanation import Explanation, GpuUse, StepChange
from pulsetrain.insight.compare.significance import RELEVANT, Difference
from pulsetrain.insight.compare.speed import Speed
from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.views.text import listed, percent, short_duration

WORTH_NAMING = 0.05
"""Of the change of a step's time: a part that changed by less is not named."""


def speed_text(speed: Speed) -> str:
    """Which of two runs is faster, by how much, and how sure that is."""
    both = f"{speed.against} and {speed.run}"
    if speed.typical is None or speed.average is None:
        return f"{both}: {missing(speed)}."
    typically = _takes(speed.typical, speed)
    if speed.average.real and not (speed.typical.real and speed.typical.change * speed.average.change > 0):
        if not speed.typical.real:
            typically = f"a typical {speed.per} shows no clear difference between {both} ({_range(speed.typical)})"
        return f"{_sentence(typically)}; but on average, long ones included, {_takes(speed.average, speed)}."
    if speed.typical.real:
        return f"{_sentence(typically)}."
    if speed.typical.certain:
        return f"{both} differ by less than {percent(RELEVANT)} in the time per {speed.per} ({_range(speed.typical)})."
    return f"{both} show no difference beyond noise in the time per {speed.per} ({_range(speed.typical)})."


def missing(speed: Speed) -> str:
    """Why there is no difference to tell; empty when there is one."""
    counts = {speed.against: speed.steps_against, speed.run: speed.steps}
    if without := [label for label, count in counts.items() if not count]:
        return f"no steps of {' and '.join(without)} were recorded"
    return "" if speed.typical else f"too few steps to compare ({speed.steps_against} and {speed.steps})"


def sentences(explanation: Explanation) -> list[str]:
    """What sets a run apart from the first one."""
    found = [_step_change(explanation.step)] if explanation.step else []
    if explanation.gpus:
        found += _use_of_gpus(explanation.gpus)
    if explanation.asked and not explanation.causes:
        asked = _asked(explanation)
        found.append(f"The records do not show {asked[0].lower()}{asked[1:]}.")
    return found


def question(explanation: Explanation) -> str:
    """What the causes answer; empty when there are none."""
    return _asked(explanation) if explanation.causes else ""


def _asked(explanation: Explanation) -> str:
    if explanation.asked == "gpu_less_busy":
        return f"Why GPU utilization of {explanation.about} is lower"
    return f"What holds {explanation.about} back"


def _takes(found: Difference, speed: Speed) -> str:
    """`a step takes 4.1x as long in slow as in fast (95 % interval 2.9 to 4.9x)`."""
    if found.change >= 1:  # twice as long and more
        interval = f"{1 + found.low:.1f} to {1 + found.high:.1f}x"
        change = f"{1 + found.change:.1f}x as long in {speed.run} as in {speed.against}"
    else:
        low, high = sorted((abs(found.low), abs(found.high)))
        interval = f"{100 * low:.1f} to {100 * high:.1f} %"
        word = "longer" if found.change > 0 else "less time"
        change = f"{100 * abs(found.change):.1f} % {word} in {speed.run} than in {speed.against}"
    return f"a {speed.per} takes {change} (95 % interval {interval})"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _range(found: Difference) -> str:
    return f"{100 * found.low:+.1f} to {100 * found.high:+.1f} %"


def _step_change(step: StepChange) -> str:
    """How much longer a step, or a sample, takes on average, and in which parts."""
    first, second = step.before_seconds, step.after_seconds
    longer = second > first
    text = f"On average a {step.per} of {step.run} takes {short_duration(abs(second - first))} "
    text += f"{'more' if longer else 'less'} ({short_duration(first)} -> {short_duration(second)})"
    if not step.parts:
        return f"{text}; its parts were not recorded in both runs."
    changes = {STEP_PARTS[part]: change for part, change in step.parts.items()}
    large = sorted(
        (part for part, change in changes.items() if abs(change) > WORTH_NAMING * abs(second - first)),
        key=lambda part: -abs(changes[part]),
    )
    along = [f"{short_duration(abs(changes[part]))} {part}" for part in large if (changes[part] > 0) == longer]
    against = [
        f"{short_duration(abs(changes[part]))} {'less' if longer else 'more'} {part}"
        for part in large
        if (changes[part] > 0) != longer
    ]
    pieces = (f"of these {listed(along)}" if along else "", f"but {listed(against)}" if against else "")
    return f"{text}: {'; '.join(filter(None, pieces))}."


def _use_of_gpus(use: GpuUse) -> Iterator[str]:
    when = "while training" if use.while_training else "on average"
    shares = f"{percent(use.busier_share)} in {use.busier} and {percent(use.idler_share)} in {use.idler}"
    yield f"GPU utilization {when} was {shares}."
    if not use.busier_kernel_seconds or not use.idler_kernel_seconds:
        return
    text = (
        f"Per sample, kernels ran {short_duration(use.busier_kernel_seconds)} in {use.busier} "
        f"and {short_duration(use.idler_kernel_seconds)} in {use.idler}"
    )
    if use.same_work:
        yield f"{text}: the work is about the same; the waiting differs."
    else:
        yield f"{text}: not just the waiting differs, but also what the GPU does (model, precision, batch size)."


def cause_text(cause: Cause) -> str:
    """A cause with the figures it rests on; where a rule found it, by its name and with its advice."""
    text, finding = _CAUSES[cause.kind](cause), cause.finding
    if finding is None:
        return text
    advice = f" {finding.advice}" if finding.severity != "info" else ""
    return f"{finding.rule}: {text}{advice}"


def _no_gpu(cause: Cause) -> str:
    return (
        f"No process of {cause.run} was seen on a GPU, and GPU memory in use rose by "
        f"{cause.here['gpu_memory_rise_mb']:.0f} MiB at most: it seems to run on the CPU."
    )


def _idle_gpus(cause: Cause) -> str:
    idle, count = cause.here["gpus_idle"], cause.here["gpus"]
    were, limit = "were" if idle != 1 else "was", cause.here["idle_percent"]
    return f"{idle:.0f} of the {count:.0f} GPUs of {cause.run} {were} idle: at most {limit:g} % utilization."


def _data(cause: Cause) -> str:
    return _of_its_steps(cause, "waits for data")


def _other_work(cause: Cause) -> str:
    return _of_its_steps(cause, "does something else (logging, checkpoints, validation)")


def _of_its_steps(cause: Cause, verb: str) -> str:
    signal = f"{cause.kind}_share"
    return f"{cause.run} {verb} {percent(cause.here[signal])} of its step time{_beside(cause, signal)}."


def _outside_steps(cause: Cause) -> str:
    seconds, share = cause.here["training_seconds"], cause.here["outside_share"]
    return (
        f"From its first step to its last, {cause.run} spent {short_duration(share * seconds)} of "
        f"{short_duration(seconds)} outside of steps{_beside(cause, 'outside_share')}."
    )


def _throttling(cause: Cause) -> str:
    signal = "gpu_throttled_share"
    text = f"Power or heat limited the clocks of {cause.run} {percent(cause.here[signal])} of the time"
    text += _beside(cause, signal)
    slow, fast = cause.here.get("gpu_clock_hertz"), cause.there.get("gpu_clock_hertz")
    if slow and fast:
        text += f", to {slow / 1e6:,.0f} MHz on average (against {fast / 1e6:,.0f} MHz)"
    return f"{text}."


def _small_batches(cause: Cause) -> str:
    here, there = cause.here["samples_per_step"], cause.there["samples_per_step"]
    return (
        f"A step of {cause.run} has {here:,.0f} samples ({cause.against}: {there:,.0f}): the fixed cost "
        "of a step weighs more on each sample."
    )


def _host_bound(cause: Cause) -> str:
    busiest, cores = cause.here["busiest_process_cores"], cause.here["cpu_cores"]
    return (
        f"One process of {cause.run} used one whole core ({busiest:.2f} of {cores:.0f}) and a step takes only "
        f"{short_duration(cause.here['step_seconds_mean'])}: the host seems to set the pace, not the GPU."
    )


def _busy_machine(cause: Cause) -> str:
    there = cause.there.get("others_cores")
    beside = "" if there is None else f" ({cause.against}: {there:.1f})"
    here, cores = cause.here["others_cores"], cause.here["cpu_cores"]
    return f"Other programs used {here:.1f} of {cores:.0f} cores while {cause.run} trained{beside}."


def _slower_all_over(cause: Cause) -> str:
    least, most = cause.here["least_longer_part_ratio"], cause.here["most_longer_part_ratio"]
    return (
        f"All parts of a step take longer by about the same factor ({100 * least:.0f} to {percent(most)}), as with "
        "more work per step, lower clocks, or a shared machine."
    )


_CAUSES: dict[CauseKind, Callable[[Cause], str]] = {
    "gpu_not_used": _no_gpu,
    "idle_gpus": _idle_gpus,
    "data_wait": _data,
    "other": _other_work,
    "outside_steps": _outside_steps,
    "throttled": _throttling,
    "small_batches": _small_batches,
    "host_bound": _host_bound,
    "busy_machine": _busy_machine,
    "slower_all_over": _slower_all_over,
}


def _beside(cause: Cause, signal: str) -> str:
    share = cause.there.get(signal)
    return "" if share is None else f" ({cause.against}: {percent(share)})"

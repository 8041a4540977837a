"""The figures of a training in words, shared by the summary at its end and by its report."""

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.training_summary import LeftOut, TrainingSummary
from pulsetrain.views.text import duration, listed, number, percent, rate, short_duration

MOST_RANKS = 8
"""Ranks whose losses are named one by one."""
SAME_LOSS = 1e-6
"""Losses of ranks that differ by less, as a part of their size, are the same."""
WORTH_NAMING = 0.01
"""Pauses that are a smaller part of the time in steady steps are not named."""


def steps(training: TrainingSummary) -> str:
    """How many steps of how many, in how many epochs, on how many ranks."""
    done = number(max(training.steps, training.last_step or 0))  # some count from 0, and some go on where they stopped
    planned = f" of {number(training.total_steps)}" if training.total_steps else ""
    epochs = f" in {epoch(training.epoch)} epoch{'' if training.epoch == 1 else 's'}" if training.epoch else ""
    ranks = f" on each of {training.ranks} ranks" if training.ranks > 1 else ""
    return f"{done}{planned}{epochs}{ranks}"


def epoch(value: float) -> str:
    """`3`, `2.13`."""
    return number(value, digits=2).rstrip("0").rstrip(".")


def loss(training: TrainingSummary) -> str:
    """The first and the last, those of the other ranks where they differ, and how often it was not a number."""
    text = ""
    if training.loss_first is not None and training.loss_last is not None:
        text = f"{training.loss_first:.4g} -> {training.loss_last:.4g}"
    if training.nonfinite_losses:
        often = "once" if training.nonfinite_losses == 1 else f"{training.nonfinite_losses} times"
        text += f" ({often} NaN or infinite)"
    return text.strip() + _other_ranks(training)


def _other_ranks(training: TrainingSummary) -> str:
    losses, mean = training.loss_last_by_rank, training.loss_last_mean
    if mean is None:
        return ""
    low, high = min(losses.values()), max(losses.values())
    if high - low <= SAME_LOSS * max(abs(low), abs(high)):
        return ""
    each = f"{low:.4g} to {high:.4g}"
    if len(losses) <= MOST_RANKS:
        each = ", ".join(f"rank {rank}: {value:.4g}" for rank, value in losses.items())
    return f" on the first rank; {mean:.4g} on average over {len(losses)} ranks ({each})"


def updates(training: TrainingSummary) -> str:
    """What the optimizer last worked with, and how many of its updates were skipped."""
    skipped = training.skipped_updates
    parts = [
        f"learning rate {training.learning_rate:.4g}" if training.learning_rate is not None else "",
        f"gradient norm {training.gradient_norm:.4g}" if training.gradient_norm is not None else "",
        f"{number(skipped)} update{'s' if skipped > 1 else ''} skipped for infinite gradients" if skipped else "",
    ]
    return ", ".join(filter(None, parts))


def step_time(training: TrainingSummary) -> str:
    """`12 ms a step (median 11 ms, p95 15 ms)`: the mean first, as it is what rates follow from."""
    if training.step_seconds_mean is None:
        return ""
    return (
        f"{short_duration(training.step_seconds_mean)} a step "
        f"(median {short_duration(training.step_seconds_p50)}, p95 {short_duration(training.step_seconds_p95)})"
    )


def rates(training: TrainingSummary) -> str:
    """Samples and tokens a second: of all ranks together, and of the first."""
    first = _rates(training.samples_per_second, training.tokens_per_second)
    if training.ranks < 2 or not first:
        return first
    every = _rates(training.all_ranks_samples_per_second, training.all_ranks_tokens_per_second)
    return f"{every} on {training.ranks} ranks ({first} on the first)" if every else f"{first} on the first rank"


def _rates(samples: float | None, tokens: float | None) -> str:
    parts = [f"{rate(samples)} samples/s" if samples else "", f"{rate(tokens)} tokens/s" if tokens else ""]
    return ", ".join(filter(None, parts))


def flops(training: TrainingSummary) -> str:
    return f"{percent(training.mfu_ratio)} of peak FLOPs (estimated)" if training.mfu_ratio else ""


def shares(training: TrainingSummary) -> str:
    """What the time of a step went into."""
    parts = {name: training.share(part) for part, name in STEP_PARTS.items()}
    return ", ".join(f"{name} {percent(share)}" for name, share in parts.items() if share is not None)


def left_out(training: TrainingSummary) -> str:
    """The time beside steady steps: `of 60 steps, 10 warm-up (48.1 s) and 3 with validation excluded; ...`."""
    rest = training.left_out
    if rest is None:
        return ""
    names = " or ".join(rest.interrupted_by)
    steps = [
        f"{number(rest.warm_up_steps)} warm-up ({_seconds(rest.warm_up_seconds)})" if rest.warm_up_steps else "",
        f"{number(rest.interrupted_steps)} with {names}" if rest.interrupted_steps else "",
    ]
    of_steps = [text for text in steps if text]
    if names and not rest.interrupted_steps:
        of_steps.append(f"{names} inside them")
    words = [f"of {number(training.steps)} steps, {listed(of_steps)} excluded"] if of_steps else []
    return "; ".join([*words, ", ".join(_beside(training, rest))]).removesuffix("; ")


def _beside(training: TrainingSummary, rest: LeftOut) -> list[str]:
    """Time outside of steps, and that of phases, wherever they are."""
    found = [f"start-up {_seconds(rest.start_up_seconds)}"]
    found += [f"{name} {_seconds(seconds)}" for name, seconds in rest.phase_seconds.items()]
    if rest.pause_seconds > WORTH_NAMING * training.steady_steps * (training.step_seconds_mean or 0.0):
        found.append(f"outside of steps {_seconds(rest.pause_seconds)}")
    return found


def _seconds(seconds: float) -> str:
    return short_duration(seconds) if seconds < 60 else duration(seconds)

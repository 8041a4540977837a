"""Rules about the training loop."""

from pulsetrain.rules.expression import (
    Absolute,
    Earlier,
    Expression,
    Logic,
    Threshold,
    both,
    count,
    data_age,
    group,
    highest,
    joined,
    lowest,
    mean_over,
    median_of_peers,
    risen,
    training,
)
from pulsetrain.rules.recording import (
    BEFORE_EXCHANGE_RATIO,
    DATA_WAIT_RATIO,
    MEAN_STEP_SECONDS,
    SMOOTH_LOSS,
    STEP_RATE,
)
from pulsetrain.rules.rule import RecordTest, Rule

_SILENT_SECONDS = lowest(data_age("training", run=()), "run")
_LOSS_BEFORE = Earlier(SMOOTH_LOSS, Threshold("loss_window"))


def _while_there(of: Expression) -> Logic:
    """Of runs that are there now: a window reaches beyond the end of a run."""
    return both(of, data_age("training", run=()), on=("run",))


RULES = (
    Rule(
        name="Stalled",
        topic="training",
        severity="critical",
        when=both(
            _SILENT_SECONDS > Threshold("stalled_seconds"),
            _SILENT_SECONDS > Threshold("stalled_steps") * MEAN_STEP_SECONDS,
        ),
        summary="Run {run} has made no step for {value:duration}",
        description="The process is alive, but its loop has been silent for more than {stalled_steps} usual steps.",
        advice="Is it a deadlock between ranks, a hung file system, or a long validation? py-spy dump --pid PID shows "
        "where.",
        on_record=RecordTest(
            summary="No step for {silent_seconds:time} {where}",
            computed="A step, or the silence before the end, is longer than {stalled_steps} usual steps, "
            "{pause_seconds} s and {stall_ratio} of the training time, with no evaluation, checkpoint or compilation "
            "in it.",
            thresholds=("stalled_steps", "pause_seconds", "stall_ratio"),
            explains=("StepOutliers", "SlowedDown", "InputBound", "LoggingHeavy", "IdleGpu", "LowGpuUtilization"),
        ),
    ),
    Rule(
        name="NonFinite",
        topic="training",
        severity="critical",
        when=_while_there(count(group(risen("5m", training("nonfinite_counts", value="loss")), "run", "rank"), "run")),
        summary="The loss of run {run} is NaN or infinite",
        description="On {value:.0f} rank(s). The weights are likely ruined from here on.",
        advice="Stop it and go back to a good checkpoint. Lower the learning rate, clip gradients, look at the data.",
        on_record=RecordTest(
            summary="The {what} is NaN or infinite from step {step:.0f} on{ranks}",
            computed="Any loss that is not finite. Non-finite gradients alone are a warning above "
            "{nonfinite_gradient_ratio} of the steps: mixed precision skips a few.",
            thresholds=("nonfinite_gradient_ratio",),
            explains=("GradientExplosion", "LossSpike", "LossNotDecreasing", "VanishingGradient", "Overfit"),
        ),
    ),
    Rule(
        name="LossNotDecreasing",
        topic="training",
        severity="info",
        when=_while_there(_LOSS_BEFORE - SMOOTH_LOSS < Threshold("loss_fall_ratio") * Absolute(_LOSS_BEFORE)),
        hold="30m",
        summary="The loss of run {run} has not fallen in the last {loss_window}",
        description="Its 15-minute mean fell by less than {loss_fall_ratio} of its value.",
        advice="Has it converged, is the learning rate too high or too low, or are the labels noise? Compare the "
        "validation loss.",
        on_record=RecordTest(
            summary="The loss {course}, from {first_loss:.4g} to {last_loss:.4g}",
            computed="The mean of the last tenth of the losses is not below that of the first by {loss_fall_ratio} of "
            "it and two standard errors, over at least {loss_reports} reports; or it ends {loss_rise_ratio} above "
            "its lowest.",
            severity="warning",
            thresholds=("loss_fall_ratio", "loss_rise_ratio", "loss_reports"),
        ),
    ),
    Rule(
        name="GradientExplosion",
        topic="training",
        severity="warning",
        when=highest(training("gradient_norm"), "run") > Threshold("exploding_gradient_norm"),
        hold="2m",
        margin=0.2,
        summary="The gradient norm of run {run} is {value:si}",
        description="Above {exploding_gradient_norm}: a step can throw the weights far off.",
        advice="Clip gradients, lower the learning rate or warm it up longer. If this model is fine above it, raise "
        "exploding_gradient_norm.",
        on_record=RecordTest(
            summary="The gradient norm rose to {gradient_norm_peak:amount}, {rise_ratio:amount} times its usual value",
            computed="Norms are above {exploding_gradient_norm} and above {gradient_rise_ratio} times the median of "
            "the run's calmer half. Norms that are high all along are `info`.",
            thresholds=("exploding_gradient_norm", "gradient_rise_ratio"),
            explains=("LossSpike", "LossNotDecreasing"),
        ),
    ),
    Rule(
        name="VanishingGradient",
        topic="training",
        severity="warning",
        when=highest(training("gradient_norm"), "run") < Threshold("vanishing_gradient_norm"),
        hold="5m",
        margin=1,
        summary="The gradients of run {run} have vanished",
        description="Their norm is below {vanishing_gradient_norm}: nothing is learned from here on.",
        advice="Look for frozen parameters, a detached loss, dead activations, or fp16 gradients that underflow.",
        on_record=RecordTest(
            summary="The gradient norm is {gradient_norm:.3g} in the later half of the run",
            computed="The median norm of the later half is below {vanishing_gradient_norm}.",
            thresholds=("vanishing_gradient_norm",),
            explains=("LossNotDecreasing",),
        ),
    ),
    Rule(
        name="InputBound",
        topic="training",
        severity="warning",
        when=_while_there(DATA_WAIT_RATIO > Threshold("data_wait_ratio")),
        hold="10m",
        margin=0.2,
        summary="Run {run} waits for data {value:percent} of its time",
        description="More than {data_wait_ratio} of each step goes into waiting for the next batch.",
        advice="Use more data loader workers, prefetching, pinned memory, a faster disk or a cache near the machine.",
        on_record=RecordTest(
            summary="{data_wait_share:share} of each step waits for data: {cause}",
            computed="Waiting for batches takes more than {data_wait_ratio} of the steady steps, and of most single "
            "ones (or of most groups of as many as there are loading processes); waits over 0.1 s always count. Its "
            "cause is read from the loading processes, the CPUs, iowait and the disk.",
            thresholds=("data_wait_ratio", "cpu_saturated_ratio", "time_share_ratio"),
            holds_back=True,
            explains=("LowGpuUtilization", "CpuBottleneck", "IoBottleneck", "StepOutliers", "IdleGpu", "LoggingHeavy"),
        ),
    ),
    Rule(
        name="Straggler",
        topic="training",
        severity="warning",
        when=_while_there(
            joined(BEFORE_EXCHANGE_RATIO, "-", median_of_peers(BEFORE_EXCHANGE_RATIO, "run"), ("run",))
            > Threshold("straggler_ratio")
        ),
        hold="10m",
        margin=0.2,
        summary="Rank {rank} of run {run} holds up the others",
        description="At the backward pass it is {value:percent} of a step behind the median rank.",
        advice="Compare its host, disk and GPU with the others'. Are batches of equal length?",
        on_record=RecordTest(
            summary="Rank {rank} holds up the others by {behind_seconds:time} a step, {behind_share:share} of it"
            "{since}: {cause}",
            computed="From the start of a step to its backward pass, the rank's median time exceeds that of the "
            "others by more than {straggler_ratio} of the step, over the run or from a change point on, and so does "
            "the faster quarter of its steps: a rank that only loses the CPU now and then is not a straggler.",
            thresholds=("straggler_ratio",),
            holds_back=True,
            explains=("InputBound", "CommunicationBound", "LoadImbalance", "LowGpuUtilization", "LoggingHeavy"),
        ),
    ),
    Rule(
        name="SlowedDown",
        topic="training",
        severity="warning",
        when=_while_there((STEP_RATE > 0) < Threshold("slowed_ratio") * mean_over("1h", STEP_RATE, offset="15m")),
        hold="15m",
        margin=0.1,
        summary="Run {run} is down to {value:si} steps per second",
        description="Below {slowed_ratio} of its mean over the previous hour.",
        advice="Heat, a neighbor on the machine, a slow disk or longer batches: see what changed at that time.",
        on_record=RecordTest(
            summary="From step {step:.0f} on, steps took {slower_seconds:time} instead of {usual_seconds:time}{part}",
            computed="A change point in the logarithm of plain step times, at least 10 steps long and 5 % large. A "
            "warning when the pace falls below {slowed_ratio} of the earlier one and does not recover.",
            thresholds=("slowed_ratio",),
            holds_back=True,
            explains=("StepOutliers", "InputBound", "LoggingHeavy"),
        ),
    ),
)

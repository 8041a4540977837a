"""Expressions that rules and dashboards ask for again and again: evaluated once, and kept.

Levels: `gpu` and `rank` are single ones, `run` is a whole run over its hosts, `host` a machine, `fleet` all of them.

A run exports its GPUs with its name. An agent exports those of the machine without, and tells by their processes which
run holds them. Both read the same GPU at different moments, so that the higher of the two overstates what fluctuates:
the agent counts where there is one, else the mean of the runs.
"""

from pulsetrain.rules.expression import (
    Arithmetic,
    Expression,
    Foreign,
    Logic,
    RecordingRule,
    average,
    count,
    either,
    gpu,
    group,
    having,
    highest,
    increase_over,
    joined,
    mean_over,
    rate_over,
    signal,
    total,
    training,
)
from pulsetrain.units import SECONDS_PER_HOUR

HELD = RecordingRule(
    "gpu:held_by_run:group",
    group(either(gpu("up", run=()), signal("process", "gpu_memory_mb", run=(), uuid=())), "run", "host", "uuid"),
    "1 for each run and each GPU that it holds.",
)


def of_runs(of: Expression) -> Arithmetic:
    """Values of GPUs as those of the runs that hold them, with the labels run, host, uuid and gpu."""
    return joined(HELD, "*", _by_one_exporter(of, "host", "uuid", "gpu"), ("host", "uuid"), "gpu")


def _once_per_gpu(field: str) -> Expression:
    return _by_one_exporter(gpu(field), "host", "uuid")


def _by_one_exporter(of: Expression, *by: str) -> Logic:
    """Values of GPUs as the agent of their machine shows them, or else the runs on it."""
    return either(average(having(of, run=""), *by), average(having(of, run=()), *by))


# Runs: their GPUs
_RUN_GPUS = (
    HELD,
    RecordingRule("run:gpus:count", count(HELD, "run"), "GPUs of a run."),
    RecordingRule(
        "run:gpu_utilization_percent:avg",
        average(of_runs(gpu("utilization_percent")), "run"),
        "Mean utilization of a run's GPUs.",
    ),
    RecordingRule(
        "run:gpu_memory_percent:max",
        highest(of_runs(gpu("memory_percent")), "run"),
        "Memory use of the fullest GPU of a run.",
    ),
    RecordingRule(
        "run:gpu_temperature_celsius:max",
        highest(of_runs(gpu("temperature_celsius")), "run"),
        "The hottest GPU of a run.",
    ),
    RecordingRule(
        "run:gpu_power_draw_watts:sum", total(of_runs(gpu("power_draw_watts")), "run"), "Power of a run's GPUs."
    ),
)

# Runs: what they use
GPU_IDLE_RATIO = RecordingRule(
    "run:gpu_idle:ratio_rate5m",
    total(rate_over("5m", signal("account", "gpu_idle_seconds")), "run")
    / total(rate_over("5m", signal("account", "gpu_seconds")), "run"),
    "Share of a run's GPU time in which no kernel ran.",
)
_COST_RATE = RecordingRule(
    "run:cost:rate5m",
    total(highest(rate_over("5m", signal("account", "cost")), "run", "host", "currency"), "run", "currency"),
    "Cost of a run per second.",
)
_WASTED_COST = RecordingRule(
    "run:wasted_cost:rate5m",
    joined(_COST_RATE, "*", GPU_IDLE_RATIO, ("run",)),
    "Cost of a run per second for GPUs that ran no kernel.",
)
_RUN_USE = (
    RecordingRule(
        "run:energy_joules:rate5m",
        total(highest(rate_over("5m", signal("account", "energy_joules")), "run", "host", "device"), "run"),
        "Power of a run, in watts: GPUs, CPUs and memory, times PUE.",
    ),
    GPU_IDLE_RATIO,
    _COST_RATE,
    _WASTED_COST,
)

# Runs: the training loop
STEP_RATE = RecordingRule(
    "run:training_steps:rate5m", highest(rate_over("5m", training("step")), "run"), "Steps per second."
)
MEAN_STEP_SECONDS = RecordingRule(
    "run:training_step_duration_seconds:mean",
    highest(training("step_seconds") / training("step_counts"), "run"),
    "The usual step: its mean duration since the run began.",
)
DATA_WAIT_RATIO = RecordingRule(
    "run:training_data_wait:ratio_rate5m",
    total(rate_over("5m", training("data_wait_seconds")), "run")
    / total(rate_over("5m", training("step_seconds")), "run"),
    "Share of the step that goes into waiting for the next batch.",
)
SMOOTH_LOSS = RecordingRule(
    "run:training_loss:avg15m", average(mean_over("15m", training("loss")), "run"), "The loss, smoothed."
)
_RUN_TRAINING = (
    STEP_RATE,
    RecordingRule(
        "run:training_samples:rate5m",
        total(highest(rate_over("5m", training("samples")), "run", "host", "rank"), "run"),
        "Samples per second, of all ranks.",
    ),
    MEAN_STEP_SECONDS,
    RecordingRule(
        "run:training_step_duration_seconds:p95_rate5m",
        Foreign(
            'histogram_quantile(0.95, sum by (run, le) (rate(training_step_duration_seconds_bucket{rank=~"0|"}[5m])))'
        ),
        "95 % of steps took no longer. First rank only: ranks step together, and have many buckets.",
    ),
    DATA_WAIT_RATIO,
    SMOOTH_LOSS,
)

# Ranks and GPUs, to be compared with their peers
BEFORE_EXCHANGE_RATIO = RecordingRule(
    "rank:training_before_exchange:ratio_rate5m",
    highest(
        (rate_over("5m", training("data_wait_seconds")) + rate_over("5m", training("forward_seconds")))
        / rate_over("5m", training("step_seconds")),
        *("run", "host", "rank"),
    ),
    "Share of the step that a rank works on its own, before it meets the others in the backward pass.",
)
CLOCK_RATIO = RecordingRule(
    "gpu:clock_sm:ratio_avg10m",
    of_runs(mean_over("10m", gpu("clock_sm_hertz")) / mean_over("10m", gpu("clock_sm_max_hertz"))),
    "Clock of a GPU that a run holds, as a share of its maximum.",
)

_UTILIZATION = _once_per_gpu("utilization_percent")
_IDLE = either(count(_UTILIZATION.equals(0), "host"), count(_UTILIZATION, "host") * 0)
"""0 where none is."""
_MACHINES = (
    RecordingRule("host:gpus:count", count(_once_per_gpu("up"), "host"), "GPUs of a machine."),
    RecordingRule("host:gpus_up:count", total(_once_per_gpu("up"), "host"), "GPUs of a machine that answer."),
    RecordingRule("host:gpus_idle:count", _IDLE, "GPUs of a machine that run no kernel."),
    RecordingRule(
        "host:gpu_utilization_percent:count",
        count(_once_per_gpu("utilization_percent"), "host"),
        "GPUs of a machine that report their utilization: for the mean over several machines.",
    ),
    RecordingRule(
        "host:gpu_utilization_percent:avg",
        average(_once_per_gpu("utilization_percent"), "host"),
        "Mean utilization of a machine's GPUs.",
    ),
    RecordingRule(
        "host:gpu_memory_percent:avg",
        average(_once_per_gpu("memory_percent"), "host"),
        "Mean use of a machine's GPU memory.",
    ),
    RecordingRule(
        "host:gpu_power_draw_watts:sum", total(_once_per_gpu("power_draw_watts"), "host"), "Power of a machine's GPUs."
    ),
    RecordingRule(
        "host:gpu_temperature_celsius:max",
        highest(_once_per_gpu("temperature_celsius"), "host"),
        "The hottest GPU of a machine.",
    ),
)

_FLEET = (
    RecordingRule("fleet:gpus:count", count(_once_per_gpu("up")), "GPUs watched."),
    RecordingRule("fleet:gpus_up:count", total(_once_per_gpu("up")), "GPUs that answer."),
    RecordingRule(
        "fleet:gpu_utilization_percent:avg",
        average(_once_per_gpu("utilization_percent")),
        "Mean utilization of all GPUs.",
    ),
    RecordingRule("fleet:gpu_power_draw_watts:sum", total(_once_per_gpu("power_draw_watts")), "Power of all GPUs."),
    RecordingRule(
        "fleet:wasted_gpus:rate5m",
        total(highest(rate_over("5m", signal("account", "gpu_idle_seconds")), "run", "host")),
        "GPUs that runs hold and do not use: wasted GPU-hours per hour.",
    ),
    RecordingRule(
        "fleet:wasted_gpu_hours:increase1d",
        total(highest(increase_over("1d", signal("account", "gpu_idle_seconds")), "run", "host")) / SECONDS_PER_HOUR,
        "GPU-hours that runs held and did not use, over a day.",
    ),
    RecordingRule("fleet:wasted_cost:rate5m", total(_WASTED_COST, "currency"), "Cost of those GPUs per second."),
)

RECORDING_RULES: tuple[RecordingRule, ...] = (
    *_RUN_GPUS,
    *_RUN_USE,
    *_RUN_TRAINING,
    BEFORE_EXCHANGE_RATIO,
    CLOCK_RATIO,
    *_MACHINES,
    *_FLEET,
)
"""Each after those that it uses."""

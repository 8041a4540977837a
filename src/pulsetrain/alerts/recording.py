"""Queries that dashboards and alerts ask again and again, recorded once by Prometheus: level:metric:operations.

Levels: `gpu` and `rank` are single ones, `run` is a whole run over its hosts, `host` a machine, `fleet` all of them.

A run exports its GPUs with its name. An agent exports those of the machine without, and tells by their processes which
run holds them. What both of them export counts once.
"""

from typing import NamedTuple

HELD = "gpu:held_by_run:group"


def of_runs(series: str) -> str:
    """PromQL: GPU series as those of the runs that hold the GPUs, with the labels run, host, uuid and gpu."""
    return f"{HELD} * on (host, uuid) group_left (gpu) max by (host, uuid, gpu) ({series})"


class Recording(NamedTuple):
    """One recorded query."""

    name: str
    expression: str
    help: str


RECORDINGS: tuple[Recording, ...] = (
    # Runs: their GPUs
    Recording(
        HELD,
        'group by (run, host, uuid) (gpu_up{run!=""} or process_gpu_memory_mb{run!="", uuid!=""})',
        "1 for each run and each GPU that it holds.",
    ),
    Recording("run:gpus:count", f"count by (run) ({HELD})", "GPUs of a run."),
    Recording(
        "run:gpu_utilization_percent:avg",
        f"avg by (run) ({of_runs('gpu_utilization_percent')})",
        "Mean utilisation of a run's GPUs.",
    ),
    Recording(
        "run:gpu_memory_percent:max",
        f"max by (run) ({of_runs('gpu_memory_percent')})",
        "The fullest GPU memory of a run.",
    ),
    Recording(
        "run:gpu_temperature_celsius:max",
        f"max by (run) ({of_runs('gpu_temperature_celsius')})",
        "The hottest GPU of a run.",
    ),
    Recording(
        "run:gpu_power_draw_watts:sum",
        f"sum by (run) ({of_runs('gpu_power_draw_watts')})",
        "Power of a run's GPUs.",
    ),
    # Runs: what they use
    Recording(
        "run:energy_joules:rate5m",
        "sum by (run) (max by (run, host, device) (rate(run_energy_joules_total[5m])))",
        "Power of a run, in watts: GPUs, CPUs and memory, times PUE.",
    ),
    Recording(
        "run:gpu_idle:ratio_rate5m",
        "sum by (run) (rate(run_gpu_idle_seconds_total[5m]))\n/ sum by (run) (rate(run_gpu_seconds_total[5m]))",
        "Share of a run's GPU time in which no kernel ran.",
    ),
    Recording(
        "run:cost:rate5m",
        "sum by (run, currency) (max by (run, host, currency) (rate(run_cost_total[5m])))",
        "Cost of a run per second.",
    ),
    Recording(
        "run:wasted_cost:rate5m",
        "run:cost:rate5m * on (run) group_left () run:gpu_idle:ratio_rate5m",
        "Of that, for GPUs that ran no kernel.",
    ),
    # Runs: the training loop
    Recording(
        "run:training_steps:rate5m",
        "max by (run) (rate(training_steps_total[5m]))",
        "Steps per second.",
    ),
    Recording(
        "run:training_samples:rate5m",
        "sum by (run) (max by (run, host, rank) (rate(training_samples_total[5m])))",
        "Samples per second, of all ranks.",
    ),
    Recording(
        "run:training_step_duration_seconds:mean",
        "max by (run) (training_step_duration_seconds_sum / training_step_duration_seconds_count)",
        "The usual step: its mean duration since the run began.",
    ),
    Recording(
        "run:training_step_duration_seconds:p95_rate5m",
        "histogram_quantile(0.95, sum by (run, le) (rate(training_step_duration_seconds_bucket[5m])))",
        "95 of 100 steps took no longer.",
    ),
    Recording(
        "run:training_data_wait:ratio_rate5m",
        "sum by (run) (rate(training_data_wait_seconds_total[5m]))\n"
        "/ sum by (run) (rate(training_step_duration_seconds_sum[5m]))",
        "Share of the step that goes into waiting for the next batch.",
    ),
    Recording("run:training_loss:avg15m", "avg by (run) (avg_over_time(training_loss[15m]))", "The loss, smoothed."),
    # Ranks and GPUs, to be compared with their peers
    Recording(
        "rank:training_before_exchange:ratio_rate5m",
        "max by (run, host, rank) (\n"
        "  (rate(training_data_wait_seconds_total[5m]) + rate(training_forward_seconds_total[5m]))\n"
        "  / rate(training_step_duration_seconds_sum[5m])\n"
        ")",
        "Share of the step that a rank works on its own, before it meets the others in the backward pass.",
    ),
    Recording(
        "gpu:clock_sm:ratio_avg10m",
        of_runs("avg_over_time(gpu_clock_sm_hertz[10m]) / avg_over_time(gpu_clock_sm_max_hertz[10m])"),
        "Of a GPU that a run holds: its clock, of its highest.",
    ),
    # Machines
    Recording("host:gpus:count", "count by (host) (max by (host, uuid) (gpu_up))", "GPUs of a machine."),
    Recording(
        "host:gpu_utilization_percent:avg",
        "avg by (host) (max by (host, uuid) (gpu_utilization_percent))",
        "Mean utilisation of a machine's GPUs.",
    ),
    Recording(
        "host:gpu_memory_percent:avg",
        "avg by (host) (max by (host, uuid) (gpu_memory_percent))",
        "Mean use of a machine's GPU memory.",
    ),
    Recording(
        "host:gpu_power_draw_watts:sum",
        "sum by (host) (max by (host, uuid) (gpu_power_draw_watts))",
        "Power of a machine's GPUs.",
    ),
    # All machines
    Recording("fleet:gpus:count", "count(max by (host, uuid) (gpu_up))", "GPUs that are watched."),
    Recording("fleet:gpus_up:count", "sum(max by (host, uuid) (gpu_up))", "GPUs that answer."),
    Recording(
        "fleet:gpu_utilization_percent:avg",
        "avg(max by (host, uuid) (gpu_utilization_percent))",
        "Mean utilisation of all GPUs.",
    ),
    Recording(
        "fleet:gpu_power_draw_watts:sum", "sum(max by (host, uuid) (gpu_power_draw_watts))", "Power of all GPUs."
    ),
    Recording(
        "fleet:wasted_gpus:rate5m",
        "sum(max by (run, host) (rate(run_gpu_idle_seconds_total[5m])))",
        "GPUs that runs hold and do not use: wasted GPU-hours per hour.",
    ),
    Recording(
        "fleet:wasted_gpu_hours:increase1d",
        "sum(max by (run, host) (increase(run_gpu_idle_seconds_total[1d]))) / 3600",
        "GPU-hours that runs held and did not use, over a day.",
    ),
    Recording(
        "fleet:wasted_cost:rate5m",
        "sum by (currency) (run:wasted_cost:rate5m)",
        "What these cost per second.",
    ),
)

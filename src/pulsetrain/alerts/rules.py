"""Every alert, declared once.

Where one metric of one subject meets one value, the rule is a list of conditions, which any engine can evaluate.
Where peers, windows or several subjects are compared it is PromQL. Both name their values as `thresholds` does: a
condition by the field, PromQL and texts by @field. Texts are Prometheus templates: {{ $labels.gpu }}, {{ $value }}.
"""

from dataclasses import dataclass
from typing import Literal

from pulsetrain.alerts.recording import HELD

Severity = Literal["critical", "warning", "info"]
Topic = Literal["machine", "waste", "training", "budget", "watching"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One metric of one subject, compared with one value."""

    table: str
    field: str
    comparison: Literal["==", ">", ">=", "<", "<="]
    threshold: float | str
    """A number, or the name of a threshold."""
    over: str = ""
    """A time such as 15m: then the mean of a gauge, or the rise of a counter, over it."""
    in_run: bool = False
    """Of GPUs: whether only those that a run holds count."""
    highest_of_run: bool = False
    """Whether a run is the subject, with the highest value of its ranks or GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. Two of one name differ in severity, and the graver one silences the other."""

    name: str
    topic: Topic
    severity: Severity
    when: tuple[Condition, ...] | str
    """Conditions that must all be true of a subject, or PromQL."""
    hold: str = ""
    """How long it must be true before the alert fires; at once if empty."""
    summary: str
    """What, where and how much, in one line."""
    description: str
    """What it means."""
    help: str
    """What to do."""


ALERTS: tuple[Alert, ...] = (
    # The health of GPUs
    Alert(
        name="GpuLost",
        topic="machine",
        severity="critical",
        when=(Condition("gpu", "up", "==", 0),),
        hold="1m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} no longer answers",
        description="The driver cannot reach it: it fell off the bus, or a container lost access to it.",
        help="Look for XID errors in the kernel log. Reset the GPU, or reboot; if it comes again, replace the board.",
    ),
    Alert(
        name="GpuHot",
        topic="machine",
        severity="warning",
        when=(Condition("gpu", "temperature_celsius", ">", "gpu_hot_celsius"),),
        hold="5m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} is at {{ $value }} °C",
        description="Above @gpu_hot_celsius °C. Most boards lower their clocks a little higher than that.",
        help="Check fans, air flow and the room. A lower power limit (nvidia-smi -pl) costs little speed.",
    ),
    Alert(
        name="GpuHot",
        topic="machine",
        severity="critical",
        when=(Condition("gpu", "temperature_celsius", ">", "gpu_too_hot_celsius"),),
        hold="1m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} is at {{ $value }} °C",
        description="Above @gpu_too_hot_celsius °C: boards slow down hard, and switch off soon after.",
        help="Pause the run or lower the power limit now (nvidia-smi -pl), then look at the cooling.",
    ),
    Alert(
        name="GpuMemoryNearlyFull",
        topic="machine",
        severity="info",
        when=(Condition("gpu", "memory_percent", ">", "gpu_memory_full_percent"),),
        hold="5m",
        summary='GPU {{ $labels.gpu }} of {{ $labels.host }} has {{ $value | printf "%.0f" }} % of its memory in use',
        description="Above @gpu_memory_full_percent %. A longer batch or a validation may run out of memory.",
        help="Well filled is well used, as long as it holds. Else: a smaller batch, or activation checkpointing.",
    ),
    Alert(
        name="GpuXidError",
        topic="machine",
        severity="critical",
        when=(Condition("gpu", "xid_errors", ">", 0, over="10m"),),
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} reported an XID error",
        description="The driver reported an error of the GPU or of the program on it within the last 10 minutes.",
        help="The number is in the run's events and in the kernel log; NVIDIA's list of XID errors tells whose fault.",
    ),
    Alert(
        name="GpuEccUncorrected",
        topic="machine",
        severity="critical",
        when=(Condition("gpu", "ecc_uncorrected_errors", ">", 0, over="1h"),),
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} had a memory error that ECC could not correct",
        description="Data in GPU memory was lost within the last hour; the program on it is stopped or wrong.",
        help="Go back to the last checkpoint before it. Reset the GPU; if it comes again, replace the board.",
    ),
    Alert(
        name="GpuRowsRemapPending",
        topic="machine",
        severity="warning",
        when=(Condition("gpu", "remapped_rows_pending", "==", 1),),
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} waits for a reset to set memory rows aside",
        description="Rows with errors are still in use until the GPU is reset.",
        help="Reset the GPU (nvidia-smi --gpu-reset) when the run has ended.",
    ),
    Alert(
        name="GpuRowsRemapFailed",
        topic="machine",
        severity="critical",
        when=(Condition("gpu", "remapped_rows_failed", "==", 1),),
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} could not set a bad memory row aside",
        description="It has no spare rows left: further errors will hit programs.",
        help="Take the board out of service and replace it.",
    ),
    Alert(
        name="GpuThrottledByHeat",
        topic="machine",
        severity="warning",
        when='max without (reason) (sum_over_time(gpu_throttle_reasons{reason=~"hw_thermal|sw_thermal"}[10m]))\n'
        "/ count_over_time(gpu_up[10m]) > @throttled_ratio",
        hold="5m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} is slowed by heat",
        description="Its clocks were held down to cool it in {{ $value | humanizePercentage }} of the last 10 minutes.",
        help="Check fans, air flow and neighbours. A lower power limit is better than a clock that jumps.",
    ),
    Alert(
        name="GpuThrottledByPower",
        topic="machine",
        severity="info",
        when='max without (reason) (sum_over_time(gpu_throttle_reasons{reason=~"sw_power_cap|hw_power_brake"}[10m]))\n'
        "/ count_over_time(gpu_up[10m]) > @throttled_ratio",
        hold="30m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} is held by its power limit",
        description="In {{ $value | humanizePercentage }} of the last 10 minutes. Usual at full load.",
        help="Did somebody lower the limit (nvidia-smi -q -d POWER)? With hw_power_brake, look at the power supply.",
    ),
    Alert(
        name="GpuFanStopped",
        topic="machine",
        severity="critical",
        when=(
            Condition("gpu", "fan_speed_percent", "==", 0),
            Condition("gpu", "temperature_celsius", ">", "fan_needed_celsius"),
        ),
        hold="2m",
        summary="The fan of GPU {{ $labels.gpu }} of {{ $labels.host }} stands still",
        description="It is warmer than @fan_needed_celsius °C, and its fan is not even asked to turn.",
        help="Look at the fan and at its control (nvidia-settings). Pause the run until it turns.",
    ),
    Alert(
        name="GpuPcieLinkSlow",
        topic="machine",
        severity="warning",
        when="gpu_pcie_width < gpu_pcie_max_width\n"
        "or (gpu_pcie_generation < gpu_pcie_max_generation and gpu_utilization_percent > @busy_percent)",
        hold="10m",
        summary="The PCIe link of GPU {{ $labels.gpu }} of {{ $labels.host }} is below its maximum",
        description="It runs with fewer lanes, or at work with a lower generation, than board and slot can do.",
        help="Reseat the board, look at risers and the slot's BIOS settings; copies to the GPU are slower until then.",
    ),
    Alert(
        name="GpuSlowerThanPeers",
        topic="machine",
        severity="warning",
        when="gpu:clock_sm:ratio_avg10m\n"
        "< on (run) group_left () @slow_clock_ratio * quantile by (run) (0.5, gpu:clock_sm:ratio_avg10m)\n"
        "and on (host, uuid) avg_over_time(gpu_utilization_percent[10m]) > @busy_percent",
        hold="10m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} is slower than its peers",
        description="Its clock is at {{ $value | humanizePercentage }} of its highest. The others wait for it.",
        help="Compare its throttle reasons, temperature and power limit with the others'. Or leave it out.",
    ),
    Alert(
        name="HostMemoryLow",
        topic="machine",
        severity="warning",
        when="host_memory_available_bytes / host_memory_total_bytes < @host_memory_ratio",
        hold="5m",
        summary="{{ $labels.host }} has {{ $value | humanizePercentage }} of its memory left",
        description="When none is left the kernel kills the largest process, which most likely is the training.",
        help="Fewer data loader workers, a smaller cache. Look at what else runs there.",
    ),
    # Waste
    Alert(
        name="GpuIdle",
        topic="waste",
        severity="warning",
        when=(Condition("gpu", "utilization_percent", "<=", "idle_percent", in_run=True),),
        hold="15m",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} belongs to run {{ $labels.run }} and does nothing",
        description="No kernel ran on it all that time. It costs as much as one at work.",
        help="Does the run hang, or wait for data? Does it need this GPU? CUDA_VISIBLE_DEVICES leaves it to others.",
    ),
    Alert(
        name="GpuHeldIdle",
        topic="waste",
        severity="info",
        when="gpu_utilization_percent <= @idle_percent and gpu_memory_percent > @held_memory_percent\n"
        f"unless on (host, uuid) {HELD}",
        hold="1h",
        summary="GPU {{ $labels.gpu }} of {{ $labels.host }} is held by a process and does nothing",
        description="Somebody keeps memory on it, often a forgotten notebook, and no kernel ran on it.",
        help="process_gpu_memory_mb tells whose process it is.",
    ),
    Alert(
        name="GpuUnderused",
        topic="waste",
        severity="info",
        when=(Condition("gpu", "utilization_percent", "<", "underused_percent", over="15m", in_run=True),),
        hold="15m",
        summary='GPU {{ $labels.gpu }} of {{ $labels.host }} is busy {{ $value | printf "%.0f" }} % of the time',
        description="Below @underused_percent % over a quarter of an hour.",
        help="See where the step's time goes: waiting for data, small batches, work on the CPU.",
    ),
    # The training loop
    Alert(
        name="TrainingStalled",
        topic="training",
        severity="critical",
        when='min by (run) (pulsetrain_data_age_seconds{data="training", run!=""}) > @stalled_seconds\n'
        'and min by (run) (pulsetrain_data_age_seconds{data="training", run!=""})\n'
        "  > @stalled_steps * run:training_step_duration_seconds:mean",
        summary="Run {{ $labels.run }} has made no step for {{ $value | humanizeDuration }}",
        description="The process lives, but its loop is silent for more than @stalled_steps usual steps.",
        help="A deadlock of ranks, a hanging file system, a long validation? py-spy dump --pid PID shows where it is.",
    ),
    Alert(
        name="LossNotFinite",
        topic="training",
        severity="critical",
        when="count by (run) (group by (run, rank) (training_loss != training_loss or abs(training_loss) == Inf))",
        summary="The loss of run {{ $labels.run }} is NaN or infinite",
        description="On {{ $value }} rank(s). From here on the weights are likely lost.",
        help="Stop it and go back to a good checkpoint. Lower the learning rate, clip gradients, look at the data.",
    ),
    Alert(
        name="LossNotDecreasing",
        topic="training",
        severity="info",
        when="run:training_loss:avg15m offset @loss_window - run:training_loss:avg15m\n"
        "< @loss_fall_ratio * abs(run:training_loss:avg15m offset @loss_window)",
        hold="30m",
        summary="The loss of run {{ $labels.run }} has not fallen within @loss_window",
        description="Its mean over 15 minutes fell by less than @loss_fall_ratio of itself.",
        help="Converged, a learning rate too high or too low, or labels that say nothing? Compare the validation.",
    ),
    Alert(
        name="GradientExploding",
        topic="training",
        severity="warning",
        when=(Condition("training", "gradient_norm", ">", "exploding_gradient_norm", highest_of_run=True),),
        hold="2m",
        summary="The gradient norm of run {{ $labels.run }} is {{ $value | humanize }}",
        description="Above @exploding_gradient_norm: a step can throw the weights far off.",
        help="Clip gradients, lower the learning rate or warm it up longer. Some models are well above; set your own.",
    ),
    Alert(
        name="GradientZero",
        topic="training",
        severity="warning",
        when=(Condition("training", "gradient_norm", "==", 0, highest_of_run=True),),
        hold="5m",
        summary="The gradients of run {{ $labels.run }} are zero",
        description="Nothing is learnt from here on.",
        help="Frozen parameters, a detached loss, dead activations, or a learning-rate scale that underflows.",
    ),
    Alert(
        name="TrainingWaitsForData",
        topic="training",
        severity="warning",
        when="run:training_data_wait:ratio_rate5m > @data_wait_ratio",
        hold="10m",
        summary="Run {{ $labels.run }} waits for data {{ $value | humanizePercentage }} of its time",
        description="More than @data_wait_ratio of each step goes into waiting for the next batch.",
        help="More data loader workers, prefetching, pinned memory, a faster disk or a cache near the machine.",
    ),
    Alert(
        name="TrainingStraggler",
        topic="training",
        severity="warning",
        when="rank:training_before_exchange:ratio_rate5m\n"
        "- on (run) group_left () quantile by (run) (0.5, rank:training_before_exchange:ratio_rate5m)\n"
        "> @straggler_ratio",
        hold="10m",
        summary="Rank {{ $labels.rank }} of run {{ $labels.run }} holds the others up",
        description="At the backward pass it is {{ $value | humanizePercentage }} of a step behind the median rank.",
        help="Compare its host, disk and GPU with the others'. Are batches of equal length?",
    ),
    Alert(
        name="TrainingSlowed",
        topic="training",
        severity="warning",
        when="0 < run:training_steps:rate5m\n< @slowed_ratio * avg_over_time(run:training_steps:rate5m[1h] offset 15m)",
        hold="15m",
        summary="Run {{ $labels.run }} is down to {{ $value | humanize }} steps per second",
        description="Below @slowed_ratio of its mean over the hour before.",
        help="Heat, a neighbour on the machine, a slow disk or longer batches: see what changed at that time.",
    ),
    # Budgets: none, until a limit is set
    Alert(
        name="CostAboveLimit",
        topic="budget",
        severity="critical",
        when="sum by (run, currency) (max by (run, host, currency) (run_cost_total)) > @cost_limit",
        summary='Run {{ $labels.run }} has cost {{ $value | printf "%.2f" }} {{ $labels.currency }}',
        description="Above the limit of @cost_limit.",
        help="Save a checkpoint and stop it, or raise the limit.",
    ),
    Alert(
        name="CostProjectedAboveLimit",
        topic="budget",
        severity="warning",
        when="sum by (run, currency) (max by (run, host, currency) (run_cost_projected)) > @cost_limit",
        hold="10m",
        summary='Run {{ $labels.run }} will cost {{ $value | printf "%.2f" }} {{ $labels.currency }} at its end',
        description="At the pace of now, for the steps that are planned: above the limit of @cost_limit.",
        help="Fewer steps, a cheaper machine, or a better used one: waste and data wait tell where the money goes.",
    ),
    Alert(
        name="EnergyAboveLimit",
        topic="budget",
        severity="warning",
        when="sum by (run) (max by (run, host, device) (run_energy_joules_total)) / 3.6e6 > @energy_limit_kwh",
        summary='Run {{ $labels.run }} has used {{ $value | printf "%.1f" }} kWh',
        description="Above the limit of @energy_limit_kwh kWh.",
        help="Save a checkpoint and stop it, or raise the limit.",
    ),
    Alert(
        name="CarbonAboveLimit",
        topic="budget",
        severity="warning",
        when="sum by (run) (max by (run, host) (run_carbon_grams_total)) / 1000 > @carbon_limit_kg",
        summary='Run {{ $labels.run }} has emitted {{ $value | printf "%.1f" }} kg of CO2 equivalents',
        description="Above the limit of @carbon_limit_kg kg.",
        help="Save a checkpoint and go on when the grid is cleaner, or raise the limit.",
    ),
    # The watching itself
    Alert(
        name="PulsetrainDown",
        topic="watching",
        severity="warning",
        when='up{job=~".*pulsetrain.*"} == 0',
        hold="5m",
        summary="{{ $labels.instance }} cannot be scraped",
        description="pulsetrain does not run there, or its port cannot be reached: nothing is known of that machine.",
        help="systemctl status pulsetrain on the machine; then firewall, address and port.",
    ),
    Alert(
        name="PulsetrainSourceDown",
        topic="watching",
        severity="warning",
        when=(Condition("host", "source_up", "==", 0),),
        hold="5m",
        summary="{{ $labels.source }} cannot be read on {{ $labels.host }}",
        description="Its metrics are missing meanwhile; the others go on.",
        help="pulsetrain doctor on that machine tells what is wrong.",
    ),
    Alert(
        name="PulsetrainDataOld",
        topic="watching",
        severity="warning",
        when='pulsetrain_data_age_seconds{data="machine"} > @data_age_seconds',
        hold="2m",
        summary="The newest reading of {{ $labels.host }} is {{ $value | humanizeDuration }} old",
        description="pulsetrain answers there, but has read nothing for more than @data_age_seconds s.",
        help="A suspended machine, a hanging driver, a remote run that is no longer synced: pulsetrain doctor there.",
    ),
)

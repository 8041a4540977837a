"""Every value that pulsetrain judges by, with its default: alerts, findings and the colors of live views share them.

A user changes them in the section `[thresholds]` of pulsetrain.toml; docs/alerts.md lists them.
"""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from pulsetrain.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_UNIT_SECONDS = {
    "ms": 0.001,
    "s": 1.0,
    "m": SECONDS_PER_MINUTE,
    "h": SECONDS_PER_HOUR,
    "d": SECONDS_PER_DAY,
    "w": 7 * SECONDS_PER_DAY,
    "y": 365 * SECONDS_PER_DAY,
}

Duration = Annotated[str, Meta(pattern=r"^([0-9]+(ms|[smhdwy]))+$|^0$")]
"""As Prometheus writes it: 30s, 5m, 1h30m."""


def is_duration(text: str) -> bool:
    """Whether a text is a duration such as 1h30m."""
    return re.fullmatch(f"(?:{_PART.pattern})+", text) is not None


def duration_seconds(duration: str) -> float:
    """The length of a duration such as 1h30m."""
    return sum(int(count) * _UNIT_SECONDS[unit] for count, unit in _PART.findall(duration))


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section `[thresholds]`. A rule whose limit is None is switched off."""

    # GPUs
    gpu_hot_celsius: Annotated[float, Meta(description="A GPU is hot above this.")] = 80.0
    gpu_too_hot_celsius: Annotated[float, Meta(description="A GPU is dangerously hot above this.")] = 90.0
    gpu_memory_full_percent: Annotated[float, Meta(description="GPU memory is nearly full above this.")] = 90.0
    gpu_memory_exhausted_percent: Annotated[
        float, Meta(description="GPU memory may run out at any step above this.")
    ] = 97.0
    fan_needed_celsius: Annotated[float, Meta(description="A fan must turn above this.")] = 60.0
    throttled_ratio: Annotated[float, Meta(description="A GPU is throttled above this share of 10 minutes.")] = 0.5
    slow_clock_ratio: Annotated[float, Meta(description="A GPU is slow below this share of its peers' clock.")] = 0.8
    # How GPUs are used
    idle_percent: Annotated[float, Meta(description="A GPU is idle up to this utilization.")] = 1.0
    busy_percent: Annotated[float, Meta(description="A GPU is busy above this utilization.")] = 50.0
    underused_percent: Annotated[float, Meta(description="A run uses its GPU poorly below this.")] = 30.0
    held_memory_percent: Annotated[float, Meta(description="A GPU with more memory in use is held by a process.")] = 5.0
    gpu_context_mb: Annotated[
        float, Meta(description="A process that uses a GPU takes more of its memory than this, in MiB.")
    ] = 100.0
    # The machine
    host_memory_full_percent: Annotated[
        float, Meta(description="The memory of a machine is nearly full above this.")
    ] = 90.0
    host_memory_ratio: Annotated[float, Meta(description="Share of a machine's memory that must stay available.")] = (
        0.05
    )
    memory_ahead_minutes: Annotated[
        float, Meta(description="Memory that keeps growing is an alert when it will be full within this.")
    ] = 60.0
    disk_free_ratio: Annotated[float, Meta(description="A disk is nearly full below this share of free space,")] = 0.05
    disk_free_gb: Annotated[float, Meta(description="and fewer GB than this are free.")] = 20.0
    cpu_saturated_ratio: Annotated[float, Meta(description="All cores are busy above this share.")] = 0.9
    other_programs_ratio: Annotated[
        float, Meta(description="Other programs are in the way above this share of all cores.")
    ] = 0.2
    crowded_ratio: Annotated[
        float, Meta(description="A machine is crowded above this many runnable programs per core.")
    ] = 2.0
    # The training loop
    stalled_steps: Annotated[float, Meta(description="A loop has stalled when silent for this many usual steps,")] = (
        20.0
    )
    stalled_seconds: Annotated[float, Meta(description="and for at least this long.")] = 300.0
    loss_window: Annotated[Duration, Meta(description="The loss must fall within this time,")] = "2h"
    loss_fall_ratio: Annotated[float, Meta(description="by at least this share.")] = 0.005
    exploding_gradient_norm: Annotated[float, Meta(description="Gradients explode above this.")] = 10.0
    vanishing_gradient_norm: Annotated[float, Meta(description="Gradients vanish below this.")] = 1e-7
    data_wait_ratio: Annotated[float, Meta(description="Share of the step that may go into waiting for data.")] = 0.2
    straggler_ratio: Annotated[
        float, Meta(description="Share of the step by which a rank may work longer than the median rank.")
    ] = 0.1
    slowed_ratio: Annotated[float, Meta(description="A run has slowed down below this share of its usual pace.")] = 0.7
    short_step_seconds: Annotated[
        float, Meta(description="Starting kernels from Python takes a good part of a step below this.")
    ] = 0.02
    # Where the time of a run went
    copy_ratio: Annotated[float, Meta(description="Share of the training time for copies to the GPU.")] = 0.1
    communication_ratio: Annotated[
        float, Meta(description="Share of the training time for communication between ranks.")
    ] = 0.2
    checkpoint_ratio: Annotated[float, Meta(description="Share of the training time for checkpoints.")] = 0.1
    evaluation_ratio: Annotated[float, Meta(description="Share of the training time for evaluation.")] = 0.3
    logging_ratio: Annotated[float, Meta(description="Share of the training time for logging.")] = 0.1
    residual_ratio: Annotated[float, Meta(description="Share of a step outside its known parts.")] = 0.3
    startup_ratio: Annotated[float, Meta(description="Share of a run before its first step,")] = 0.2
    startup_seconds: Annotated[float, Meta(description="and at least this long.")] = 120.0
    compute_ratio: Annotated[float, Meta(description="A run is compute-bound above this share.")] = 0.8
    pause_seconds: Annotated[float, Meta(description="In a recorded run, a stall is at least this long,")] = 2.0
    stall_ratio: Annotated[float, Meta(description="and this share of the training time.")] = 0.05
    outlier_count: Annotated[float, Meta(description="More outlying steps than this are a finding.")] = 10.0
    outlier_deviations: Annotated[float, Meta(description="An outlying step is this many robust deviations off.")] = 8.0
    outlier_cost_ratio: Annotated[float, Meta(description="Share of the time that outlying steps may cost.")] = 0.2
    least_cost_ratio: Annotated[
        float, Meta(description="What holds a run back is a warning when it costs this share of its time,")
    ] = 0.05
    least_cost_seconds: Annotated[float, Meta(description="and at least this long.")] = 1.0
    # How well the machine is used
    iowait_ratio: Annotated[float, Meta(description="A machine waits for its disks above this share.")] = 0.5
    unused_percent: Annotated[float, Meta(description="A resource never used above this has room.")] = 70.0
    tiny_batch_samples: Annotated[float, Meta(description="Batches of up to this many samples are tiny,")] = 4.0
    optimizer_ratio: Annotated[
        float, Meta(description="where the optimizer takes more than this share of the compute time.")
    ] = 0.25
    tensor_ratio: Annotated[float, Meta(description="Tensor cores are not used below this activity.")] = 0.02
    imbalance_ratio: Annotated[
        float, Meta(description="Work is uneven when the least and the most differ by this.")
    ] = 0.3
    lowered_limit_ratio: Annotated[
        float, Meta(description="A power limit below this share of the maximum was lowered by someone.")
    ] = 0.7
    memory_growth_ratio: Annotated[float, Meta(description="Memory grows when it rises by more than this,")] = 0.1
    memory_growth_mb: Annotated[float, Meta(description="and by more than this, in MiB.")] = 64.0
    # What is learned
    nonfinite_gradient_ratio: Annotated[
        float, Meta(description="Share of steps whose gradients may be infinite, as mixed precision allows.")
    ] = 0.1
    loss_reports: Annotated[float, Meta(description="How many losses it takes to judge their trend.")] = 50.0
    loss_rise_ratio: Annotated[float, Meta(description="A loss may end this far above its lowest.")] = 0.2
    loss_spike_ratio: Annotated[float, Meta(description="A loss spikes above this many times its recent level,")] = 2.0
    loss_spike_deviations: Annotated[float, Meta(description="and this many robust standard deviations.")] = 8.0
    gradient_rise_ratio: Annotated[
        float, Meta(description="Gradients explode above this many times their usual norm.")
    ] = 10.0
    overfit_rise_ratio: Annotated[float, Meta(description="A validation loss may rise this far above its best.")] = 0.05
    padding_ratio: Annotated[float, Meta(description="Share of the tokens that may be padding.")] = 0.5
    # Differences between runs
    busy_difference_ratio: Annotated[
        float, Meta(description="GPUs whose busy time differs by less than this are used alike.")
    ] = 0.1
    time_share_ratio: Annotated[
        float, Meta(description="A share of the time that grew by less than this is not named as a cause.")
    ] = 0.05
    same_work_ratio: Annotated[
        float, Meta(description="GPUs did the same work when kernel time per sample differs by less than this.")
    ] = 0.15
    small_batch_ratio: Annotated[float, Meta(description="Batches are small below this share of the other run's.")] = (
        0.8
    )
    # The watching itself, and budgets
    data_age_seconds: Annotated[float, Meta(description="Readings of a machine are too old beyond this.")] = 60.0
    cost_limit: Annotated[float | None, Meta(description="The most a run may cost, in the currency of its price.")] = (
        None
    )
    energy_limit_kwh: Annotated[float | None, Meta(description="The most energy a run may use.")] = None
    carbon_limit_kg: Annotated[float | None, Meta(description="The most a run may emit, in CO2 equivalents.")] = None
    time_limit_hours: Annotated[float | None, Meta(description="The most hours a run may take.")] = None
    hold: Annotated[
        dict[str, Duration], Meta(description="How long a condition must hold before the rule of that name fires.")
    ] = {}
    off: Annotated[frozenset[str], Meta(description="Names of rules to switch off.")] = frozenset()


DEFAULTS = Thresholds()

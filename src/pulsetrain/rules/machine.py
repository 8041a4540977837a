"""Rules about the health of GPUs and machines."""

from pulsetrain.catalog.xids import xid_advice, xid_labels
from pulsetrain.rules.expression import (
    Earlier,
    Expression,
    Logic,
    Signal,
    Threshold,
    both,
    compared,
    either,
    gpu,
    increase_over,
    mean_over,
    median_of_peers,
    risen,
    share_of_samples,
    signal,
)
from pulsetrain.rules.recording import CLOCK_RATIO
from pulsetrain.rules.rule import RecordTest, Rule

_BUSY = Threshold("busy_percent")
_BYTES_PER_GB = 1e9


def _while_shown(of: Expression) -> Logic:
    """Of GPUs that somebody shows now: a window reaches beyond the end of a run that was the only one to."""
    return both(of, gpu("up"), on=("host", "uuid", "run"))


def _xids(*, critical: bool) -> Logic:
    """Errors of the last minutes. Those of a lost GPU count as well: it is shown as lost."""
    return _while_shown(risen("10m", gpu("xid_code_errors", xid=xid_labels(critical=critical))))


def _minutes_to_full(used: Signal, size: Signal) -> Logic:
    """Minutes until memory is full at its present pace, where it has grown as fast for ten minutes.

    A jump, as when a model is loaded, is in one of the two windows alone.
    """
    before, long_before = Earlier(used, "5m"), Earlier(used, "10m")
    growth, growth_before = used - before, before - long_before
    minutes = (size - used) / growth * 5
    return both(
        both(minutes < Threshold("memory_ahead_minutes"), growth > 0),
        both(growth_before * 2 > growth, growth_before > 0),
    )


_DISK_FREE_RATIO = signal("host", "filesystem_available_bytes") / signal("host", "filesystem_size_bytes")

RULES = (
    Rule(
        name="GpuLost",
        topic="machine",
        severity="critical",
        when=gpu("up").equals(0),
        hold="1m",
        summary="GPU {gpu} on {host} no longer answers",
        description="The driver cannot reach it: it fell off the bus, or a container lost access to it.",
        advice="Look for XID errors in the kernel log. Reset the GPU, or reboot; if it recurs, replace the board.",
        on_record=RecordTest(
            summary="GPU {gpu} stopped answering {lost:.0f} times",
            computed="Any reading at which a GPU that answered before did not.",
            explains=("IdleGpu", "LowGpuUtilization", "LoadImbalance"),
        ),
    ),
    Rule(
        name="GpuHot",
        topic="machine",
        severity="warning",
        when=gpu("temperature_celsius") > Threshold("gpu_hot_celsius"),
        hold="5m",
        margin=0.04,
        summary="GPU {gpu} on {host} is at {value:.0f} °C",
        description="Above {gpu_hot_celsius} °C. Most boards lower their clocks not far above that.",
        advice="Check fans, airflow and room temperature. A lower power limit (nvidia-smi -pl) costs little speed.",
    ),
    Rule(
        name="GpuHot",
        topic="machine",
        severity="critical",
        when=gpu("temperature_celsius") > Threshold("gpu_too_hot_celsius"),
        hold="1m",
        margin=0.04,
        summary="GPU {gpu} on {host} is at {value:.0f} °C",
        description="Above {gpu_too_hot_celsius} °C: boards slow down hard, and switch off soon after.",
        advice="Pause the run or lower the power limit now (nvidia-smi -pl), then look at the cooling.",
    ),
    Rule(
        name="MemoryPressure",
        topic="machine",
        severity="info",
        when=gpu("memory_percent") > Threshold("gpu_memory_full_percent"),
        hold="5m",
        margin=0.05,
        summary="GPU {gpu} on {host} has {value:.0f} % of its memory in use",
        description="Above {gpu_memory_full_percent} %. A longer batch or a validation pass may run out of memory.",
        advice="Fine as long as it does not run out. Otherwise use a smaller batch or activation checkpointing.",
        on_record=RecordTest(
            summary="GPU {gpu} had {memory_percent:.0f} % of its memory in use",
            computed="The peak of memory in use is above {gpu_memory_full_percent} %; a warning above "
            "{gpu_memory_exhausted_percent} %.",
            severity="warning",
            thresholds=("gpu_memory_full_percent", "gpu_memory_exhausted_percent"),
        ),
    ),
    Rule(
        name="MachineEndAnnounced",
        topic="machine",
        severity="critical",
        when=signal("host", "end_announced").equals(1),
        summary="{host} is about to be reclaimed by its cloud provider",
        description="Spot machines get short notice: 30 seconds on Google Cloud and Azure, two minutes on AWS.",
        advice="Save a checkpoint now; --on-alert MachineEndAnnounced=checkpoint tells the program to.",
    ),
    Rule(
        name="GpuXidError",
        topic="machine",
        severity="critical",
        when=_xids(critical=True),
        summary="GPU {gpu} on {host} reported XID {xid}",
        description="The driver reported a fault of the GPU, its memory or its links within the last 10 minutes.",
        advice=f"From NVIDIA's list: {xid_advice(critical=True)}",
    ),
    Rule(
        name="GpuXidError",
        topic="machine",
        severity="warning",
        when=_xids(critical=False),
        summary="GPU {gpu} on {host} reported XID {xid}",
        description="The driver reported an error within the last 10 minutes that leaves the GPU usable. Most often it "
        "is the program's fault.",
        advice=f"From NVIDIA's list: {xid_advice(critical=False)} Other numbers are in the run's events.",
    ),
    Rule(
        name="GpuEccUncorrected",
        topic="machine",
        severity="critical",
        when=_while_shown(increase_over("1h", gpu("ecc_uncorrected_errors")) > 0),
        summary="GPU {gpu} on {host} had a memory error that ECC could not correct",
        description="Data in GPU memory was lost within the last hour; the program using it has crashed or has wrong "
        "data.",
        advice="Go back to the last checkpoint before it. Reset the GPU; if it recurs, replace the board.",
    ),
    Rule(
        name="GpuRowsRemapPending",
        topic="machine",
        severity="warning",
        when=gpu("remapped_rows_pending").equals(1),
        summary="GPU {gpu} on {host} needs a reset to remap bad memory rows",
        description="Rows with errors are still in use until the GPU is reset.",
        advice="Reset the GPU (nvidia-smi --gpu-reset) when the run has ended.",
    ),
    Rule(
        name="GpuRowsRemapFailed",
        topic="machine",
        severity="critical",
        when=gpu("remapped_rows_failed").equals(1),
        summary="GPU {gpu} on {host} could not remap a bad memory row",
        description="It has no spare rows left: further errors will hit programs.",
        advice="Take the board out of service and replace it.",
    ),
    Rule(
        name="ThermalThrottle",
        topic="machine",
        severity="warning",
        when=_while_shown(
            share_of_samples(gpu("throttle_reasons", reason=("hw_thermal", "sw_thermal")), gpu("up"), "10m", "reason")
            > Threshold("throttled_ratio")
        ),
        hold="5m",
        margin=0.2,
        summary="GPU {gpu} on {host} is slowed by heat",
        description="Its clocks were lowered to cool it for {value:percent} of the last 10 minutes.",
        advice="Check fans, airflow and neighboring boards. A lower power limit is better than an unsteady clock.",
        on_record=RecordTest(
            summary="GPU {gpu} was slowed by heat {throttled_share:share} of the time{heat}",
            computed="Share of readings while training with a thermal throttle reason, above {throttled_ratio} of any "
            "10 minutes.",
            thresholds=("throttled_ratio",),
            explains=("SlowedDown", "Straggler"),
        ),
    ),
    Rule(
        name="PowerCap",
        topic="machine",
        severity="info",
        when=_while_shown(
            share_of_samples(
                gpu("throttle_reasons", reason=("sw_power_cap", "hw_power_brake")), gpu("up"), "10m", "reason"
            )
            > Threshold("throttled_ratio")
        ),
        hold="30m",
        margin=0.2,
        summary="GPU {gpu} on {host} is at its power limit",
        description="For {value:percent} of the last 10 minutes. Normal at full load.",
        advice="Did someone lower the limit (nvidia-smi -q -d POWER)? With hw_power_brake, check the power supply.",
        on_record=RecordTest(
            summary="GPU {gpu} was at its power limit {throttled_share:share} of the time{lowered}",
            computed="Share of readings with a power throttle reason, above {throttled_ratio} of any 10 minutes. A "
            "warning where the limit is below {lowered_limit_ratio} of the board's maximum, or the power supply "
            "brakes the GPU; otherwise normal at full load.",
            severity="warning",
            thresholds=("throttled_ratio", "lowered_limit_ratio"),
        ),
    ),
    Rule(
        name="GpuFanStopped",
        topic="machine",
        severity="critical",
        when=both(gpu("fan_speed_percent").equals(0), gpu("temperature_celsius") > Threshold("fan_needed_celsius")),
        hold="2m",
        margin=0.1,
        summary="The fan of GPU {gpu} on {host} is not turning",
        description="The GPU is above {fan_needed_celsius} °C, and its fan speed is set to 0.",
        advice="Check the fan and its control (nvidia-settings). Pause the run until it turns.",
    ),
    Rule(
        name="GpuPcieLinkSlow",
        topic="machine",
        severity="warning",
        when=either(
            gpu("pcie_width") < gpu("pcie_max_width"),
            both(gpu("pcie_generation") < gpu("pcie_max_generation"), gpu("utilization_percent") > _BUSY),
        ),
        hold="10m",
        summary="The PCIe link of GPU {gpu} on {host} is below its maximum",
        description="It uses fewer lanes, or under load a lower generation, than the board and slot support.",
        advice="Reseat the board, and check risers and the slot's BIOS settings; copies to the GPU are slow until "
        "then.",
    ),
    Rule(
        name="GpuSlowerThanPeers",
        topic="machine",
        severity="warning",
        when=both(
            compared(CLOCK_RATIO, "<", Threshold("slow_clock_ratio") * median_of_peers(CLOCK_RATIO, "run"), ("run",)),
            mean_over("10m", gpu("utilization_percent")) > _BUSY,
            on=("host", "uuid"),
        ),
        hold="10m",
        margin=0.05,
        summary="GPU {gpu} on {host} is slower than its peers",
        description="Its clock is at {value:percent} of its maximum. The others wait for it.",
        advice="Compare its throttle reasons, temperature and power limit with the others'. Or leave it out.",
    ),
    Rule(
        name="HostMemoryLow",
        topic="machine",
        severity="warning",
        when=signal("host", "memory_available_bytes") / signal("host", "memory_total_bytes")
        < Threshold("host_memory_ratio"),
        hold="5m",
        margin=0.2,
        summary="{host} has {value:percent} of its memory left",
        description="When none is left the kernel kills the largest process, most likely the training.",
        advice="Use fewer data loader workers or a smaller cache. Check what else runs there.",
    ),
    Rule(
        name="OutOfMemoryAhead",
        topic="machine",
        severity="warning",
        when=_minutes_to_full(gpu("memory_used_mb"), gpu("memory_total_mb")),
        hold="5m",
        summary="The memory of GPU {gpu} on {host} will be full in about {value:.0f} minutes",
        description="It has grown steadily for more than ten minutes.",
        advice="Something is kept from step to step: losses added up with their graphs, outputs in a list, growing "
        "batches. Use loss.item() or detach(); save a checkpoint before it runs out.",
    ),
    Rule(
        name="HostOutOfMemoryAhead",
        topic="machine",
        severity="warning",
        when=_minutes_to_full(signal("host", "memory_used_bytes"), signal("host", "memory_total_bytes")),
        hold="5m",
        summary="The memory of {host} will be full in about {value:.0f} minutes",
        description="It has grown steadily for more than ten minutes.",
        advice="Look for a growing list, data loader workers that each copy the data, or a cache without a limit. When "
        "memory is full, the kernel kills the training.",
    ),
    Rule(
        name="DiskNearlyFull",
        topic="machine",
        severity="warning",
        when=both(
            _DISK_FREE_RATIO < Threshold("disk_free_ratio"),
            signal("host", "filesystem_available_bytes") / _BYTES_PER_GB < Threshold("disk_free_gb"),
        ),
        hold="1m",
        margin=0.2,
        summary="The disk of {path} on {host} has {value:percent} free",
        description="Less than {disk_free_gb} GB. Checkpoints and records cannot be written when it is full.",
        advice="Remove old checkpoints; pulsetrain runs prune removes old runs.",
    ),
)

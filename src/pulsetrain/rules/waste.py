"""Rules about GPUs that are held and not used."""

from pulsetrain.rules.expression import Threshold, both, gpu, mean_over, unless
from pulsetrain.rules.recording import HELD, of_runs
from pulsetrain.rules.rule import DeclaredRule, RecordTest, Rule

_IDLE = Threshold("idle_percent")

RULES = (
    Rule(
        name="IdleGpu",
        topic="waste",
        severity="warning",
        when=of_runs(gpu("utilization_percent")) <= _IDLE,
        hold="15m",
        margin=1,
        summary="GPU {gpu} on {host} belongs to run {run} but is idle",
        description="No kernel ran on it all that time. It costs as much as a busy one.",
        advice="Is the run hung or waiting for data? Does it need this GPU? If not, leave it to others with "
        "CUDA_VISIBLE_DEVICES.",
        on_record=RecordTest(
            summary="{idle:.0f} of {gpus:.0f} GPUs were idle",
            computed="Mean utilization while training is at most {idle_percent} %.",
            thresholds=("idle_percent",),
            holds_back=True,
            explains=("LowGpuUtilization", "LoadImbalance", "BatchTooSmall"),
        ),
    ),
    Rule(
        name="GpuHeldIdle",
        topic="waste",
        severity="info",
        when=unless(
            both(gpu("utilization_percent") <= _IDLE, gpu("memory_percent") > Threshold("held_memory_percent")),
            HELD,
            on=("host", "uuid"),
        ),
        hold="1h",
        summary="GPU {gpu} on {host} is held by a process but idle",
        description="A process keeps memory on it, often a forgotten notebook, and no kernel ran on it.",
        advice="process_gpu_memory_mb shows whose process it is.",
    ),
    Rule(
        name="LowGpuUtilization",
        topic="waste",
        severity="info",
        when=of_runs(mean_over("15m", gpu("utilization_percent"))) < Threshold("underused_percent"),
        hold="15m",
        margin=0.2,
        summary="GPU {gpu} on {host} is busy {value:.0f} % of the time",
        description="Below {underused_percent} % over 15 minutes.",
        advice="See where the step's time goes: waiting for data, small batches, work on the CPU.",
        on_record=RecordTest(
            summary="The GPUs were busy {gpu_busy_share:share} of the training time",
            computed="Mean utilization while training is below {underused_percent} %. It is a symptom: a finding that "
            "explains it is listed first.",
            severity="warning",
            thresholds=("underused_percent",),
            holds_back=True,
        ),
    ),
)

RECORD_RULES = (
    DeclaredRule(
        name="CpuBottleneck",
        topic="waste",
        severity="warning",
        description="The GPU has nothing to do while all cores of the machine are busy.",
        advice="Use a machine with more cores, move transforms to the GPU, or prepare the data once; check what else "
        "runs there.",
        on_record=RecordTest(
            summary="{bottleneck_share:share} of the time, the GPUs are idle while all {cpu_cores:.0f} cores are busy",
            computed="GPU utilization is below 10 % while the CPUs are above {cpu_saturated_ratio}, in more than half "
            "of the readings while training.",
            thresholds=("cpu_saturated_ratio",),
            holds_back=True,
            explains=("LowGpuUtilization", "IdleGpu"),
        ),
    ),
    DeclaredRule(
        name="IoBottleneck",
        topic="waste",
        severity="warning",
        description="The GPU waits while the machine waits for its disks.",
        advice="Use a local SSD, cache the dataset in memory, or pack it into fewer, larger files.",
        on_record=RecordTest(
            summary="{bottleneck_share:share} of the time, the machine waits for its disks and the GPUs are not fully "
            "used",
            computed="iowait is above {iowait_ratio} and GPU utilization below 70 %, in more than half of the "
            "readings.",
            thresholds=("iowait_ratio",),
            holds_back=True,
            explains=("LowGpuUtilization",),
        ),
    ),
    DeclaredRule(
        name="BatchTooSmall",
        topic="waste",
        severity="warning",
        description="Each step has a fixed cost, whatever its batch size: with few samples most of it is overhead.",
        advice="Use a larger batch, with the learning rate scaled to it, or a smaller GPU.",
        on_record=RecordTest(
            summary="Batches of {batch:.3g} {per}: {why}",
            computed="At most {tiny_batch_samples} samples in a pass, while the optimizer, which costs the same for "
            "any batch, takes more than {optimizer_ratio} of the compute time. On a GPU: the 95th percentiles of CPU, "
            "GPU and GPU memory are all below {unused_percent} %.",
            thresholds=("tiny_batch_samples", "optimizer_ratio", "unused_percent"),
            holds_back=True,
            explains=("LowGpuUtilization", "LaunchBound", "LoggingHeavy", "InputBound"),
        ),
    ),
    DeclaredRule(
        name="NoTensorCores",
        topic="waste",
        severity="warning",
        description="The device has tensor cores, but the training does not use them.",
        advice="Use mixed precision: torch.autocast with bfloat16, or torch.set_float32_matmul_precision('high') for "
        "TF32.",
        on_record=RecordTest(
            summary="The tensor cores were busy {tensor_share:share} of the time, the GPU {gpu_busy_share:share}",
            computed="Activity of the tensor cores is below {tensor_ratio} while the GPU is busy more than "
            "{busy_percent} %. Only Hopper and newer report it.",
            thresholds=("tensor_ratio", "busy_percent"),
        ),
    ),
    DeclaredRule(
        name="LoadImbalance",
        topic="waste",
        severity="warning",
        description="GPUs or ranks of one run have unequal shares of the work: the fast ones wait for the slow ones.",
        advice="Use equal shards and batches of about equal length; for pipelines, move layers between stages.",
        on_record=RecordTest(
            summary="The work is uneven: {least:share} to {most:share} {what}",
            computed="The utilization of the run's GPUs, or the samples or tokens of its ranks, differ by more than "
            "{imbalance_ratio} between the least and the most.",
            thresholds=("imbalance_ratio",),
        ),
    ),
    DeclaredRule(
        name="MemoryGrowth",
        topic="machine",
        severity="warning",
        description="Memory keeps rising while the training is steady: something is kept that should be released.",
        advice="Look for losses or outputs kept with their graph (use .item() or .detach()), growing lists, and "
        "caches in the loader.",
        on_record=RecordTest(
            summary="{whose} memory rises by {growth_mb_per_second:.3g} MiB a second{until_full}",
            computed="After the warm-up, memory rises in each third of the run, by more than {memory_growth_ratio} and "
            "{memory_growth_mb} MiB in all. Time until memory is full: what is left, at that pace.",
            thresholds=("memory_growth_ratio", "memory_growth_mb"),
        ),
    ),
)
"""Those that are judged on recorded runs alone."""

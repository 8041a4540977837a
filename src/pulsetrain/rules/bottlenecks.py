"""Rules about where the time of a run went. They are judged on its record, by the time ledger and the steady steps."""

from pulsetrain.rules.rule import DeclaredRule, RecordTest

RULES = (
    DeclaredRule(
        name="HostToDeviceBound",
        topic="training",
        severity="warning",
        description="The GPU waits while batches are copied to it.",
        advice="Set pin_memory=True in the loader, use .to(device, non_blocking=True) and smaller types, and augment "
        "on the GPU.",
        on_record=RecordTest(
            summary="{copy_share:share} of the training time goes into copying batches to the GPU",
            computed="The `copy` class of the time ledger takes more than {copy_ratio} of the training time.",
            thresholds=("copy_ratio",),
            holds_back=True,
            explains=("LowGpuUtilization",),
        ),
    ),
    DeclaredRule(
        name="LaunchBound",
        topic="training",
        severity="warning",
        description="Python cannot start kernels as fast as the GPU finishes them, so the GPU has gaps between them.",
        advice="Try torch.compile, CUDA graphs, a larger batch or fused optimizers; avoid .item() and printing in the "
        "loop.",
        on_record=RecordTest(
            summary="Steps of {step_seconds:time} max out one CPU core, but keep the GPU busy only "
            "{gpu_busy_share:share} of the time",
            computed="One process keeps one core fully busy, no step waits for data, steps are shorter than "
            "{short_step_seconds} s, and the GPU is busy less than {busy_percent} % of the time.",
            thresholds=("short_step_seconds", "busy_percent", "data_wait_ratio"),
            holds_back=True,
            explains=("LowGpuUtilization",),
        ),
    ),
    DeclaredRule(
        name="CommunicationBound",
        topic="training",
        severity="warning",
        description="Ranks spend much of their time exchanging gradients or weights.",
        advice="Accumulate gradients over several batches, use larger buckets or bfloat16 gradients, or get a faster "
        "link.",
        on_record=RecordTest(
            summary="{communication_share:share} of the training time goes into communication between ranks",
            computed="The `communication` class of the time ledger takes more than {communication_ratio} of the "
            "training time, and no rank holds up the others.",
            thresholds=("communication_ratio",),
            holds_back=True,
            explains=("LowGpuUtilization",),
        ),
    ),
    DeclaredRule(
        name="CheckpointHeavy",
        topic="training",
        severity="warning",
        description="Training stops while checkpoints are written.",
        advice="Save less often, save asynchronously (torch.distributed.checkpoint.async_save), or to a faster disk.",
        on_record=RecordTest(
            summary="{checkpoint_share:share} of the training time goes into checkpoints",
            computed="The `checkpoint` class of the time ledger takes more than {checkpoint_ratio} of the training "
            "time.",
            thresholds=("checkpoint_ratio",),
            holds_back=True,
            explains=("StepOutliers", "LowGpuUtilization"),
        ),
    ),
    DeclaredRule(
        name="EvaluationHeavy",
        topic="training",
        severity="warning",
        description="Much of the time goes into evaluation instead of training.",
        advice="Evaluate less often, on fewer samples, with larger batches, or in a separate run.",
        on_record=RecordTest(
            summary="{evaluation_share:share} of the training time goes into evaluation",
            computed="The `evaluation` class of the time ledger takes more than {evaluation_ratio} of the training "
            "time.",
            thresholds=("evaluation_ratio",),
            holds_back=True,
            explains=("StepOutliers", "LowGpuUtilization"),
        ),
    ),
    DeclaredRule(
        name="LoggingHeavy",
        topic="training",
        severity="warning",
        description="Logging, or other work between steps, holds up the loop.",
        advice="Log every 50 steps, in a thread or asynchronously; avoid .item(), printing and plotting in every step.",
        on_record=RecordTest(
            summary="{logging_share:share} of the training time goes into {work}",
            computed="The `logging` class of the time ledger takes more than {logging_ratio} of the training time. "
            "Where no tracker calls were seen: more than {residual_ratio} of the steady steps, and of most single "
            "ones, is outside data, forward, backward and optimizer; confidence is then low.",
            thresholds=("logging_ratio", "residual_ratio"),
            holds_back=True,
            explains=("StepOutliers", "LowGpuUtilization"),
        ),
    ),
    DeclaredRule(
        name="StartupHeavy",
        topic="training",
        severity="warning",
        description="A good part of the run passed before its first step.",
        advice="Import less and lazily, keep weights and datasets on a local disk and the compile cache warm, or run "
        "longer.",
        on_record=RecordTest(
            summary="{startup_seconds:time} passed before the first step, {startup_share:share} of the run",
            computed="The `startup` and `compile` classes of the time ledger take more than {startup_ratio} of the "
            "run and {startup_seconds} s.",
            thresholds=("startup_ratio", "startup_seconds"),
        ),
    ),
    DeclaredRule(
        name="StepOutliers",
        topic="training",
        severity="warning",
        description="Some steps take many times longer than usual, without an evaluation or a checkpoint in them.",
        advice="Look for what they share: a full garbage collection, a slow disk, longer batches, other programs, "
        "heat.",
        on_record=RecordTest(
            summary="{outliers:.0f} of {steps:.0f} steps took more than {outlier_ratio:.3g} times as long as usual",
            computed="Per class of step: more than {outlier_count} steps lie {outlier_deviations} robust standard "
            "deviations above the median and take twice as long. A warning when they cost more than "
            "{outlier_cost_ratio} of the time and take over 0.1 s longer: shorter ones may be other programs taking "
            "the CPU.",
            thresholds=("outlier_count", "outlier_deviations", "outlier_cost_ratio"),
            holds_back=True,
        ),
    ),
    DeclaredRule(
        name="ComputeBound",
        topic="training",
        severity="info",
        description="The time goes into computing, as it should: nothing holds the run back.",
        advice="To go faster, use lower precision, torch.compile, a faster device, or more devices.",
        on_record=RecordTest(
            summary="computing takes {compute_share:share} of a steady step",
            computed="Forward, backward and optimizer take at least {compute_ratio} of a steady step, the GPUs, if "
            "any, are at least that busy, and no warning was found.",
            thresholds=("compute_ratio",),
        ),
    ),
    DeclaredRule(
        name="NodeVanished",
        topic="machine",
        severity="critical",
        description="A host of the run fell silent: it crashed, lost the shared folder, or was taken away.",
        advice="Check its kernel log and the scheduler's; restart from the last checkpoint without it.",
        on_record=RecordTest(
            summary="{hosts} fell silent after {after:time}{lost}",
            computed="The end of the host's command was not recorded, no process holds its lock, and its lines end "
            "before those of the other hosts.",
            explains=("Stalled", "Straggler", "IdleGpu", "LowGpuUtilization", "LoadImbalance"),
        ),
    ),
)

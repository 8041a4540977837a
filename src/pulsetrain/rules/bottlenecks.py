"""Rules about where the time of a run went. They are judged on its record, by the time ledger and the steady steps."""

from pulsetrain.rules.rule import DeclaredRule, RecordTest

RULES = (
    DeclaredRule(
        name="HostToDeviceBound",
        topic="training",
        severity="warning",
        description="The GPU waits while batches are copied to it.",
        advice="pin_memory=True in the loader, .to(device, non_blocking=True), smaller types; augment on the GPU.",
        on_record=RecordTest(
            summary="{copy_share:share} of the training time copies batches to the GPU",
            computed="The class `copy` of the time ledger, of the time in training, is above {copy_ratio}.",
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
        advice="torch.compile, CUDA graphs, a larger batch, fused optimizers; no .item() and no printing in the loop.",
        on_record=RecordTest(
            summary="Steps of {step_seconds:time} keep one CPU core full, and the GPU busy {gpu_busy_share:share}",
            computed="One process keeps one core full, no step waits for data, steps are shorter than "
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
        advice="Accumulate gradients over several batches, larger buckets, gradients in bfloat16, a faster link.",
        on_record=RecordTest(
            summary="{communication_share:share} of the training time goes into communication between ranks",
            computed="The class `communication` of the time ledger, of the time in training, is above "
            "{communication_ratio}, and no rank holds the others up.",
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
            computed="The class `checkpoint` of the time ledger, of the time in training, is above {checkpoint_ratio}.",
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
        advice="Evaluate less often, on fewer samples, with larger batches, or in a run of its own.",
        on_record=RecordTest(
            summary="{evaluation_share:share} of the training time goes into evaluation",
            computed="The class `evaluation` of the time ledger, of the time in training, is above {evaluation_ratio}.",
            thresholds=("evaluation_ratio",),
            holds_back=True,
            explains=("StepOutliers", "LowGpuUtilization"),
        ),
    ),
    DeclaredRule(
        name="LoggingHeavy",
        topic="training",
        severity="warning",
        description="Logging, or other work of the program between its steps, holds the loop up.",
        advice="Log every 50 steps, in a thread or asynchronously; no .item(), print or plot in each step.",
        on_record=RecordTest(
            summary="{logging_share:share} of the training time goes into {work}",
            computed="The class `logging` of the time ledger, of the time in training, is above {logging_ratio}. "
            "Where no tracker's calls were seen: the time of the steady steps, and of most of them, outside data, "
            "forward, backward and optimizer, at low confidence, above {residual_ratio}.",
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
        advice="Fewer and lazier imports, weights and datasets on a local disk, a warm compile cache; longer runs.",
        on_record=RecordTest(
            summary="{startup_seconds:time} passed before the first step, {startup_share:share} of the run",
            computed="The classes `startup` and `compile` of the time ledger are above {startup_ratio} of the run and "
            "{startup_seconds} s.",
            thresholds=("startup_ratio", "startup_seconds"),
        ),
    ),
    DeclaredRule(
        name="StepOutliers",
        topic="training",
        severity="warning",
        description="Some steps take many times longer than usual, without an evaluation or a checkpoint in them.",
        advice="Compare what they share: a full garbage collection, a slow disk, longer batches, other programs, heat.",
        on_record=RecordTest(
            summary="{outliers:.0f} of {steps:.0f} steps took more than {outlier_ratio:.3g} times as long as usual",
            computed="Per class of step: more than {outlier_count} steps lie {outlier_deviations} robust standard "
            "deviations above the median and take twice as long. A warning when they cost more than "
            "{outlier_cost_ratio} of the time and take over 0.1 s longer: less may be turns of others on the CPU.",
            thresholds=("outlier_count", "outlier_deviations", "outlier_cost_ratio"),
            holds_back=True,
        ),
    ),
    DeclaredRule(
        name="ComputeBound",
        topic="training",
        severity="info",
        description="The time goes into computing, as it should: nothing holds the run back.",
        advice="To be faster: lower precision, torch.compile, a faster device, or more of them.",
        on_record=RecordTest(
            summary="computing takes {compute_share:share} of a steady step",
            computed="Forward, backward and optimizer take at least {compute_ratio} of a steady step, the GPUs, where "
            "there are any, are busy as much, and no warning was found.",
            thresholds=("compute_ratio",),
        ),
    ),
    DeclaredRule(
        name="NodeVanished",
        topic="machine",
        severity="critical",
        description="A host of the run fell silent: it crashed, lost the shared folder, or was taken away.",
        advice="See its kernel log and what the scheduler says; restart from the last checkpoint without it.",
        on_record=RecordTest(
            summary="{hosts} fell silent after {after:time}{lost}",
            computed="The end of the host's command was not recorded, nobody holds its lock, and its lines end before "
            "those of the other hosts.",
            explains=("Stalled", "Straggler", "IdleGpu", "LowGpuUtilization", "LoadImbalance"),
        ),
    ),
)

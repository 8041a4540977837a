"""Rules about what a model learns, judged on the record of a run."""

from pulsetrain.rules.rule import DeclaredRule, RecordTest

RULES = (
    DeclaredRule(
        name="LossSpike",
        topic="training",
        severity="warning",
        description="The loss jumped far above its recent level: a bad batch, or a learning rate that is barely "
        "stable.",
        advice="Clip gradients, lower the learning rate or warm it up longer, and look at the batches of these steps.",
        on_record=RecordTest(
            summary="The loss jumped to {spike_ratio:amount} times its recent level at step {step:.0f}{and_more}",
            computed="The loss is above {loss_spike_ratio} times the median of the previous 20 reports and "
            "{loss_spike_deviations} robust standard deviations above it. A warning if it did not recover within the "
            "next 20.",
            thresholds=("loss_spike_ratio", "loss_spike_deviations"),
        ),
    ),
    DeclaredRule(
        name="Overfit",
        topic="training",
        severity="warning",
        description="The model memorizes its training data: from some step on it gets worse on other data.",
        advice="Stop at the best evaluation. Try more or augmented data, weight decay, dropout, or a smaller model.",
        on_record=RecordTest(
            summary="{metric} rose by {rise_ratio:share} from its best at step {step:.0f}, while the training loss "
            "fell",
            computed="A validation loss that the program logged is above its best by more than {overfit_rise_ratio} "
            "over at least the last two evaluations, while the training loss fell.",
            thresholds=("overfit_rise_ratio",),
        ),
    ),
    DeclaredRule(
        name="PaddingWaste",
        topic="training",
        severity="warning",
        description="Most of what is computed is padding.",
        advice="Sort or bucket sequences by length, pad only to the longest in a batch, or pack several into one.",
        on_record=RecordTest(
            summary="{padding_share:share} of the tokens are padding",
            computed="Padding makes up more than {padding_ratio} of all tokens in the batches.",
            thresholds=("padding_ratio",),
        ),
    ),
)

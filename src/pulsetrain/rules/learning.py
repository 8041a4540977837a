"""Rules about what a model learns, judged on the record of a run."""

from pulsetrain.rules.rule import DeclaredRule, RecordTest

RULES = (
    DeclaredRule(
        name="LossSpike",
        topic="training",
        severity="warning",
        description="The loss jumped far above its course: a bad batch, or a learning rate at the edge.",
        advice="Clip gradients, lower the learning rate or warm it up longer, look at the batches of these steps.",
        on_record=RecordTest(
            summary="The loss jumped to {spike_ratio:.3g} times its recent course at step {step:.0f}{and_more}",
            computed="The loss is above {loss_spike_ratio} times the median of the 20 reports before and "
            "{loss_spike_deviations} robust standard deviations off. A warning where it did not come back within as "
            "many.",
            thresholds=("loss_spike_ratio", "loss_spike_deviations"),
        ),
    ),
    DeclaredRule(
        name="Overfit",
        topic="training",
        severity="warning",
        description="The model learns its training data by heart: from some step on it gets worse on other data.",
        advice="Stop at the best evaluation. More or augmented data, weight decay, dropout, or a smaller model.",
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
        advice="Sort or bucket sequences by length, pad to the longest of a batch only, or pack several into one.",
        on_record=RecordTest(
            summary="{padding_share:share} of the tokens are padding",
            computed="Padding tokens, of all tokens of the batches, are above {padding_ratio}.",
            thresholds=("padding_ratio",),
        ),
    ),
)

"""What a training loop did, in a few figures. Speed and shares are those of its steady steps."""

import msgspec

from pulsetrain.insight.parts import STEP_PARTS
from pulsetrain.insight.steps import StepFacts
from pulsetrain.runs.database import Database


class LeftOut(msgspec.Struct, kw_only=True):
    """The time of a training beside its steady steps."""

    start_up_seconds: float
    """Until the first step began."""
    warm_up_steps: int
    warm_up_seconds: float
    interrupted_steps: int
    """Steps with a phase inside, such as a validation, where these are few."""
    interrupted_by: list[str]
    """The names of the phases inside steps after the warm-up."""
    phase_seconds: dict[str, float]
    """All phases, by name, inside of steps and outside."""
    pause_seconds: float
    """Between the first step and the last, in no step and no phase."""


class TrainingSummary(msgspec.Struct, kw_only=True):
    """What the training loop did, on its first rank where nothing else is said. None where nothing was seen."""

    steps: int
    last_step: float | None
    total_steps: float | None
    epoch: float | None
    ranks: int
    loss_first: float | None
    loss_last: float | None
    loss_last_by_rank: dict[str, float] = {}
    """At the last step for which every rank has recorded its loss; empty with a single rank."""
    nonfinite_losses: int
    learning_rate: float | None = None
    gradient_norm: float | None = None
    """The last."""
    skipped_updates: int = 0
    """Because of infinite gradients."""
    steady_steps: int = 0
    """The steps that the following figures are of."""
    step_seconds_mean: float | None = None
    step_seconds_p50: float | None = None
    step_seconds_p95: float | None = None
    data_wait_share: float | None = None
    copy_share: float | None = None
    forward_share: float | None = None
    backward_share: float | None = None
    communication_share: float | None = None
    optimizer_share: float | None = None
    logging_share: float | None = None
    gc_share: float | None = None
    other_share: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    all_ranks_samples_per_second: float | None = None
    all_ranks_tokens_per_second: float | None = None
    """The sum over the ranks."""
    mfu_ratio: float | None = None
    """Estimated."""
    left_out: LeftOut | None = None
    """None without steps."""
    samples: float | None = None
    tokens: float | None = None
    all_ranks_samples: float | None = None
    all_ranks_tokens: float | None = None
    """Of all steps."""

    def share(self, part: str) -> float | None:
        """How much of the time of steady steps one of STEP_PARTS took."""
        found: float | None = getattr(self, f"{part}_share")
        return found

    @property
    def loss_last_mean(self) -> float | None:
        """Over the ranks."""
        losses = self.loss_last_by_rank.values()
        return sum(losses) / len(losses) if losses else None


def summarize_training(database: Database, steps: StepFacts | None) -> TrainingSummary | None:
    """The figures of the one run that this database holds; `steps` are its own."""
    (row,) = database.rows("""
        SELECT count(step_seconds) AS steps, max(step) AS last_step, max(total_steps) AS total_steps,
            coalesce(arg_max(epoch, elapsed_seconds) FILTER (step_seconds IS NOT NULL), max(epoch)) AS epoch,
            (SELECT count(DISTINCT coalesce(rank, 0)) FROM training) AS ranks,
            arg_min(loss, elapsed_seconds) AS loss_first, arg_max(loss, elapsed_seconds) AS loss_last,
            count_if(coalesce(map_contains(nonfinite, 'loss'), false)) AS nonfinite_losses,
            arg_max(learning_rate, elapsed_seconds) AS learning_rate,
            arg_max(gradient_norm, elapsed_seconds) AS gradient_norm,
            coalesce(sum(skipped), 0)::INTEGER AS skipped_updates,
            sum(samples) FILTER (step_seconds IS NOT NULL) AS samples,
            sum(tokens) FILTER (step_seconds IS NOT NULL) AS tokens,
            (SELECT sum(samples) FROM training WHERE step_seconds IS NOT NULL) AS all_ranks_samples,
            (SELECT sum(tokens) FROM training WHERE step_seconds IS NOT NULL) AS all_ranks_tokens
        FROM first_rank.training
    """)
    if not row["steps"] and row["last_step"] is None and row["loss_last"] is None:
        return None
    summary = TrainingSummary(**row)
    if summary.ranks > 1:
        summary.loss_last_by_rank = _losses_by_rank(database)
    if steps:
        _set_speed(summary, steps)
    return summary


def _set_speed(summary: TrainingSummary, steps: StepFacts) -> None:
    """What follows from steady steps, and what they leave out."""
    summary.steady_steps = steps.count
    summary.step_seconds_mean = steps.mean_seconds
    summary.step_seconds_p50, summary.step_seconds_p95 = steps.quantile(0.5), steps.quantile(0.95)
    for part in STEP_PARTS:
        setattr(summary, f"{part}_share", steps.share(part))
    summary.samples_per_second, summary.tokens_per_second = steps.samples_per_second, steps.tokens_per_second
    summary.all_ranks_samples_per_second = steps.totals.samples_per_second
    summary.all_ranks_tokens_per_second = steps.totals.tokens_per_second
    summary.mfu_ratio = steps.mfu_ratio
    summary.left_out = LeftOut(
        start_up_seconds=max(0.0, steps.began),
        warm_up_steps=steps.warm_up,
        warm_up_seconds=steps.warm_up_seconds,
        interrupted_steps=steps.interrupted,
        interrupted_by=list(steps.interrupted_by),
        phase_seconds=steps.phases,
        pause_seconds=steps.pauses,
    )


def _losses_by_rank(database: Database) -> dict[str, float]:
    rows = database.rows("""
        WITH losses AS (
            SELECT step, coalesce(rank, 0) AS number, arg_max(loss, elapsed_seconds) AS loss
            FROM training WHERE loss IS NOT NULL AND step IS NOT NULL GROUP BY ALL
        ), common AS (
            SELECT step FROM losses GROUP BY step
            HAVING count(*) = (SELECT count(DISTINCT number) FROM losses) ORDER BY step DESC LIMIT 1
        )
        SELECT number, loss FROM losses WHERE step IN (FROM common) ORDER BY number
    """)
    return {str(row["number"]): row["loss"] for row in rows} if len(rows) > 1 else {}

"""What a training learned, step by step: losses, gradient norms, validation losses, and values that are no numbers."""

import re
from dataclasses import dataclass

from pulsetrain.insight.own_metrics import own_names
from pulsetrain.insight.robust import Floats
from pulsetrain.runs.database import Database
from pulsetrain.runs.line_columns import identifier

_VALIDATION = re.compile(r"(^|[^a-z])(val|valid|validation|eval|evaluation|test|dev)[^a-z].*loss", re.IGNORECASE)


@dataclass(frozen=True)
class Course:
    """One figure over the steps of the first rank."""

    name: str
    steps: Floats
    seconds: Floats
    """Elapsed."""
    values: Floats


@dataclass(frozen=True)
class NotFiniteValues:
    """A figure that was NaN or infinite on a rank."""

    field: str
    rank: int
    step: float
    """The first."""
    seconds: float
    """Elapsed, then."""
    count: int
    last: bool
    """Whether the rank's last report of it was."""


@dataclass(frozen=True)
class LearningFacts:
    """What was learned; every course may be empty."""

    loss: Course
    gradient_norm: Course
    validation: tuple[Course, ...]
    """Losses on other data that the program logged under names of its own."""
    not_finite: tuple[NotFiniteValues, ...]
    padding_share: float | None
    """Of all tokens; None where nobody counted."""


def read_learning(database: Database) -> LearningFacts:
    names = [name for name in own_names(database) if _VALIDATION.search(name)]
    return LearningFacts(
        loss=_course(database, "loss"),
        gradient_norm=_course(database, "gradient_norm"),
        validation=tuple(_course(database, name) for name in names),
        not_finite=_not_finite(database),
        padding_share=_padding_share(database),
    )


def _course(database: Database, name: str) -> Course:
    column = identifier(name)
    lines = database.arrays(
        "SELECT * FROM (SELECT coalesce(step, max(step) OVER (ORDER BY elapsed_seconds), 0) AS step, "
        f"elapsed_seconds, {column} AS value FROM first_rank.training) "
        "WHERE value IS NOT NULL AND isfinite(value) ORDER BY elapsed_seconds"
    )
    return Course(name, lines["step"], lines["elapsed_seconds"], lines["value"])


def _not_finite(database: Database) -> tuple[NotFiniteValues, ...]:
    rows = database.rows("""
        WITH bad AS (
            SELECT coalesce(rank, 0) AS number, unnest(map_keys(nonfinite)) AS field, coalesce(step, 0) AS step,
                elapsed_seconds
            FROM training WHERE nonfinite IS NOT NULL
        ), ends AS (
            SELECT coalesce(rank, 0) AS number, max(elapsed_seconds) FILTER (loss IS NOT NULL) AS loss,
                max(elapsed_seconds) FILTER (gradient_norm IS NOT NULL) AS gradient_norm
            FROM training GROUP BY ALL
        )
        SELECT bad.number AS rank, field, min(step) AS step, min(elapsed_seconds) AS seconds, count(*) AS count,
            max(elapsed_seconds) > coalesce(any_value(if(field = 'loss', ends.loss, ends.gradient_norm)), 0) AS last
        FROM bad JOIN ends ON bad.number = ends.number WHERE field IN ('loss', 'gradient_norm')
        GROUP BY bad.number, field ORDER BY seconds""")
    return tuple(NotFiniteValues(**row) for row in rows)


def _padding_share(database: Database) -> float | None:
    if "padding_tokens" not in database.columns("training"):
        return None
    (row,) = database.rows(
        "SELECT sum(padding_tokens) / nullif(sum(padding_tokens) + sum(tokens), 0) AS share "
        "FROM training WHERE padding_tokens IS NOT NULL"
    )
    return None if row["share"] is None else float(row["share"])

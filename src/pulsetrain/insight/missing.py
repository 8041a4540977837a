"""Why figures of a training are missing: one sentence each."""

from pulsetrain.insight.steps import StepFacts
from pulsetrain.runs.database import Database

REASONS = ("not_seen", "instrumentation_error")
"""Events in which the recorder says what it cannot see, and which of its hooks failed."""


def missing_figures(database: Database, steps: StepFacts | None) -> list[str]:
    """What the recorder of the one run in this database said, each once, and what follows from its steps."""
    kinds = ", ".join(f"'{kind}'" for kind in REASONS)
    rows = database.rows(
        f"SELECT message FROM events WHERE kind IN ({kinds}) AND message IS NOT NULL "
        "GROUP BY message ORDER BY min(timestamp), message"
    )
    return [*(row["message"] for row in rows), *(_unseen(steps) if steps else [])]


def _unseen(steps: StepFacts) -> list[str]:
    found = []
    if all(mean is None for mean in steps.parts.values()):
        found.append("The parts of a step are not known: only whole steps were reported.")
    if steps.samples_per_second is None and steps.tokens_per_second is None:
        found.append("The throughput is not known: no batch was seen.")
    return found

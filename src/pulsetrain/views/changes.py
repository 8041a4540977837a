"""What else changed in a stretch of a run, as a table."""

from collections.abc import Sequence

from pulsetrain.insight.changes import Change
from pulsetrain.views.text import Style, table


def change_lines(changes: Sequence[Change], start: float, end: float, style: Style) -> list[str]:
    """The largest change first."""
    if not changes:
        return [f"Nothing else changed between {start:g} and {end:g} s: no metric differs from the time before."]
    rows = [
        (
            change.field,
            " ".join(filter(None, (change.table, change.subject))),
            f"{change.before:.4g}",
            f"{change.after:.4g}",
            change.unit,
            f"{change.distance:.2f}",
        )
        for change in changes
    ]
    return table(("metric", "of", "before", "then", "unit", "distance"), rows, style, "llrrlr", (5, 4))

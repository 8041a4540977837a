"""Everything known about a run, in one document. Text, Markdown, HTML and JSON are renderings of it."""

from typing import Any

import msgspec

from pulsetrain.insight.carbon import Carbon
from pulsetrain.insight.cost import Cost
from pulsetrain.insight.energy import RunEnergy
from pulsetrain.insight.summary import Summary
from pulsetrain.runs.folder import Run


class Report(msgspec.Struct, kw_only=True):
    """A run and what became of it."""

    run: Run
    path: str
    summary: Summary
    energy: RunEnergy
    carbon: Carbon | None = None
    """None when no region was named."""
    carbon_missing: str = ""
    """Why there is none, and what to do."""
    cost: Cost | None = None
    cost_missing: str = ""
    events: list[dict[str, Any]] = []
    damaged_lines: int = 0

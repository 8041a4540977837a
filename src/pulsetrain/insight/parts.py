"""What a step is made of: the parts that the training loop reports, in their order, and what people call them."""

from collections.abc import Mapping

STEP_PARTS = {
    "data_wait": "waiting for data",
    "copy": "copying to the device",
    "forward": "forward",
    "backward": "backward",
    "communication": "communication",
    "optimizer": "optimizer",
    "logging": "logging",
    "gc": "garbage collection",
    "other": "other",
}
"""Each is a column of the table `training` with `_seconds` behind its name."""


def parts_seen(means: Mapping[str, float | None]) -> dict[str, float | None]:
    """Seconds of each part of a step; where only `other` was seen, that is the whole step, and no part is known."""
    seen = [part for part in STEP_PARTS if means.get(part) is not None]
    return {part: means.get(part) if seen != ["other"] else None for part in STEP_PARTS}

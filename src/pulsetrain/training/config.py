"""The configuration of a training, as a program gives it to `init`: what JSON can hold of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MOST_VALUES = 1000
DEEPEST = 6
LONGEST_TEXT = 1000


def plain_config(config: Any) -> dict[str, Any]:
    """A mapping, or the attributes of an object such as argparse's Namespace, as plain nested values."""
    if config is None:
        return {}
    found = _plain(config if isinstance(config, Mapping) else vars(config), 0, [MOST_VALUES])
    assert isinstance(found, dict)
    return found


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            return {str(key): _plain(member, depth + 1, left) for key, member in value.items() if left[0] > 0}
        if isinstance(value, (list, tuple)):
            return [_plain(member, depth + 1, left) for member in value if left[0] > 0]
    return str(value)[:LONGEST_TEXT]

"""The configuration of a training: what JSON can hold of it, from whoever knows it.

A program says it (`pulsetrain.config`, `pulsetrain.init`), or a hook sees it: options that argparse parsed, a config of
Hydra, the arguments of a Trainer, what is given to a tracker. The first to name a value counts, what the program says
counts before all others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from pulsetrain.training import process, provenance

MOST_VALUES = 1000
DEEPEST = 6
LONGEST_TEXT = 1000


def record(values: Any, source: str, *, explicit: bool = False) -> None:
    """Record settings of this training, as the named source knows them: a mapping, or an object with attributes.

    They are copied now, and masked and written in the background. Raises TypeError for what has no names; a hook calls
    it under its guard.
    """
    if not explicit and process.is_private():
        return
    plain = plain_config(values)
    if plain:
        provenance.note("config", source, plain, explicit=explicit)


def plain_config(config: Any) -> dict[str, Any]:
    """A mapping, or the attributes of an object such as argparse's Namespace, as plain nested values."""
    if config is None:
        return {}
    found = _plain(config if isinstance(config, Mapping) else vars(config), 0, [MOST_VALUES])
    assert isinstance(found, dict)
    return found


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if isinstance(value, Enum):
        value = value.value
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth < DEEPEST:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = vars(value)
        if isinstance(value, Mapping):
            return {str(key): _plain(member, depth + 1, left) for key, member in value.items() if left[0] > 0}
        if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (str, bytes)):
            return [_plain(member, depth + 1, left) for member in value if left[0] > 0]
    return _text(value)[:LONGEST_TEXT]


def _text(value: Any) -> str:
    """Never the figures of an array, which may be on a GPU, or all layers of a model."""
    if isinstance(value, type) or callable(getattr(value, "named_parameters", None)):
        return (value if isinstance(value, type) else type(value)).__qualname__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return "%s of shape %s" % (type(value).__name__, tuple(value.shape))
    return str(value)

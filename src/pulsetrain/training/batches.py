"""How many samples and tokens a batch holds, from the shapes of the arrays in it."""

from __future__ import annotations

from typing import Any, Optional

Amounts = tuple[Optional[int], Optional[int]]
"""Samples, tokens."""


def amounts(batch: Any, asked: int | None = None) -> Amounts:
    """Of what a data loader gives; `asked` is the batch size it was made with, if any."""
    if isinstance(batch, (list, tuple)):
        return _of_list(batch, asked)
    samples = _first_dimension(batch)
    if samples is not None:
        return samples, None
    ids: Any = batch.get("input_ids") if hasattr(batch, "get") else getattr(batch, "input_ids", None)
    samples = _first_dimension(ids)
    if samples is not None:
        return samples, ids.numel() if hasattr(ids, "numel") else int(ids.size)
    fields = batch.values() if hasattr(batch, "values") else ()
    return next((count for count in map(_first_dimension, fields) if count is not None), None), None


def _of_list(batch: Any, asked: int | None) -> Amounts:
    for item in batch:
        samples = _first_dimension(item)
        if samples is not None:
            return samples, None
    first = batch[0] if batch else None
    if not isinstance(first, (list, tuple)) or not first:
        return amounts(first, asked) if hasattr(first, "values") or hasattr(first, "input_ids") else (None, None)
    # Either an item for each sample, such as images of different sizes, or an array for each field.
    samples = _first_dimension(first[0])
    if samples is None or (asked not in (samples, None) and (asked == len(first) or isinstance(first, tuple))):
        return len(first), None
    return samples, None


def _first_dimension(array: Any) -> int | None:
    shape = getattr(array, "shape", None)
    return int(shape[0]) if shape else None

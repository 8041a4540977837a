"""How many samples and tokens a batch holds, from the shapes of the arrays in it.

Tokens are the positions of `input_ids`, or of a first array of whole numbers with two dimensions. Padding is counted
apart where it shows: in an attention mask, or else at the ends of rows whose labels are all ignored there.
"""

from __future__ import annotations

from typing import Any, Optional

Amounts = tuple[Optional[int], Optional[int], Optional[int]]
"""Samples, tokens without padding, padding; None for what is not known."""
UNKNOWN: Amounts = (None, None, None)
IGNORED = -100
"""The label of what a loss leaves out, in PyTorch."""
_WHOLE_NUMBERS = ("torch.int64", "torch.int32", "int64", "int32")


def amounts(batch: Any, asked: int | None = None) -> Amounts:
    """Of what a data loader gives; `asked` is the batch size it was made with, if any."""
    if isinstance(batch, (list, tuple)):
        return _of_list(batch, asked)
    samples = _first_dimension(batch)
    if samples is not None:
        return samples, _rows_of_tokens(batch), None
    ids = _field(batch, "input_ids")
    samples = _first_dimension(ids)
    if samples is not None:
        padding = _padding(ids, _field(batch, "attention_mask"), _field(batch, "labels"))
        return samples, _count(ids) - (padding or 0), padding
    fields = batch.values() if hasattr(batch, "values") else ()
    return next((count for count in map(_first_dimension, fields) if count is not None), None), None, None


def _of_list(batch: Any, asked: int | None) -> Amounts:
    for item in batch:
        samples = _first_dimension(item)
        if samples is not None:
            return samples, _rows_of_tokens(item), None
    first = batch[0] if batch else None
    if not isinstance(first, (list, tuple)) or not first:
        return amounts(first, asked) if hasattr(first, "values") or hasattr(first, "input_ids") else UNKNOWN
    # Either an item for each sample, such as images of different sizes, or an array for each field.
    samples = _first_dimension(first[0])
    if samples is None or (asked not in (samples, None) and (asked == len(first) or isinstance(first, tuple))):
        return len(first), None, None
    return samples, None, None


def _first_dimension(array: Any) -> int | None:
    shape = getattr(array, "shape", None)
    return int(shape[0]) if shape else None


def _field(batch: Any, name: str) -> Any:
    return batch.get(name) if hasattr(batch, "get") else getattr(batch, name, None)


def _rows_of_tokens(array: Any) -> int | None:
    """How many numbers there are in rows of whole numbers, which are tokens; None for anything else."""
    is_tokens = len(array.shape) == 2 and array.shape[1] > 1 and str(getattr(array, "dtype", "")) in _WHOLE_NUMBERS
    return _count(array) if is_tokens else None


def _count(array: Any) -> int:
    return int(array.numel() if hasattr(array, "numel") else array.size)


def _padding(ids: Any, mask: Any, labels: Any) -> int | None:
    """How many of the tokens are padding; None where it does not show without waiting for a device."""
    if _is_beside(ids, mask):
        return int((mask == 0).sum())
    if _is_beside(ids, labels) and len(labels.shape) == 2:
        # Labels inside a row may be ignored for other reasons: a prompt that is not learned, words that are not masked.
        return int((labels == IGNORED).flip(1).cumprod(1).sum())
    return None


def _is_beside(ids: Any, other: Any) -> bool:
    return getattr(other, "is_cpu", False) and tuple(other.shape) == tuple(ids.shape)

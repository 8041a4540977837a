"""How many tokens a loss was computed from, where no data loader shows it: read off the loss itself.

A language model's loss is a cross entropy over B x T x V scores that were flattened to two dimensions. Classification
has no such step before its loss. A compiled loss shows nothing.
"""

from __future__ import annotations

from typing import Any

_SCALINGS = frozenset({"DivBackward0", "MulBackward0"})
_FLATTENINGS = frozenset({"ViewBackward0", "UnsafeViewBackward0"})


def target_tokens(loss: Any) -> int | None:
    """The tokens that were to be predicted; None when this is not the loss of a language model.

    Those that the loss ignores do not count, where their number can be known without waiting for a device.
    """
    entropy = _first(loss.grad_fn, "NllLossBackward0", _SCALINGS)
    scores = _first(_before(_before(entropy)), None, frozenset({"ToCopyBackward0"}))
    if scores is None or type(scores).__name__ not in _FLATTENINGS or len(scores._saved_self_sym_sizes) != 3:
        return None
    count = int(entropy._saved_target.numel())
    weight_of_all = entropy._saved_total_weight
    if entropy._saved_weight is None and weight_of_all.is_cpu:
        return int(weight_of_all.item()) or count  # 0 when nothing was added up, as without a reduction
    return count


def _before(operation: Any) -> Any:
    """What an operation was computed from."""
    return operation.next_functions[0][0] if operation is not None and operation.next_functions else None


def _first(operation: Any, kind: str | None, passing: frozenset[str]) -> Any:
    """The first operation, going back, that is not one of those passed over; None when it is not of the kind asked."""
    for _ in range(4):
        name = type(operation).__name__
        if name not in passing:
            return operation if kind in (name, None) else None
        operation = _before(operation)
    return None

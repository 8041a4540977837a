"""What the callbacks for XGBoost and LightGBM have in common: each round is a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulsetrain.training import callbacks
from pulsetrain.training import loop as loops


def round_done(number: int, results: Iterable[tuple[str, str, float, bool]]) -> None:
    """Record round `number`, counted from 1, with its results: data set, metric, value, and whether higher is better.

    The first metric that is better when lower is the loss; all are recorded under names of their own, as `test_rmse`.
    """
    loop = loops.current()
    if loop is None:
        return
    loss: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for data, metric, value, higher_is_better in results:
        metrics["%s_%s" % (data, metric)] = value
        if not loss and not higher_is_better:
            loss = {"loss": value}
    loop.handle(loop.updates.step_done, number, loss)
    callbacks.record_metrics(number, None, metrics)

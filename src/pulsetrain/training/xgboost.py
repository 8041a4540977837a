"""XGBoost: `xgboost.train(..., callbacks=[PulsetrainCallback()])` records each round as a step."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pulsetrain.training import boosting, callbacks
from pulsetrain.training.guard import guarded

HIGHER_IS_BETTER = ("auc", "map", "ndcg", "pre")
"""How the names of such metrics begin: `aucpr`, `map@5`."""


class XGBoostEvents:
    """The callback without its base class, which is there only where xgboost is."""

    def before_training(self, model: Any) -> Any:
        self._begin(model)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Returns whether to stop, which is never ours to say."""
        self._round(model, evals_log)
        return False

    def after_training(self, model: Any) -> Any:
        guarded(callbacks.end_training)()
        return model

    @guarded
    def _begin(self, model: Any) -> None:
        callbacks.begin_training(model.num_boosted_rounds(), None)

    @guarded
    def _round(self, model: Any, evals_log: Any) -> None:
        """`evals_log` has all values so far, by data set and metric; one of cross-validation is (mean, deviation)."""
        results = []
        for data, metrics in evals_log.items():
            for metric, values in metrics.items():
                last = values[-1]
                value = last[0] if isinstance(last, tuple) else last
                results.append((data, metric, value, metric.startswith(HIGHER_IS_BETTER)))
        boosting.round_done(model.num_boosted_rounds(), results)


def __getattr__(name: str) -> Any:
    """`PulsetrainCallback`, made when it is first asked for, because its base class needs xgboost."""
    if name != "PulsetrainCallback":
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    base = import_module("xgboost.callback").TrainingCallback
    made = type(name, (XGBoostEvents, base), {"__module__": __name__, "__doc__": "Records each round as a step."})
    globals()[name] = made
    return made

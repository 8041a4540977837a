"""LightGBM: `lightgbm.train(..., callbacks=[LightGBMCallback()])` records each round as a step."""

from __future__ import annotations

from typing import Any

from pulsetrain.training import boosting, callbacks
from pulsetrain.training.guard import guarded


class LightGBMCallback:
    """Records each round as a step. The first step begins when the callback is made, so make it for each training."""

    order = 30
    """After the callbacks of LightGBM itself."""

    @guarded
    def __init__(self) -> None:
        callbacks.begin_training(0, None)

    @guarded
    def __call__(self, env: Any) -> None:
        results = [(*result[:3], bool(result[3])) for result in env.evaluation_result_list or ()]
        boosting.round_done(env.iteration + 1, results)
        if env.iteration + 1 >= env.end_iteration:
            callbacks.end_training()

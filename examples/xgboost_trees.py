"""XGBoost: trees learn a bumpy surface; each boosting round is a step.

pulsetrain run -- python examples/xgboost_trees.py
"""

import numpy as np
import xgboost

from pulsetrain.training.xgboost import PulsetrainCallback


def surface(count: int, seed: int) -> xgboost.DMatrix:
    random = np.random.default_rng(seed)
    x = random.uniform(-3, 3, (count, 4))
    return xgboost.DMatrix(x, np.sin(x[:, 0]) * x[:, 1] + np.cos(2 * x[:, 2]) + random.normal(0, 0.1, count))


def main() -> None:
    train, test = surface(20_000, 0), surface(5_000, 1)
    xgboost.train(
        {"max_depth": 6, "eta": 0.1, "nthread": 1},
        train,
        num_boost_round=60,
        evals=[(train, "train"), (test, "test")],
        verbose_eval=20,
        callbacks=[PulsetrainCallback()],
    )


if __name__ == "__main__":
    main()

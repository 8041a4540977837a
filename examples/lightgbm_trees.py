"""LightGBM: trees learn a bumpy surface; each boosting round is a step.

pulsetrain run -- python examples/lightgbm_trees.py
"""

import lightgbm
import numpy as np

from pulsetrain.training.lightgbm import LightGBMCallback


def surface(count: int, seed: int) -> lightgbm.Dataset:
    random = np.random.default_rng(seed)
    x = random.uniform(-3, 3, (count, 4))
    return lightgbm.Dataset(x, np.sin(x[:, 0]) * x[:, 1] + np.cos(2 * x[:, 2]) + random.normal(0, 0.1, count))


def main() -> None:
    train, test = surface(20_000, 0), surface(5_000, 1)
    lightgbm.train(
        {"objective": "regression", "learning_rate": 0.1, "num_threads": 1, "verbose": -1},
        train,
        num_boost_round=60,
        valid_sets=[train, test],
        valid_names=["train", "test"],
        callbacks=[LightGBMCallback(), lightgbm.log_evaluation(20)],
    )


if __name__ == "__main__":
    main()

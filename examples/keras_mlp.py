"""Keras 3: a small network learns which of ten directions a noisy vector points to.

pulsetrain run -- python examples/keras_mlp.py
KERAS_BACKEND=jax pulsetrain run -- python examples/keras_mlp.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np


def main() -> None:
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    directions = random.normal(size=(10, 32))
    label = random.integers(10, size=6400)
    vector = (directions[label] + random.normal(scale=2.0, size=(6400, 32))).astype("float32")

    model = keras.Sequential(
        [
            keras.Input((32,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(vector, label, batch_size=64, epochs=4, validation_split=0.1, verbose=2)


if __name__ == "__main__":
    main()

# mypy: ignore-errors
"""Trains a tiny model with Keras in several ways; the last line tells what the steps and losses must be.

The learning rate is 0, so the loss of each batch can be computed beforehand.
"""

import json
import sys
import time

import keras
import numpy as np

import pulsetrain

told = {"backend": keras.backend.backend()}
random = np.random.default_rng(0)
x = random.normal(size=(38, 4)).astype("float32")  # ten batches of four, the last of which has two
y = random.normal(size=(38, 1)).astype("float32")


def model(kind=keras.Sequential, **options):
    made = kind([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile(**{"optimizer": keras.optimizers.SGD(0.0), "loss": "mse", **options})
    return made


def losses(made):
    errors = ((np.asarray(made.predict(x, verbose=0)) - y) ** 2)[:, 0]
    return [float(errors[begin : begin + 4].mean()) for begin in range(0, len(x), 4)]


def fit(made, **options):
    return made.fit(x, y, **{"batch_size": 4, "shuffle": False, "verbose": 0, **options})


pulsetrain.set_training("predicted")
plain = model()
told["predicted"] = losses(plain)

pulsetrain.set_training("plain")
history = fit(plain, epochs=2, validation_data=(x[:8], y[:8]))
told["plain"] = {"losses": told["predicted"] * 2, "val_loss": history.history["val_loss"]}
told["plain"]["test_loss"] = plain.evaluate(x, y, verbose=0)

pulsetrain.set_training("again")
fit(plain, epochs=1)
fit(plain, epochs=1)
told["again"] = {"iterations": int(plain.optimizer.iterations.numpy())}


class Own(keras.callbacks.Callback):
    """A callback that Keras must wait for, and which changes the learning rate."""

    batches = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 0.0 if epoch == 0 else 1e-9

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1


own, waiting = Own(), model()
expected = losses(waiting)
pulsetrain.set_training("own callback")
fit(waiting, epochs=2, callbacks=[own])
told["own callback"] = {"batches": own.batches, "losses": expected}


class OwnStep(keras.Sequential):
    """A training step of the user's own gives the loss of the batch, not a mean over the epoch."""

    def train_step(self, *args):
        result = super().train_step(*args)
        logs, rest = result if isinstance(result, tuple) else (result, None)
        logs = {**logs, "loss": logs["loss"] * 0 + 7.0}
        return (logs, rest) if isinstance(result, tuple) else logs


stepping = model(OwnStep)
told["own step"] = losses(stepping)
pulsetrain.set_training("own step")
fit(stepping, epochs=1)

pulsetrain.set_training("schedule")
schedule = keras.optimizers.schedules.PolynomialDecay(1e-9, decay_steps=20, end_learning_rate=0.0)
fit(model(optimizer=keras.optimizers.SGD(schedule)), epochs=1)
told["schedule"] = float(keras.ops.convert_to_numpy(schedule(0)))


# Large enough to be computed in the background: Keras waits for its steps only at the end.
wide = keras.Sequential(
    [keras.Input((256,)), keras.layers.Dense(1024), keras.layers.Dense(1024), keras.layers.Dense(1)]
)
wide.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
data = random.normal(size=(512, 256)).astype("float32"), random.normal(size=(512, 1)).astype("float32")
wide.fit(*data, batch_size=64, verbose=0)
pulsetrain.set_training("in the background")
times = []
listens = keras.callbacks.LambdaCallback(
    on_epoch_begin=lambda *_: times.append(time.perf_counter()),
    on_epoch_end=lambda *_: times.append(time.perf_counter()),
)
wide.fit(*data, batch_size=64, verbose=0, callbacks=[listens])
told["in the background"] = times[1] - times[0]


def batches():
    while True:
        yield x[:4], y[:4]


pulsetrain.set_training("generator")
model().fit(batches(), steps_per_epoch=6, epochs=3, initial_epoch=1, verbose=0)
told["generator"] = None

if told["backend"] != "torch":  # which has no such thing
    several = model(steps_per_execution=4)
    told["several at once"] = losses(several)
    pulsetrain.set_training("several at once")
    fit(several, epochs=2)
else:
    by_hand = model()
    told["by hand"] = losses(by_hand)
    pulsetrain.set_training("by hand")
    for _ in range(5):
        by_hand.train_on_batch(x[:4], y[:4])

sys.stdout.write("\n" + json.dumps(told) + "\n")

"""A small training that really learns: an MLP tells the arms of a spiral apart. Needs numpy; reports when watched.

python -m pulsetrain.demo.train --seconds 20
"""

# ruff: noqa: T201 (a training script prints)

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

# Matrices this small gain nothing from more threads, and BLAS threads that spin would take the other cores from
# whatever else runs on the machine. BLAS reads this when it is loaded, so it comes before numpy.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import pulsetrain  # noqa: E402

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

ARMS = 4
TRAINING_SAMPLES = 98_304
VALIDATION_SAMPLES = 8_192
BATCH_SAMPLES = 256
HIDDEN_UNITS = 256
LEARNING_RATE = 0.002
MOMENTUM = 0.9
WATCHED = "PULSETRAIN_RUN_ID" in os.environ


def spirals(samples: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
    """Points in the plane, and the arm of the spiral each lies on."""
    arm = rng.integers(ARMS, size=samples)
    radius = 3 * np.sqrt(rng.uniform(0.01, 1, samples))
    angle = 2 * np.pi * (arm / ARMS + radius / 3) + rng.normal(0, 0.4, samples)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), arm


class Mlp:
    """Layers of weights with ReLU between them, trained by SGD with momentum."""

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.parameters: list[Floats] = []
        for inputs, outputs in pairwise(sizes):
            self.parameters.append(rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32))
            self.parameters.append(np.zeros(outputs, np.float32))
        self.velocities = [np.zeros_like(parameter) for parameter in self.parameters]

    def forward(self, points: Floats) -> list[Floats]:
        """What goes into each layer, and last the logits."""
        values = [points]
        for weight, bias in zip(self.parameters[::2], self.parameters[1::2], strict=True):
            values.append(values[-1] @ weight + bias)
            if weight is not self.parameters[-2]:
                np.maximum(values[-1], 0, out=values[-1])
        return values

    def step(self, points: Floats, labels: Labels) -> float:
        """Learn from one batch; its loss."""
        values = self.forward(points)
        shares = softmax(values[-1])
        rows = np.arange(len(labels))
        loss = float(-np.log(shares[rows, labels] + 1e-9).mean())
        slope = shares.copy()
        slope[rows, labels] -= 1
        slope /= len(labels)
        gradients: list[Floats] = []
        for layer in reversed(range(len(values) - 1)):
            gradients = [values[layer].T @ slope, slope.sum(axis=0), *gradients]
            slope = (slope @ self.parameters[2 * layer].T) * (values[layer] > 0)
        for index, gradient in enumerate(gradients):
            self.velocities[index] = MOMENTUM * self.velocities[index] - LEARNING_RATE * gradient
            self.parameters[index] += self.velocities[index]
        return loss

    def accuracy(self, points: Floats, labels: Labels) -> float:
        return float(np.mean(self.forward(points)[-1].argmax(axis=1) == labels))


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


@dataclass(frozen=True)
class Epoch:
    number: int
    step: int
    loss: float
    """Mean over the batches of the epoch."""
    accuracy: float
    """On samples it has not learned from."""
    samples_per_second: float


def train(seconds: float, seed: int = 0) -> Iterator[Epoch]:
    """Train for so long, at least one step. The last epoch may be cut short."""
    rng = np.random.default_rng(seed)
    points, labels = spirals(TRAINING_SAMPLES, rng)
    held_out = spirals(VALIDATION_SAMPLES, rng)
    model = Mlp((2, HIDDEN_UNITS, HIDDEN_UNITS, ARMS), rng)
    start = time.monotonic()
    step = number = 0
    while time.monotonic() - start < seconds or number == 0:
        number += 1
        began = time.monotonic()
        losses: list[float] = []
        for batch in np.split(rng.permutation(TRAINING_SAMPLES), TRAINING_SAMPLES // BATCH_SAMPLES):
            begin = time.perf_counter()
            losses.append(model.step(points[batch], labels[batch]))
            if WATCHED:
                seconds_taken = time.perf_counter() - begin
                pulsetrain.log(
                    step=step + len(losses),
                    epoch=number - 1 + len(losses) * BATCH_SAMPLES / TRAINING_SAMPLES,
                    loss=losses[-1],
                    learning_rate=LEARNING_RATE,
                    step_seconds=seconds_taken,
                    samples=BATCH_SAMPLES,
                )
            if time.monotonic() - start >= seconds:
                break
        step += len(losses)
        rate = len(losses) * BATCH_SAMPLES / (time.monotonic() - began)
        accuracy = _validate(model, *held_out)
        yield Epoch(number, step, float(np.mean(losses)), accuracy, rate)


def _validate(model: Mlp, points: Floats, labels: Labels) -> float:
    if not WATCHED:
        return model.accuracy(points, labels)
    with pulsetrain.phase("validation"):
        accuracy = model.accuracy(points, labels)
    pulsetrain.log(accuracy=accuracy)
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pulsetrain.demo.train", description="A small training that really learns."
    )
    parser.add_argument("--seconds", type=float, default=20, help="how long to train (default: 20)")
    arguments = parser.parse_args()
    print(f"Training an MLP for {arguments.seconds:g} s to tell which of {ARMS} spiral arms a point is on.")
    for epoch in train(arguments.seconds):
        print(
            f"epoch {epoch.number:3}  step {epoch.step:6}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy:6.1%}"
            f"  {epoch.samples_per_second:9,.0f} samples/s",
            flush=True,
        )


if __name__ == "__main__":
    main()

# mypy: ignore-errors
"""Trains with JAX and updates of its own, on batches of tokens; the last line has what the program knows of it."""

import json

import jax
import numpy

import pulsetrain

ROWS, LENGTH = 3, 10
told = {"losses": [], "tokens": []}


@jax.jit
def update(weights, batch):
    loss, gradient = jax.value_and_grad(lambda weights: (weights[batch] ** 2).mean())(weights)
    return weights - 0.1 * gradient, loss


weights = jax.numpy.ones(16)
for _ in range(2):
    batches = (numpy.random.randint(0, 16, (rows, LENGTH)) for rows in (ROWS, ROWS, ROWS, 1))
    for batch in pulsetrain.steps(batches):
        weights, loss = update(weights, batch)
        told["losses"].append(float(loss))
        told["tokens"].append(batch.size)
        pulsetrain.log(loss=loss)
for number in pulsetrain.steps(range(5)):
    if number == 2:
        break
print(json.dumps(told))

"""JAX and Flax: a small network learns to tell two spirals apart. `pulsetrain.steps` says where the steps are.

pulsetrain run -- python examples/jax_flax.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import pulsetrain

BATCH = 64


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(width, 64, rngs=rngs) for width in (2, 64)])
        self.out = nnx.Linear(64, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.out(x)


def spirals(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, count)
    radius = np.sqrt(random.uniform(0.02, 1, count))
    angle = 6 * radius + np.pi * kind + random.normal(0, 0.1, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype("float32"), kind


@nnx.jit
def update(model: Classifier, optimizer: nnx.Optimizer, points: jax.Array, kinds: jax.Array) -> jax.Array:
    def loss_of(model: Classifier) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(points), kinds).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main() -> None:
    points, kinds = spirals(4096)
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    for epoch in range(1, 6):
        batches = [(points[i : i + BATCH], kinds[i : i + BATCH]) for i in range(0, len(points), BATCH)]
        for batch in pulsetrain.steps(batches):
            loss = update(model, optimizer, *batch)
            pulsetrain.log(loss=float(loss), epoch=epoch)  # reading the loss waits for the step: its time is its own
        accuracy = float((jnp.argmax(model(points), 1) == kinds).mean())
        pulsetrain.log(accuracy=accuracy)
        print(f"epoch {epoch}: loss {float(loss):.4f}, accuracy {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    main()

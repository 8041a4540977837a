"""A training without a framework, which reports what it does itself: a polynomial learns to follow a sine.

pulsetrain run -- python examples/api.py
python examples/api.py      # where pulsetrain is installed beside it; `init` starts the watching process
"""

import math
import time

import pulsetrain

POINTS = [point / 50 - 1 for point in range(101)]
STEPS = 3000
RATE = 0.2


def polynomial(weights: list[float], x: float) -> float:
    return sum(weight * x**power for power, weight in enumerate(weights))


def mean_square_error(weights: list[float], points: list[float]) -> float:
    return sum((polynomial(weights, x) - math.sin(3 * x)) ** 2 for x in points) / len(points)


def main() -> None:
    pulsetrain.init(name="sine")
    weights = [0.0] * 6
    for step in range(1, STEPS + 1):
        begin = time.perf_counter()
        slopes = [0.0] * len(weights)
        for x in POINTS:
            error = polynomial(weights, x) - math.sin(3 * x)
            for power in range(len(weights)):
                slopes[power] += 2 * error * x**power / len(POINTS)
        weights = [weight - RATE * slope for weight, slope in zip(weights, slopes, strict=True)]
        loss = mean_square_error(weights, POINTS)
        pulsetrain.log(
            step=step,
            loss=loss,
            learning_rate=RATE,
            gradient_norm=math.hypot(*slopes),
            step_seconds=time.perf_counter() - begin,
            samples=len(POINTS),
        )
        if step % 500 == 0:
            with pulsetrain.phase("validation"):
                held_out = mean_square_error(weights, [x + 0.01 for x in POINTS])
            pulsetrain.monitor("held_out_loss", held_out)
            print(f"step {step}: loss {loss:.4f}, held out {held_out:.4f}", flush=True)
    pulsetrain.finish()


if __name__ == "__main__":
    main()

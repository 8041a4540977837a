import json
import math
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pulsetrain.demo.train import ARMS, LEARNING_RATE, Mlp, spirals

LINE = re.compile(r"epoch +(\d+)  step +(\d+)  loss (\d+\.\d{4})  accuracy +(\d+\.\d)%  +([\d,]+) samples/s")


def python(*arguments: str) -> str:
    # The import above has set the number of BLAS threads for this process, which a child would inherit.
    env = {name: value for name, value in os.environ.items() if "_THREADS" not in name}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, env=env).stdout


def test_a_training_learns_something_and_says_so_line_by_line() -> None:
    steps_made, seconds = 0, 1
    while steps_made < 200:  # which takes a fast machine less than a second
        seconds *= 2
        title, *lines = python("-m", "pulsetrain.demo.train", "--seconds", str(seconds)).splitlines()
        epochs = [match.groups() for line in lines if (match := LINE.fullmatch(line))]
        steps_made = int(epochs[-1][1])
    assert title == f"Training an MLP for {seconds} s to tell which of 4 spiral arms a point is on."
    assert len(epochs) == len(lines) > 0
    assert [int(epoch[0]) for epoch in epochs] == list(range(1, len(epochs) + 1))
    steps = [int(epoch[1]) for epoch in epochs]
    assert steps == sorted(set(steps))
    assert float(epochs[-1][2]) < 0.95 * math.log(ARMS)  # the loss of a guess
    assert float(epochs[-1][3]) > 100 / ARMS + 5
    assert all(int(epoch[4].replace(",", "")) > 0 for epoch in epochs)


def test_with_no_time_at_all_there_is_still_one_step() -> None:
    _, line = python("-m", "pulsetrain.demo.train", "--seconds", "0").splitlines()
    assert line.startswith("epoch   1  step      1  loss ")


def test_the_loss_falls_far_within_a_thousand_steps() -> None:
    rng = np.random.default_rng(1)
    points, labels = spirals(4096, rng)
    model = Mlp((2, 64, 64, ARMS), rng)
    losses = []
    for step in range(1000):
        batch = slice(step % 16 * 256, (step % 16 + 1) * 256)
        losses.append(model.step(points[batch], labels[batch]))
    assert np.mean(losses[-16:]) < 0.8 * np.mean(losses[:16])
    assert model.accuracy(*spirals(1024, rng)) > 0.4


def test_gradients_are_those_of_the_loss() -> None:
    rng = np.random.default_rng(2)
    points, labels = spirals(32, rng)

    def model() -> Mlp:
        made = Mlp((2, 8, 8, ARMS), np.random.default_rng(3))
        exact: list[Any] = [parameter.astype(np.float64) for parameter in made.parameters]
        made.parameters = exact
        return made

    learned = model()
    learned.step(points, labels)
    for index, velocity in enumerate(learned.velocities):
        above, below = model(), model()
        above.parameters[index].flat[0] += 1e-5
        below.parameters[index].flat[0] -= 1e-5
        slope = (above.step(points, labels) - below.step(points, labels)) / 2e-5
        assert velocity.flat[0] == pytest.approx(-LEARNING_RATE * slope, rel=1e-3, abs=1e-8)


def test_it_needs_nothing_but_numpy_and_the_standard_library() -> None:
    script = """
import sys, json, numpy, numpy.random, numpy.typing
before = set(sys.modules)
import pulsetrain.demo.train
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    needed = [name for name in json.loads(python("-c", script)) if name.split(".")[0] not in sys.stdlib_module_names]
    assert needed == ["pulsetrain", "pulsetrain.demo", "pulsetrain.demo.train"]


def test_it_keeps_to_one_thread() -> None:
    script = """
from pulsetrain.demo import train
import numpy, psutil
numpy.ones((512, 512)) @ numpy.ones((512, 512))
print(psutil.Process().num_threads())
"""
    assert python("-c", script) == "1\n"

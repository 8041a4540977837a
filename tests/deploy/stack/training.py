"""A training that reports all that a dashboard shows, until it is stopped."""

import itertools
import time

import pulsetrain

STEP_SECONDS = 0.2
TOTAL_STEPS = 100_000

with pulsetrain.phase("warm-up"):
    time.sleep(1)
for step in itertools.count(1):
    time.sleep(STEP_SECONDS)
    pulsetrain.log(
        step=step,
        total_steps=TOTAL_STEPS,
        epoch=step / 1000,
        loss=2 / step,
        learning_rate=0.001,
        gradient_norm=1 + 1 / step,
        step_seconds=STEP_SECONDS,
        data_wait_seconds=0.02,
        forward_seconds=0.06,
        backward_seconds=0.09,
        optimizer_seconds=0.02,
        other_seconds=0.01,
        samples=256,
        tokens=8192,
        mfu_ratio=0.41,
        memory_allocated_mb=18000.0,
        memory_reserved_mb=20000.0,
        accuracy=1 - 1 / step,
    )

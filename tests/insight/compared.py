"""Recorded trainings to compare with each other."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pulsetrain.insight.compare.sides import Side, load_sides
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]


def write_training(
    make_run: MakeRun,
    name: str,
    *,
    steps: int = 300,
    wait: float = 1.0,
    forward: float = 3.0,
    backward: float = 5.0,
    optimizer: float = 1.0,
    other: float = 0.0,
    pause: float = 0.0,
    samples: int | None = 64,
    gpus: tuple[float, ...] = (90.0,),
    gpu: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
    process: dict[str, Any] | None = None,
    noise: float = 0.0,
    **about: Any,
) -> RunFolder:
    """A run of 300 steps on one GPU: `write_training(make_run, "slow", wait=8.0)`; times of a step in milliseconds."""
    rng = np.random.default_rng(sum(map(ord, name)))
    elapsed, training = 1.0, []
    for step in range(1, steps + 1):
        parts = {
            "data_wait": wait,
            "forward": forward,
            "backward": backward,
            "optimizer": optimizer,
            "other": other,
        }
        factor = 1e-3 * float(np.exp(noise * rng.normal()))
        line = {f"{part}_seconds": factor * milliseconds for part, milliseconds in parts.items()}
        seconds = sum(line.values())
        elapsed += seconds + pause / 1000
        about_step: dict[str, Any] = {
            "step": step,
            "rank": 0,
            "step_seconds": seconds,
            "loss": 1 / step,
            "samples": samples,
        }
        training.append({"elapsed_seconds": elapsed} | line | about_step)
    ticks = [tick / 4 for tick in range(int(4 * elapsed) + 2)]
    boards: dict[str, Any] = {"up": 1, "memory_used_mb": 9000.0, "power_draw_watts": 300.0, "name": "NVIDIA L4"}
    machine = {
        "cpu_ratio": 0.1,
        "cpu_cores": 8,
        "cpu_iowait_ratio": 0.0,
        "job_cpu_cores": 0.7,
        "job_cpu_seconds": 1,
    }
    return make_run(
        id=f"20261116-120000-{name}-0000",
        name=name,
        end=datetime(2026, 11, 16, 12, 0, 10, tzinfo=UTC),
        training=training,
        gpu=[
            {
                "elapsed_seconds": tick,
                "gpu_index": index,
                "uuid": f"GPU-{name}-{index}",
                "utilization_percent": busy,
            }
            | {"energy_joules": 300 * tick}
            | boards
            | (gpu or {})
            for tick in ticks
            for index, busy in enumerate(gpus)
        ],
        host=[{"elapsed_seconds": tick} | machine | (host or {}) for tick in ticks],
        process=[{"elapsed_seconds": tick, "pid": 7} | (process or {"cpu_cores": 0.5}) for tick in ticks],
        **about,
    )


_LOADED: dict[str, Side] = {}


def load_training(make_run: MakeRun, name: str, **given: Any) -> Side:
    """The same as `write_training`, and loaded: each only once for all tests."""
    key = f"{name} {given}"
    if key not in _LOADED:
        (_LOADED[key],) = load_sides([write_training(make_run, name, **given)])
    return _LOADED[key]

"""What the time of a rank in progress went into, from its lines alone."""

from typing import Any

import pytest

from pulsetrain.runs.time_so_far import TimeSoFar


def step(end: float, seconds: float, **parts: float) -> dict[str, Any]:
    named = {f"{part}_seconds": value for part, value in parts.items()}
    return {"elapsed_seconds": end, "step_seconds": seconds, **named}


def phase(name: str, begin: float, end: float) -> dict[str, Any]:
    return {"elapsed_seconds": end, "phase": name, "phase_seconds": end - begin}


def test_parts_phases_start_up_and_the_rest_add_up_to_the_time() -> None:
    so_far = TimeSoFar()
    so_far.begin({"began_seconds": 1.0})
    so_far.add(phase("loading", 2.0, 3.0))
    so_far.add(step(6.0, 2.0, data_wait=0.5, forward=0.5, backward=0.5, optimizer=0.25, other=0.25))
    so_far.add(phase("checkpoint", 7.0, 8.0))
    so_far.add(phase("validation", 6.5, 9.5))
    so_far.add(step(10.0, 4.0, forward=0.5, backward=0.25, other=3.25))
    expected = {"checkpoint": 2.0, "startup": 2.0, "data_wait": 0.5, "forward": 1.0, "backward": 0.75}
    assert so_far.seconds == pytest.approx(expected | {"optimizer": 0.25, "evaluation": 2.0, "unknown": 0.5})
    assert sum(so_far.seconds.values()) == pytest.approx(9.0)


def test_a_process_that_is_older_than_the_run_starts_up_with_it() -> None:
    so_far = TimeSoFar()
    so_far.begin({"began_seconds": -3600.0})
    so_far.add(step(6.0, 2.0))
    assert so_far.seconds == pytest.approx({"startup": 4.0, "compute": 2.0})


def test_a_step_of_which_nothing_else_is_known_is_compute() -> None:
    so_far = TimeSoFar()
    so_far.add(step(2.0, 2.0))
    so_far.add({"elapsed_seconds": 3.0, "loss": 1.0})
    so_far.add({"step_seconds": 1.0})
    assert so_far.seconds == pytest.approx({"startup": 0.0, "compute": 2.0})

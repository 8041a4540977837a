"""Hosts on one time: the distance that exchanges of gradients tell is right within its error, or there is none."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.insight.host_clocks import Exchanges, distance_by_steps


def exchanged(seed: int, steps: int, shift: float, drift: float, seconds: float) -> tuple[Exchanges, Exchanges]:
    """Two hosts that wait for each other in each step, one of them on another time."""
    random = np.random.default_rng(seed)
    now = 0.0
    sides: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for _ in range(steps):
        work = seconds * random.uniform(0.5, 1.5, 2)
        after = now + work.max() + seconds * random.uniform(0.01, 0.1)
        for side, own in zip(sides, work, strict=True):
            side.append((now + own, after + seconds * random.uniform(0, 0.05)))
        now = after
    first, second = (np.array(side) for side in sides)
    second = (second - shift) / (1 + drift)
    numbers = np.arange(steps, dtype=float)
    return (
        Exchanges(numbers, first[:, 0], first[:, 1], 0.0),
        Exchanges(numbers, second[:, 0], second[:, 1], 0.0),
    )


@given(
    st.integers(0, 10_000),
    st.integers(20, 200),
    st.floats(-1e5, 1e5),
    st.floats(-5e-5, 5e-5),
    st.floats(0.01, 60.0),
)
def test_the_distance_of_two_hosts_is_right_within_its_error(
    seed: int, steps: int, shift: float, drift: float, seconds: float
) -> None:
    first, second = exchanged(seed, steps, shift, drift, seconds)
    found = distance_by_steps(first, second)
    if found is None:  # a drift within one window can contradict itself; then nothing is claimed
        assert abs(drift) * 600 > 1e-4
        return
    for place in (0, len(second.left) // 2, -1):
        truth = second.left[place] * (1 + drift) + shift
        told = second.left[place] * (1 + found.rate) + found.shift
        window_drift = abs(drift) * 600.0
        assert abs(told - truth) <= found.error + window_drift + 1e-3


def test_hosts_that_do_not_wait_for_each_other_tell_nothing() -> None:
    random = np.random.default_rng(1)
    ends = [np.cumsum(random.uniform(0.5, 1.5, 200)) for _ in range(2)]
    first, second = (Exchanges(np.arange(200.0), end - 0.1, end, 0.0) for end in ends)
    assert distance_by_steps(first, second) is None

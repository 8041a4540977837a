"""Boards whose counter does not work, and the edges of counters that do, on the simulated NVML."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nvml.scenario import Board, Scenario, constant

from pulsetrain.sources.nvidia.power import CounterMove, interpolate

Nvidia = Callable[..., Any]

POLL = """
    power = opened()["nvidia_power"]
    answer = [lines(power)]
    began = time.monotonic()
    until(1.2)
    answer.append(lines(power))
    answer.append(time.monotonic() - began)
    answer.append(power.period)
    power.close()
"""


def joules(line: dict[str, Any]) -> float:
    return float(line["polled_energy_joules"])


BOARDS: tuple[Board, ...] = ("H100", "A100", "RTX4090", "T4", "V100", "P100", "GB10")


def without_counters() -> Scenario:
    scenario = Scenario()
    for board in BOARDS:
        scenario.gpus(1, board)
    return scenario.counter("*", "none").curve("power", "*", constant(50))


def test_the_power_of_boards_without_a_counter_is_added_up_between_ticks(nvidia: Nvidia) -> None:
    first, later, seconds, period = nvidia(without_counters(), POLL)
    assert [joules(line) < 1 for line in first] == [True] * len(BOARDS)
    assert [joules(line) for line in later] == [pytest.approx(50 * seconds, abs=50 * 0.05)] * len(BOARDS)
    assert [line["polled_energy_gap_seconds"] for line in later] == [0] * len(BOARDS)
    assert period is None


def test_the_sensor_that_sees_most_is_chosen_and_what_it_does_not_see_is_reported(nvidia: Nvidia) -> None:
    later = dict(zip(BOARDS, nvidia(without_counters(), POLL)[1], strict=True))
    blind = [board for board, line in later.items() if line.get("polled_energy_unseen_joules", 0) > 0]
    assert blind == ["A100"]
    lag_joules = {board: line.get("polled_energy_edge_joules") for board, line in later.items()}
    assert lag_joules == pytest.approx(
        {
            "H100": 700 * 0.65,  # it has a mean over a second, which sees everything
            "A100": 400 * 0.1625,
            "RTX4090": 450 * 0.2,
            "T4": 70 * 0.2,
            "V100": 300 * 0.075,
            "P100": 250 * 0.075,
            "GB10": None,  # it has no power limit
        }
    )


def test_a_counter_that_is_stuck_is_as_good_as_none(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(2, "A100").counter(1, "frozen").curve("power", "*", constant(100))
    _, later, _, _ = nvidia(scenario, POLL)
    assert [line["gpu_index"] for line in later] == [1]


def test_boards_whose_counter_moves_are_no_longer_looked_at_nor_asked_at_a_tick(nvidia: Nvidia) -> None:
    first, later, _, period = nvidia(Scenario().gpus(2, "H100"), POLL)
    assert len(first) == 2
    assert later == []
    assert period == 5.0


def test_a_counter_that_comes_to_a_stand_later_is_noticed(nvidia: Nvidia) -> None:
    """It moves at second 100, and then not before second 150."""
    before, after = nvidia(
        Scenario().gpus(1, "A100").counter_update(0, 50_000),
        """
        power = opened()["nvidia_power"]
        lines(power)
        until(100.1)
        before = lines(power)
        until(102.3)
        lines(power)
        answer = [before, lines(power)]
        power.close()
        """,
        at=99.9,
    )
    assert before == []
    assert len(after) == 1


def test_a_lost_board_is_a_gap_and_its_energy_continues_when_it_is_back(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(1, "P100").curve("power", 0, constant(100)).lost(0, 0.4, 1.0)
    line, seconds = nvidia(
        scenario,
        """
        began = time.monotonic()
        sources = opened()
        for _ in range(25):
            lines(sources["nvidia"])
            (line,) = lines(sources["nvidia_power"])
            answer = [line, time.monotonic() - began]
            time.sleep(0.1)
        sources["nvidia_power"].close()
        """,
    )
    gap_seconds = line["polled_energy_gap_seconds"]
    assert 0.5 < gap_seconds < seconds
    assert 50 < joules(line) < 100 * (seconds - gap_seconds) + 10


def test_the_first_reading_knows_the_counter_between_two_of_its_moves(nvidia: Nvidia) -> None:
    """On the simulated board the counter is exact when it moves, every 100 ms."""
    at, ended, line, count = nvidia(
        Scenario().gpus(1, "H100").curve("power", 0, constant(300)),
        """
        edges = opened()["nvidia_edges"]
        (line,) = lines(edges)
        at = line["energy_interpolated_monotonic_seconds"] - epoch
        answer = [at, clock.second, line, calls("nvmlDeviceGetFieldValues")]
        """,
        at=7.04,
    )
    assert at == pytest.approx(7.04, abs=1e-5)
    assert line["energy_interpolated_joules"] == pytest.approx(1e6 + 300 * at, abs=300 * 0.002)
    assert line["energy_interpolation_error_joules"] < 300 * 0.15
    assert ended == pytest.approx(7.2, abs=0.002)  # after two moves
    assert count > 10


def test_the_edges_are_asked_at_the_first_two_ticks_and_then_at_the_end_alone(nvidia: Nvidia) -> None:
    periods = nvidia(
        Scenario().gpus(1, "H100"),
        """
        edges = opened()["nvidia_edges"]
        answer = [edges.period]
        for _ in range(2):
            lines(edges)
            answer.append(edges.period if edges.period is None else str(edges.period))
        """,
    )
    assert periods == [None, None, "inf"]


def test_a_counter_that_does_not_move_has_no_edge(nvidia: Nvidia) -> None:
    scenario = Scenario().gpus(1, "A100").gpus(1, "P100").counter(0, "frozen")
    assert nvidia(scenario, "answer = lines(opened()['nvidia_edges'])") == []


@given(
    ahead=st.floats(0, 0.1),
    low=st.floats(0, 300),
    high=st.floats(300, 700),
    share=st.floats(0, 1),
    high_first=st.booleans(),
)
def test_energy_between_two_moves_is_within_its_bound_however_power_was_spread(
    ahead: float, low: float, high: float, share: float, high_first: bool
) -> None:
    before, after = (high, low) if high_first else (low, high)

    def used(seconds: float) -> float:
        return before * min(seconds, share * 0.1) + after * max(0.0, seconds - share * 0.1)

    move = CounterMove(at=1.0, uncertain_seconds=0.0, before_joules=5000.0, after_joules=5000.0 + used(0.1))
    joules, error = interpolate(move, 1.0 - ahead, 0.1, limit_watts=700)
    assert abs(joules - (5000.0 + used(0.1 - ahead))) <= error + 1e-6
    assert 0 <= error <= 70

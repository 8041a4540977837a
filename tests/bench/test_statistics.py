"""The rank test and its interval, beside what can be counted by hand."""

import itertools
import math

import numpy as np
import pytest

from pulsetrain.bench.statistics import _rank_sums, describe, difference_of, repeats_needed


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 4), (5, 3)])
def test_rank_sums_are_those_of_all_orders(first: int, second: int) -> None:
    counted = [0] * (first * second + 1)
    for chosen in itertools.combinations(range(first + second), first):
        counted[sum(chosen) - first * (first - 1) // 2] += 1
    assert _rank_sums(first, second) == counted
    assert sum(counted) == math.comb(first + second, first)


def test_three_against_three_cannot_tell_and_four_against_four_can() -> None:
    assert difference_of([1.0, 1.01, 1.02], [2.0, 2.01, 2.02]) is None
    found = difference_of([1.0, 1.01, 1.02, 1.03], [2.0, 2.01, 2.02, 2.03])
    assert found and found.certain
    assert found.low == pytest.approx(2.0 / 1.03 - 1) and found.high == pytest.approx(2.03 / 1.0 - 1)


def test_the_interval_holds_the_true_ratio_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        base, other = rng.lognormal(0, 0.05, 6), rng.lognormal(math.log(1.1), 0.05, 7)
        found = difference_of(list(base), list(other))
        assert found
        held += found.low <= 0.1 <= found.high
    assert 0.94 <= held / 1000 <= 0.985  # an exact test with few values holds a little more than it must


def test_a_run_far_from_the_others_stands_out_and_equal_ones_do_not() -> None:
    found = describe([1.0, 1.01, 0.99, 1.02, 3.0])
    assert found.outliers == [4] and found.median == 1.01
    assert found.noise == pytest.approx(1.4826 * 0.01 / 1.01)
    assert describe([4096.0] * 9 + [4097.0]).outliers == []
    assert describe([1.0]).noise is None


def test_more_noise_needs_more_repeats() -> None:
    assert repeats_needed(0.001, 0.05) == 4
    assert repeats_needed(0.05, 0.05) > repeats_needed(0.02, 0.05)

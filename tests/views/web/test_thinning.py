"""Lines for so many pixels: what must survive, and what must not appear."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.views.web.thinning import rounded, thin


def test_a_spike_of_one_reading_in_a_million_survives() -> None:
    times = np.arange(1_000_000.0)
    values = np.ones(times.size)
    values[123_456], values[654_321] = 99.0, -99.0
    line = thin(times, values, 0, 1e6, 800)
    assert line.times.size <= 800
    assert line.high is not None and line.high.max() == 99.0
    assert line.low is not None and line.low.min() == -99.0


def test_few_readings_are_shown_as_they_are() -> None:
    line = thin(np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0, 7.0]), 0, 10, 800)
    assert (line.times.tolist(), line.last.tolist(), line.low) == ([1, 2, 3], [5, 6, 7], None)


def test_a_zoom_has_the_readings_on_both_sides_so_that_the_line_reaches_the_edges() -> None:
    line = thin(np.arange(100.0), np.arange(100.0), 50.5, 52.5, 800)
    assert line.times.tolist() == [50, 51, 52, 53]


def test_a_line_does_not_cross_a_gap_in_the_record() -> None:
    times = np.concatenate((np.arange(50.0), np.arange(500.0, 550.0)))
    broken = thin(times, times, 0, 600, 800)
    assert np.isnan(broken.last).sum() == 1
    assert not np.isnan(thin(times, times, 0, 600, 800, breaks=False).last).any()


def test_smoothing_keeps_the_level_and_does_not_lag() -> None:
    times = np.arange(1000.0)
    step = np.where(times < 500, 0.0, 1.0)
    smooth = thin(times, step, 0, 1000, 2000, smooth_seconds=100).smooth
    assert smooth is not None
    assert abs(smooth[500] - 0.5) < 0.02
    assert (smooth[:380] == 0).all() and (smooth[620:] > 0.999).all()


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), max_size=300),
    st.floats(0, 1e6),
    st.floats(1e-3, 1e6),
    st.integers(2, 50),
)
def test_no_value_is_made_up(readings: list[tuple[float, float]], start: float, width: float, points: int) -> None:
    by_time = dict(readings)
    times = np.array(sorted(by_time))
    values = np.array([by_time[time] for time in times])
    line = thin(times, values, start, start + width, points)
    shown = line.last[~np.isnan(line.last)]
    assert set(shown.tolist()) <= set(values.tolist())
    inside = values[(times >= start) & (times < start + width)]
    if inside.size:
        assert np.nanmax(line.last if line.high is None else line.high) >= inside.max()
        assert np.nanmin(line.last if line.low is None else line.low) <= inside.min()


def test_numbers_are_rounded_to_digits_that_can_be_seen() -> None:
    assert rounded(np.array([1.23456789, 123456789.0, 0.0, -0.000123456789])) == [
        1.23457,
        123457000.0,
        0.0,
        -0.000123457,
    ]

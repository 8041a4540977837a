"""A run in a few figures: right sums, peaks and energy, and nothing invented."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.insight.summary import Totals
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value

GPU = Subject("gpu", "GPU-1", {"gpu_index": 0, "uuid": "GPU-1", "name": "Test"})
HOST = Subject("host", "")


def totals(*lines: tuple[float, Mapping[str, Value]]) -> Totals:
    added = Totals("host")
    for elapsed, values in lines:
        added(Snapshot(1.8e9 + elapsed, elapsed, (Sample(GPU, dict(values)),)))
    return added


def test_means_and_peaks_count_only_what_was_read() -> None:
    (gpu,) = (
        totals(
            (0, {"up": 1, "utilization_percent": 50, "temperature_celsius": 60}),
            (1, {"up": 0, "utilization_percent": None}),
            (2, {"up": 1, "utilization_percent": 100, "temperature_celsius": 80}),
        )
        .result()
        .gpus
    )
    assert (gpu.utilization_percent_mean, gpu.utilization_percent_peak) == (75, 100)
    assert gpu.temperature_celsius_peak == 80
    assert (gpu.samples, gpu.lost_samples) == (3, 1)
    assert gpu.power_watts_mean is None and gpu.energy_joules is None and gpu.energy_source == "none"


def test_energy_comes_from_the_counter_and_survives_its_reset() -> None:
    joules = [5000.0, 5100.0, 5300.0, 20.0, 70.0]  # the driver was loaded anew after the third
    (gpu,) = totals(*((i, {"up": 1, "energy_joules": j}) for i, j in enumerate(joules))).result().gpus
    assert (gpu.energy_joules, gpu.energy_source) == (370.0, "counter")
    assert gpu.power_watts_mean == 370.0 / 4


def test_a_counter_that_never_moves_is_not_believed() -> None:
    frozen: dict[str, Value] = {"up": 1, "energy_joules": 5000.0, "power_draw_watts": 100.0}
    (gpu,) = totals(*((i, frozen) for i in range(11))).result().gpus
    assert (gpu.energy_joules, gpu.energy_source) == (1000.0, "power")


@given(st.lists(st.tuples(st.floats(0.05, 5), st.floats(0, 700)), min_size=2, max_size=50))
def test_energy_from_power_is_the_sum_of_each_reading_held_until_the_next(steps: list[tuple[float, float]]) -> None:
    elapsed, lines, truth = 0.0, [], 0.0
    for seconds, watts in steps:
        lines.append((elapsed, {"up": 1, "power_draw_watts": watts}))
        truth += watts * seconds
        elapsed += seconds
    lines.append((elapsed, {"up": 1, "power_draw_watts": 0.0}))
    (gpu,) = totals(*lines).result().gpus
    assert gpu.energy_joules == pytest.approx(truth)


def test_a_line_of_slow_values_alone_is_no_reading_of_the_gpu() -> None:
    (gpu,) = totals((0, {"up": 1, "utilization_percent": 50}), (1, {"power_limit_watts": 300.0})).result().gpus
    assert gpu.samples == 1


def test_throttling_counts_power_and_heat_but_not_idleness() -> None:
    words: list[Value] = [["sw_power_cap"], ["idle"], [], ["hw_thermal"]]
    (gpu,) = totals(*((i, {"up": 1, "throttle_reasons": w}) for i, w in enumerate(words))).result().gpus
    assert gpu.throttled_share == 0.5


def test_the_host_and_the_job() -> None:
    added = Totals("host")
    for elapsed, memory in ((0.0, 100), (1.0, 300), (2.0, 200)):
        values: dict[str, Value] = {"cpu_ratio": 0.5, "job_memory_bytes": memory, "job_cpu_seconds": elapsed}
        added(Snapshot(1.8e9, elapsed, (Sample(HOST, values),)))
    result = added.result()
    assert (result.seconds, result.cpu_ratio_mean, result.job_memory_bytes_peak) == (2.0, 0.5, 300)
    assert result.job_cpu_seconds == 2.0
    assert result.gpus == [] and result.gpu_energy_joules is None

"""A run in a few figures: right sums and peaks, and nothing invented."""

from collections.abc import Callable
from typing import Any

import pytest

from pulsetrain.insight.summary import GpuSummary, Summary, TrainingSummary, summarise
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]
GPU = {"gpu_index": 0, "uuid": "GPU-1", "name": "Test"}


def summary(run: RunFolder) -> Summary:
    return summarise(Database([run]))


def one_gpu(make_run: MakeRun, *lines: dict[str, Any]) -> GpuSummary:
    (gpu,) = summary(make_run(gpu=[GPU | line for line in lines])).gpus
    return gpu


def training(make_run: MakeRun, *lines: dict[str, Any]) -> TrainingSummary:
    found = summary(make_run(training=list(lines))).training
    assert found is not None
    return found


def test_means_and_peaks_count_only_what_was_read(make_run: MakeRun) -> None:
    gpu = one_gpu(
        make_run,
        {"up": 1, "utilization_percent": 50, "temperature_celsius": 60},
        {"up": 0, "utilization_percent": None},
        {"up": 1, "utilization_percent": 100, "temperature_celsius": 80},
    )
    assert (gpu.utilization_percent_mean, gpu.utilization_percent_peak) == (75, 100)
    assert gpu.temperature_celsius_peak == 80
    assert (gpu.samples, gpu.lost_samples) == (3, 1)
    assert gpu.power_watts_mean is None


def test_a_line_of_slow_values_alone_is_no_reading_of_the_gpu(make_run: MakeRun) -> None:
    assert one_gpu(make_run, {"up": 1, "utilization_percent": 50}, {"power_limit_watts": 300.0}).samples == 1


def test_throttling_counts_power_and_heat_but_not_idleness(make_run: MakeRun) -> None:
    words: list[list[str]] = [["sw_power_cap"], ["idle"], [], ["hw_thermal"]]
    assert one_gpu(make_run, *({"up": 1, "throttle_reasons": w} for w in words)).throttled_share == 0.5


def test_the_host_and_the_job(make_run: MakeRun) -> None:
    found = summary(
        make_run(
            host=[
                {"cpu_ratio": 0.5, "job_memory_bytes": memory, "job_cpu_seconds": elapsed}
                for elapsed, memory in ((0.0, 100), (1.0, 300), (2.0, 200))
            ]
        )
    )
    assert (found.seconds, found.cpu_ratio_mean, found.job_memory_bytes_peak) == (2.0, 0.5, 300)
    assert found.job_cpu_seconds == 2.0
    assert found.gpus == [] and found.training is None


def test_hosts_of_one_run_add_up(make_run: MakeRun) -> None:
    make_run(host=[{"cpu_cores": 8, "job_cpu_seconds": 3.0}])
    run = make_run(host_name="other", gpu=[GPU | {"up": 1}])
    with (run.path / "other" / "host_metrics_20261116_120000.jsonl").open("w") as file:
        file.write('{"timestamp":"2026-11-16T12:00:00Z","elapsed_seconds":1.0,"cpu_cores":4,"job_cpu_seconds":2.0}\n')
    found = summary(run)
    assert (found.cpu_cores, found.job_cpu_seconds) == (12, 5.0)
    assert [gpu.host for gpu in found.gpus] == ["other"]


def test_shares_are_of_the_time_of_all_steps(make_run: MakeRun) -> None:
    found = training(
        make_run,
        {"rank": 0, "step": 1, "step_seconds": 1.0, "data_wait_seconds": 0.5, "samples": 8, "loss": 2.0},
        {"rank": 0, "step": 2, "step_seconds": 3.0, "data_wait_seconds": 0.5, "samples": 8, "loss": 1.0},
        {"rank": 0, "epoch": 1.0},
    )
    assert (found.steps, found.last_step, found.epoch) == (2, 2, 1.0)
    assert (found.data_wait_share, found.forward_share) == (0.25, None)
    assert (found.samples, found.samples_per_second) == (16, 4.0)
    assert (found.loss_first, found.loss_last) == (2.0, 1.0)
    assert found.step_seconds_p50 == pytest.approx(2.0)


def test_of_several_ranks_the_first_alone_is_counted(make_run: MakeRun) -> None:
    lines = [{"rank": rank, "step": 1, "step_seconds": 1.0 + rank, "samples": 4} for rank in (1, 0, 1)]
    found = training(make_run, *lines)
    assert (found.steps, found.ranks, found.samples, found.step_seconds_p50) == (1, 2, 4, 1.0)


def test_losses_that_are_no_numbers_are_counted_and_the_last_number_stays(make_run: MakeRun) -> None:
    found = training(make_run, {"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "nonfinite": {"loss": "NaN"}})
    assert (found.nonfinite_losses, found.loss_last) == (1, 0.5)

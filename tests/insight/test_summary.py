"""A run in a few figures: right sums and peaks, and nothing invented."""

from collections.abc import Callable
from typing import Any

import pytest

from pulsetrain.insight.steps import read_steps
from pulsetrain.insight.summary import GpuSummary, Summary, summarize
from pulsetrain.insight.training_summary import TrainingSummary
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]
GPU = {"gpu_index": 0, "uuid": "GPU-1", "name": "Test"}


def summary(run: RunFolder) -> Summary:
    database = Database([run])
    return summarize(database, read_steps(database))


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


def test_a_gpu_lost_at_the_start_is_one_gpu(make_run: MakeRun) -> None:
    lost = {"gpu_index": 1, "uuid": None, "name": "unknown", "up": 0}
    back = {"gpu_index": 1, "uuid": "GPU-2", "name": "Test", "up": 1, "utilization_percent": 50}
    other = GPU | {"up": 1, "utilization_percent": 80}
    times = [{"elapsed_seconds": float(second)} for second in range(5)]
    lines = [line | time for time in times for line in (other, lost if time["elapsed_seconds"] < 3 else back)]
    first, second = summary(make_run(gpu=lines)).gpus
    assert (first.uuid, first.samples, first.lost_samples) == ("GPU-1", 5, 0)
    assert (second.uuid, second.name, second.samples, second.lost_samples) == ("GPU-2", "Test", 5, 3)


def test_a_gpu_that_never_answered_stays_apart_from_another_makers_of_the_same_index(make_run: MakeRun) -> None:
    lost = {"gpu_index": 0, "uuid": None, "name": "unknown", "up": 0}
    times = [{"elapsed_seconds": float(second)} for second in range(3)]
    lines = [line | time for time in times for line in (lost, GPU | {"up": 1})]
    assert {(gpu.uuid, gpu.samples) for gpu in summary(make_run(gpu=lines)).gpus} == {(None, 3), ("GPU-1", 3)}


def test_a_line_of_slow_values_alone_is_not_a_reading_of_the_gpu(make_run: MakeRun) -> None:
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


def test_the_memory_peak_of_the_job_is_the_kernels_where_readings_missed_it(make_run: MakeRun) -> None:
    last = {"job_memory_bytes": 0, "job_memory_peak_bytes": 500}
    assert summary(make_run(host=[{"job_memory_bytes": 300}, last])).job_memory_bytes_peak == 500
    assert summary(make_run(host=[{"job_memory_bytes": 900}, last])).job_memory_bytes_peak == 900


def test_a_job_that_was_never_read_while_it_ran_has_no_memory_peak(make_run: MakeRun) -> None:
    assert summary(make_run(host=[{"job_memory_bytes": 0, "job_processes": 0}])).job_memory_bytes_peak is None


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


def test_speed_and_shares_leave_the_compilation_out_and_name_it(make_run: MakeRun) -> None:
    lines = [
        {"elapsed_seconds": 3.0 + n, "step": n, "step_seconds": 1.0, "optimizer_seconds": 0.1, "forward_seconds": 0.9}
        for n in range(1, 9)
    ]
    lines[0] |= {"elapsed_seconds": 4.0, "step_seconds": 2.5, "optimizer_seconds": 1.6}
    found = training(make_run, *lines)
    assert (found.steps, found.steady_steps, found.step_seconds_mean) == (8, 7, 1.0)
    assert found.optimizer_share == pytest.approx(0.1)
    assert found.left_out is not None
    assert (found.left_out.warm_up_steps, found.left_out.warm_up_seconds) == (1, 2.5)
    assert found.left_out.start_up_seconds == pytest.approx(1.5)


def test_the_epoch_is_that_of_the_last_step_and_not_of_a_later_log(make_run: MakeRun) -> None:
    found = training(
        make_run,
        {"step": 1, "step_seconds": 1.0, "epoch": 1.07},
        {"step": 2, "step_seconds": 1.0, "epoch": 2.13},
        {"step": 2, "epoch": 3.0, "val_loss": 0.5},
    )
    assert found.epoch == 2.13


def test_learning_rate_and_gradient_norm_are_the_last_and_skipped_updates_are_counted(make_run: MakeRun) -> None:
    found = training(
        make_run,
        {"step": 1, "step_seconds": 1.0, "learning_rate": 0.1, "gradient_norm": 2.0, "skipped": 1},
        {"step": 2, "step_seconds": 1.0, "learning_rate": 0.05, "skipped": 1},
        {"step": 3, "step_seconds": 1.0, "learning_rate": 0.02, "gradient_norm": 1.0},
        {"step": 4, "step_seconds": 1.0, "learning_rate": 0.01},
    )
    assert (found.learning_rate, found.gradient_norm, found.skipped_updates) == (0.01, 1.0, 2)


def test_losses_of_all_ranks_are_those_of_the_last_step_that_all_have(make_run: MakeRun) -> None:
    found = training(
        make_run,
        {"rank": 0, "step": 1, "step_seconds": 1.0, "loss": 4.0},
        {"rank": 1, "step": 1, "step_seconds": 1.0, "loss": 5.0},
        {"rank": 0, "step": 2, "step_seconds": 1.0, "loss": 2.0},
        {"rank": 1, "step": 2, "step_seconds": 1.0, "loss": 3.0},
        {"rank": 0, "step": 3, "step_seconds": 1.0, "loss": 1.0},
    )
    assert found.loss_last_by_rank == {"0": 2.0, "1": 3.0}
    assert (found.loss_last, found.loss_last_mean) == (1.0, 2.5)


def test_samples_of_all_ranks_add_up(make_run: MakeRun) -> None:
    found = training(make_run, *({"rank": rank, "step": 1, "step_seconds": 1.0, "samples": 4} for rank in (0, 1)))
    assert (found.samples, found.all_ranks_samples) == (4, 8)

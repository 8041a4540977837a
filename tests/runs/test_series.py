"""A metric over time: no more points than asked for, nothing lost in between, and gaps that show."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.catalog import metric
from pulsetrain.errors import UsageError
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.seal import seal_all
from pulsetrain.runs.series import series

MakeRun = Callable[..., RunFolder]


def gpu(elapsed: float, index: int = 0, watts: float | None = None) -> dict[str, object]:
    return {"elapsed_seconds": elapsed, "gpu_index": index, "uuid": f"GPU-{index}", "power_draw_watts": watts}


def test_each_gpu_is_a_series_of_its_own_with_its_labels(make_run: MakeRun) -> None:
    run = make_run(gpu=[gpu(t, index, 100.0 * index + t) for t in range(5) for index in range(2)])
    first, second = series(Database([run]), None, "gpu.power_draw_watts")
    assert first.labels == {"run": run.path.name, "host": "vm", "gpu_index": 0, "uuid": "GPU-0"}
    assert second.labels["gpu_index"] == 1
    assert second.mean.tolist() == [100.0, 101.0, 102.0, 103.0, 104.0]


def test_fewer_values_than_points_are_given_as_they_are(make_run: MakeRun) -> None:
    times = [0.0, 1.02, 1.97, 3.01]
    (found,) = series(Database([make_run(gpu=[gpu(t, watts=10 * t) for t in times])]), None, "gpu.power_draw_watts")
    assert found.time.tolist() == times
    assert found.min.tolist() == found.mean.tolist() == found.max.tolist() == [10 * t for t in times]


def test_a_bucket_keeps_the_least_the_mean_and_the_most(make_run: MakeRun) -> None:
    run = make_run(gpu=[gpu(t, watts=500.0 if t == 7 else float(t)) for t in range(100)])
    (found,) = series(Database([run]), None, metric("gpu", "power_draw_watts"), points=10)
    assert len(found.time) == 10
    assert found.max.max() == 500.0 and found.min.min() == 0.0
    assert found.mean[0] == pytest.approx((sum(range(10)) - 7 + 500) / 10)
    assert (np.diff(found.time) > 0).all()


def test_a_gap_shows_as_a_gap(make_run: MakeRun) -> None:
    times = [*range(100), *range(200, 300)]
    run = make_run(gpu=[gpu(float(t), watts=50.0) for t in times])
    for points in (30, 1000):
        (found,) = series(Database([run]), None, "gpu.power_draw_watts", points=points)
        (hole,) = np.flatnonzero(np.isnan(found.mean))
        assert 99 <= found.time[hole] <= 200
        assert np.isnan(found.min[hole]) and np.isnan(found.max[hole])


def test_a_part_of_the_time_is_cut_out(make_run: MakeRun) -> None:
    run = make_run(gpu=[gpu(float(t), watts=float(t)) for t in range(100)])
    (found,) = series(Database([run]), None, "gpu.power_draw_watts", start=10.0, end=20.0)
    assert found.mean.tolist() == [float(t) for t in range(10, 21)]


def test_values_that_are_not_known_are_no_points(make_run: MakeRun) -> None:
    run = make_run(gpu=[gpu(float(t), watts=None if t % 2 else 1.0) for t in range(20)])
    (found,) = series(Database([run]), None, "gpu.power_draw_watts")
    assert found.time.tolist() == [float(t) for t in range(0, 20, 2)]
    assert series(Database([run]), None, "gpu.fan_speed_percent") == []


def test_a_field_by_core_gives_a_series_for_each_core(make_run: MakeRun) -> None:
    run = make_run(host=[{"cpu_core_ratio": {"0": 0.5, "1": 1.0}}, {"cpu_core_ratio": {"0": 0.7, "1": 0.9}}])
    found = series(Database([run]), None, "host.cpu_core_ratio")
    assert {one.labels["key"]: one.mean.tolist() for one in found} == {"0": [0.5, 0.7], "1": [1.0, 0.9]}


def test_a_figure_that_the_program_logged_is_a_metric_too(make_run: MakeRun) -> None:
    run = make_run(training=[{"rank": 0, "step": 1, "accuracy": 0.5}, {"rank": 1, "step": 1, "accuracy": 0.4}])
    found = series(Database([run]), None, "training.accuracy")
    assert {one.labels["rank"]: one.mean.tolist() for one in found} == {0: [0.5], 1: [0.4]}


@pytest.mark.parametrize("wrong", ["power", "gpus.power_draw_watts", "gpu.nothing", "gpu.name", "training."])
def test_what_is_no_metric_is_a_clear_error(make_run: MakeRun, wrong: str) -> None:
    with pytest.raises(UsageError, match="is no metric"):
        series(Database([make_run(gpu=[gpu(0.0)])]), None, wrong)


def test_of_several_runs_and_hosts_each_has_its_own_and_one_run_can_be_chosen(make_run: MakeRun) -> None:
    make_run(id="20261116-110000-a-0000", gpu=[gpu(0.0, watts=1.0)])
    first = make_run(id="20261116-110000-a-0000", host_name="node1", gpu=[gpu(0.0, watts=2.0)])
    second = make_run(id="20261116-120000-b-0000", gpu=[gpu(0.0, watts=3.0)])
    database = Database([first, second])
    found = series(database, None, "gpu.power_draw_watts")
    assert {(one.labels["run"][-6], one.labels["host"]): one.mean[0] for one in found} == {
        ("a", "vm"): 1.0,
        ("a", "node1"): 2.0,
        ("b", "vm"): 3.0,
    }
    (only,) = series(database, second.path.name, "gpu.power_draw_watts")
    assert (only.labels["run"], only.mean[0]) == (second.path.name, 3.0)
    assert series(database, "no such run", "gpu.power_draw_watts") == []


def test_a_gpu_that_changes_its_number_stays_one_apart_from_the_other(make_run: MakeRun) -> None:
    lines = [{**gpu(0.0, watts=1.0), "uuid": "A"}, {**gpu(1.0, watts=2.0), "uuid": "B"}]
    found = series(Database([make_run(gpu=lines)]), None, "gpu.power_draw_watts")
    assert {one.labels["uuid"]: one.mean.tolist() for one in found} == {"A": [1.0], "B": [2.0]}


@settings(max_examples=15)
@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300),
    points=st.integers(1, 50),
    sealed=st.booleans(),
)
def test_however_many_points_the_extremes_and_the_mean_of_all_values_stay(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], points: int, sealed: bool
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "vm").mkdir()
    line = '{{"timestamp":"2026-11-16T12:00:00Z","elapsed_seconds":{},"gpu_index":0,"power_draw_watts":{}}}\n'
    text = "".join(line.format(number, value) for number, value in enumerate(values))
    (folder / "vm/gpu_metrics_x.jsonl").write_text(text)
    if sealed:
        seal_all(RunFolder(folder))
    (found,) = series(Database([RunFolder(folder)]), None, "gpu.power_draw_watts", points=points)
    assert len(found.time) <= points
    assert (found.min.min(), found.max.max()) == (min(values), max(values))
    assert (found.min <= found.mean + 1e-6).all() and (found.mean <= found.max + 1e-6).all()
    assert (np.diff(found.time) > 0).all()

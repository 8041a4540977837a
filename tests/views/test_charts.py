"""What the charts of a run show, from lines on disk."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.insight.report import Report, Study, study
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import CountingOptions, RunFolder
from pulsetrain.views import charts
from pulsetrain.views.charts import Chart, gpu_charts, run_charts, run_span

MakeRun = Callable[..., RunFolder]


def gpu_line(index: int = 0, **values: Any) -> dict[str, Any]:
    return {"gpu_index": index, "uuid": f"GPU-{index}", "name": "Test", "up": 1} | values


def titled(found: list[Chart]) -> Mapping[str, Chart]:
    return {chart.title: chart for chart in found}


def studied(run: RunFolder, account: CountingOptions | None = None) -> tuple[Study, Database]:
    database = Database([run])
    return study(database, run, account), database


def all_charts(run: RunFolder) -> Mapping[str, Chart]:
    return titled(run_charts(*studied(run)))


def test_a_long_run_is_thinned_to_mean_and_extremes(make_run: MakeRun) -> None:
    lines = [gpu_line(elapsed_seconds=float(n), power_draw_watts=n % 100) for n in range(6000)]
    (line,) = titled(gpu_charts(Database([make_run(gpu=lines)])))["Power"].lines
    assert len(line.seconds) == charts.POINTS
    assert line.low is not None and line.high is not None
    assert (float(np.min(line.low)), float(np.max(line.high))) == (0.0, 99.0)
    assert np.mean(line.values) == pytest.approx(49.5, abs=0.1)
    assert np.all(line.low <= line.values) and np.all(line.values <= line.high)


def test_each_gpu_is_a_line_with_its_name_in_the_order_of_its_index(make_run: MakeRun) -> None:
    lines = [
        gpu_line(index, elapsed_seconds=float(second), temperature_celsius=50 + index)
        for second in range(3)
        for index in (10, 2, 0)
    ]
    chart = titled(gpu_charts(Database([make_run(gpu=lines)])))["Temperature"]
    assert [(line.label, line.values[0]) for line in chart.lines] == [("GPU 0", 50), ("GPU 2", 52), ("GPU 10", 60)]


def test_gpus_of_several_hosts_are_distinguished(make_run: MakeRun) -> None:
    lines = [gpu_line(power_draw_watts=100)] * 2
    make_run(host_name="node1", gpu=lines)
    run = make_run(host_name="node2", gpu=lines)
    assert [line.label for line in titled(gpu_charts(Database([run])))["Power"].lines] == ["node1:0", "node2:0"]


def test_a_line_does_not_cross_a_gap_nor_the_time_a_gpu_was_lost(make_run: MakeRun) -> None:
    seconds = [0.0, 1, 2, 3, 60, 61, 62, 63]
    lines = [gpu_line(elapsed_seconds=s, power_draw_watts=100) for s in seconds]
    lines[2] = gpu_line(elapsed_seconds=2.0, up=0)
    (line,) = titled(gpu_charts(Database([make_run(gpu=lines)])))["Power"].lines
    assert [None if np.isnan(v) else v for v in line.values] == [100, 100, None, 100, None, 100, 100, 100, 100]


def test_what_no_gpu_reports_has_no_chart(make_run: MakeRun) -> None:
    found = gpu_charts(Database([make_run(gpu=[gpu_line(utilization_percent=5), gpu_line(utilization_percent=9)])]))
    assert [chart.title for chart in found] == ["Utilization"]
    assert gpu_charts(Database([make_run(id="none")])) == []


def steps(rank: int = 0, **values: Any) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "step": n, "elapsed_seconds": 0.1 * n, "step_seconds": 0.1, "loss": 10 - 0.01 * n} | values
        for n in range(1, 401)
    ]


def test_the_training_loop_is_that_of_the_first_rank(make_run: MakeRun) -> None:
    found = all_charts(make_run(training=steps(samples=32) + steps(rank=1, samples=32, loss=1000.0)))
    assert np.nanmax(found["Loss"].lines[0].values) < 10
    assert found["Throughput"].unit == "samples/s"
    assert found["Throughput"].lines[0].values == pytest.approx(320)


def test_a_long_loss_curve_is_smoothed_without_lag_and_a_short_one_is_not(make_run: MakeRun) -> None:
    (line,) = all_charts(make_run(training=steps()))["Loss"].lines
    assert line.smooth is not None
    inner = slice(charts.SMOOTHING_POINTS, -charts.SMOOTHING_POINTS)
    assert line.smooth[inner] == pytest.approx(line.values[inner], abs=1e-6)
    (short,) = all_charts(make_run(id="short", training=steps()[:20]))["Loss"].lines
    assert short.smooth is None


def test_a_step_is_shown_by_its_parts_or_as_a_whole(make_run: MakeRun) -> None:
    parts = all_charts(make_run(training=steps(forward_seconds=0.03, backward_seconds=0.06)))["Step time"]
    assert (parts.kind, parts.unit) == ("stack", "ms")
    assert {line.label: round(float(line.values[0])) for line in parts.lines} == {"forward": 30, "backward": 60}
    whole = all_charts(make_run(id="whole", training=steps(step_seconds=2.0)))["Step time"]
    assert (whole.kind, whole.unit, float(whole.lines[0].values[0])) == ("lines", "s", 2.0)


def test_one_very_slow_step_does_not_flatten_all_others(make_run: MakeRun) -> None:
    lines = steps()
    lines[0]["step_seconds"] = 30.0
    chart = all_charts(make_run(training=lines))["Step time"]
    assert chart.cut == pytest.approx(200)
    assert chart.caption == "Step time (ms), a few higher values cut off"


def test_energy_adds_up_to_the_total_of_the_account(make_run: MakeRun) -> None:
    lines = [
        gpu_line(index, elapsed_seconds=float(s), energy_joules=5000.0 + 300 * s, power_draw_watts=300)
        for s in range(60)
        for index in (0, 1)
    ]
    host = [{"elapsed_seconds": float(s), "cpu_energy_joules": 50.0 * s} for s in range(60)]
    run = make_run(gpu=lines, host=host)
    found, database = studied(run, CountingOptions(pue=1.5))
    assert found.report.energy.total is not None
    (line,) = titled(run_charts(found, database))["Cumulative energy"].lines
    assert line.values[0] == 0
    assert 3600 * line.values[-1] == pytest.approx(found.report.energy.total.joules)


def test_intensity_is_drawn_where_it_changed(full_report: Report, make_run: MakeRun) -> None:
    bare, database = studied(make_run())
    found = replace(bare, report=full_report)
    (line,) = titled(run_charts(found, database))["Carbon intensity"].lines
    assert line.values.tolist() == [200, 210, 220, 230, 230]
    assert line.seconds.tolist() == [0, 1800, 3600, 5400, 7200]
    assert full_report.carbon
    full_report.carbon.slots = full_report.carbon.slots[:1]
    assert "Carbon intensity" not in titled(run_charts(found, database))


def test_all_charts_share_one_span_of_time(make_run: MakeRun) -> None:
    run = make_run(
        gpu=[gpu_line(elapsed_seconds=float(s), power_draw_watts=1) for s in range(10)],
        training=[{"elapsed_seconds": 12.5, "step_seconds": 0.1, "loss": 1.0}],
    )
    found, database = studied(run)
    assert run_span(found.report, run_charts(found, database)) == 12.5


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=75, max_size=120))
def test_smoothing_stays_within_the_values_and_keeps_holes(values: list[float]) -> None:
    given_values = np.array(values)
    smooth = charts._smooth(given_values)
    known = np.isfinite(given_values)
    if smooth is not None:
        assert np.array_equal(np.isfinite(smooth), known)
        slack = 1e-6
        assert np.min(given_values[known]) - slack <= np.min(smooth[known])
        assert np.max(smooth[known]) <= np.max(given_values[known]) + slack

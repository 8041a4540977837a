"""The files of a report, those of the older benchmark tool among them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsetrain.errors import PulsetrainError
from pulsetrain.insight.report import Report, make_report, study
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.report import write_files, write_html

MakeRun = Callable[..., RunFolder]


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    """Two GPUs, idle at first and then busy; one of them tells no power."""

    def line(index: int, second: int) -> dict[str, Any]:
        busy = second >= 4
        return {
            "gpu_index": index,
            "uuid": f"GPU-{index}",
            "name": "NVIDIA L4",
            "elapsed_seconds": float(second),
            "up": 1,
            "utilization_percent": 80 + 10 * index if busy else 0,
            "power_draw_watts": (60.0 if busy else 10.0) if index == 0 else None,
            "temperature_celsius": 70 if busy else 30,
            "memory_used_mb": 20000.0 if busy else 100.0,
            "memory_total_mb": 23034.0,
            "power_limit_watts": 72.0 if second == 0 and index == 0 else None,
        }

    start = datetime(2026, 11, 16, 12, tzinfo=UTC)
    lines = [line(index, second) for second in range(9) for index in (0, 1)]
    return make_run(gpu=lines, start=start, end=start + timedelta(seconds=9))


def written(report: Report, run: RunFolder, folder: Path) -> dict[str, Path]:
    database = Database([run])
    found = replace(study(database, run), report=report)
    return {path.name: path for path in write_files(found, database, folder)}


def test_the_four_files_are_written_whole(run: RunFolder, tmp_path: Path) -> None:
    files = written(make_report(run), run, tmp_path / "new" / "report")
    assert sorted(files) == ["formatted_metrics.txt", "metrics.yml", "metrics_plot.png", "report.html"]
    assert sorted(path.name for path in (tmp_path / "new" / "report").iterdir()) == sorted(files)
    assert files["metrics_plot.png"].read_bytes().startswith(b"\x89PNG")
    assert files["report.html"].read_text().endswith("</html>")


def test_formatted_metrics_has_the_tables_of_the_older_tool(
    run: RunFolder, full_report: Report, tmp_path: Path, golden: Callable[[str], str]
) -> None:
    report = make_report(run)
    report.carbon, report.energy = full_report.carbon, full_report.energy
    assert written(report, run, tmp_path)["formatted_metrics.txt"].read_text() == golden("formatted_metrics.txt")


def test_averages_count_only_samples_with_a_busy_gpu(run: RunFolder, tmp_path: Path) -> None:
    figures = yaml.safe_load(written(make_report(run), run, tmp_path)["metrics.yml"].read_text())
    assert (figures["av_util"], figures["av_temp"], figures["av_mem"]) == (85, 70, 20000)
    assert (figures["av_power"], figures["max_power_limit"], figures["total_mem"]) == (60, 72, 23034)
    assert [gpu["av_power"] for gpu in figures["gpus"]] == [60, None]
    assert (figures["benchmark_image"], figures["name"], figures["elapsed_time"]) == ("test", "NVIDIA L4", 9)


def test_the_whole_account_is_in_metrics_yml(run: RunFolder, full_report: Report, tmp_path: Path) -> None:
    figures = yaml.safe_load(written(full_report, run, tmp_path)["metrics.yml"].read_text())
    assert figures["run"] == "20261116-013054-resnet50-3f9c"
    assert figures["total_energy"] == pytest.approx(0.202)
    assert figures["total_carbon"] == pytest.approx(0.202 * 215)
    assert figures["energy"]["total"]["joules"] == 810e3
    assert figures["carbon"]["region"] == "South England"
    assert figures["cost"]["amount"] == 0.0675
    assert figures["summary"]["training"]["steps"] == 7000


def test_what_is_unknown_says_unknown_and_never_zero(bare_report: Report, make_run: MakeRun, tmp_path: Path) -> None:
    files = written(bare_report, make_run(), tmp_path)
    assert "metrics_plot.png" not in files
    table = files["formatted_metrics.txt"].read_text()
    values = [row.split("|")[2].strip() for row in table.splitlines() if row.startswith("| ") and "Metric" not in row]
    assert values[:2] == ["true", "1.00000"]
    assert all("unknown" in value for value in values[2:])
    figures = yaml.safe_load(files["metrics.yml"].read_text())
    assert figures["total_energy"] is None and figures["av_util"] is None and figures["carbon"] is None


def test_a_run_that_never_was_busy_has_no_averages(make_run: MakeRun, tmp_path: Path) -> None:
    idle = {"gpu_index": 0, "uuid": "GPU-0", "name": "NVIDIA L4", "up": 1, "utilization_percent": 0}
    run = make_run(gpu=[idle | {"power_draw_watts": 10.0}] * 3)
    assert (
        "unknown (Power Limit: unknown)"
        in written(make_report(run), run, tmp_path)["formatted_metrics.txt"].read_text()
    )


def test_a_folder_that_cannot_be_written_is_reported_as_such(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PulsetrainError, match=r"report.html cannot be written: Not a directory") as raised:
        database = Database([run])
        write_html(study(database, run), database, tmp_path / "file" / "report")
    assert raised.value.hint == "Choose another folder: --output FOLDER"

"""Long runs: their pyramids make them open quickly, change nothing that is seen, and are not believed blindly."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from pulsetrain.runs.folder import Home, Host, Run, RunFolder
from pulsetrain.runs.pyramid import READINGS, SUFFIX, read_pyramid
from pulsetrain.runs.seal import seal_all
from pulsetrain.snapshot import Sample, Snapshot, Subject, Value
from pulsetrain.views.web.api import csv_rows, run_document, series_document
from pulsetrain.views.web.chart_columns import InView
from pulsetrain.views.web.columns import RunColumns
from pulsetrain.views.web.long_table import LongTable
from pulsetrain.views.web.site import Site

ID = "20261116-120000-long-0001"
SECONDS, GPUS, SPIKE, TAIL = 60_000, 2, 12_345, 300
"""The last seconds are JSON lines that are not sealed."""
CHARTS = ["loss", "own:accuracy", "utilization", "power", "disk", "step_seconds"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 60,000 seconds on two GPUs with a gap in its record, as sealed files with pyramids and a few lines."""
    home = tmp_path_factory.mktemp("long")
    folder = RunFolder(home / ID)
    host = folder.host_folder("vm")
    host.mkdir(parents=True)
    times = "TIMESTAMP '2026-11-16 12:00:00' + INTERVAL 1 SECOND * t AS timestamp, t::DOUBLE AS elapsed_seconds"
    seconds = f"(SELECT range AS t FROM range({SECONDS}) WHERE range NOT BETWEEN 40000 AND 45000)"
    wave = "90 + 9 * sin(t / 700)"
    tables = {
        "gpu": f"SELECT {times}, g::INTEGER AS gpu_index, 'GPU-' || g AS uuid, 1.0 AS up, {wave} + g AS "
        f"utilization_percent, CASE WHEN t = {SPIKE} AND g = 1 THEN 999.0 ELSE 300.0 END AS power_draw_watts "
        f"FROM {seconds}, (SELECT range AS g FROM range({GPUS})) ORDER BY t, g",
        "host": f"SELECT {times}, 0.5 AS cpu_ratio, (t * 1e6 + 5e8 * (t >= {SPIKE})::INT)::DOUBLE AS disk_read_bytes "
        f"FROM {seconds} UNION ALL SELECT {times}, 0.5, t * 1e6 + 5e8 FROM (SELECT range + 0.5 AS t FROM range(60000)) "
        "ORDER BY elapsed_seconds",
        "training": f"SELECT {times}, r AS rank, t::DOUBLE AS step, 1.0 AS step_seconds, "
        "r + 2 / (1 + t / 900) AS loss, CASE WHEN t % 100 = 0 THEN t / 1e5 END AS accuracy, NULL::VARCHAR AS event "
        f"FROM {seconds}, (SELECT range AS r FROM range(2)) ORDER BY t, r",
    }
    for table, sql in tables.items():
        duckdb.execute(f"COPY ({sql}) TO '{host}/{table}_metrics_20261116_120000.parquet' (FORMAT parquet)")
    with (host / "gpu_metrics_20261117_044000.jsonl").open("w") as file:
        for second in range(SECONDS, SECONDS + TAIL):
            for gpu in range(GPUS):
                line = {"elapsed_seconds": second, "gpu_index": gpu, "uuid": f"GPU-{gpu}", "up": 1.0}
                file.write(json.dumps(line | {"timestamp": "2026-11-17T04:40:00Z", "power_draw_watts": 500.0}) + "\n")
    start = datetime(2026, 11, 16, 12, tzinfo=UTC)
    hosts = {"vm": Host(gpus=[{"name": "NVIDIA H100"}] * GPUS)}
    folder.save(Run(id=ID, name="long", start=start, seconds=float(SECONDS + TAIL), status="finished", hosts=hosts))
    shutil.copytree(home / ID, home / "plain" / ID)
    seal_all(folder)
    return home


@pytest.fixture
def run(made: Path, tmp_path: Path) -> RunFolder:
    """A copy, to be damaged."""
    return RunFolder(Path(shutil.copytree(made / ID, tmp_path / ID)))


@contextmanager
def opened(home: Path) -> Iterator[Site]:
    site = Site(Home(home))
    yield site
    site.close()


def series(site: Site, start: float, end: float, points: int, smooth: float = 0.0) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = series_document(site, ID, CHARTS, start, end, points, smooth)["charts"]
    for lines in found.values():
        for before, line in pairwise(lines):
            line.setdefault("x", before["x"])
    return found


def is_long(site: Site, table: str = "gpu") -> bool:
    followed = site.open(ID)
    assert followed
    return isinstance(followed.columns._table(table), LongTable)


def test_a_long_run_looks_the_same_with_pyramids_and_without(made: Path) -> None:
    with opened(made) as long, opened(made / "plain") as plain:
        assert is_long(long) and is_long(long, "training") and is_long(long, "host") and not is_long(plain)
        about, truth = run_document(long, ID), run_document(plain, ID)
        assert about["charts"] == truth["charts"]
        assert about["steps"]["steps"][-1] == truth["steps"]["steps"][-1]
        found, true = series(long, 0, SECONDS + TAIL, 200), series(plain, 0, SECONDS + TAIL, 200)
        for chart in CHARTS:
            assert [line["label"] for line in found[chart]] == [line["label"] for line in true[chart]]
            for line, other in zip(found[chart], true[chart], strict=True):
                assert np.nanmax(floats(line["high"])) == pytest.approx(np.nanmax(floats(other["high"])), rel=1e-4)
                assert np.nanmin(floats(line["low"])) == pytest.approx(np.nanmin(floats(other["low"])), rel=1e-4)
                there = np.interp(other["x"], line["x"], floats(line["last"]))
                near = np.nanquantile(np.abs(there - floats(other["last"])), 0.9)
                assert near <= 0.03 * np.nanmax(np.abs(floats(other["last"]))), chart
        assert max(found["power"][1]["high"]) == 999.0 and found["power"][1]["last"][-1] == 500.0
        gap = [
            x for x, value in zip(found["power"][0]["x"], found["power"][0]["last"], strict=True) if math.isnan(value)
        ]
        assert len(gap) == 1 and 40_000 < gap[0] < 45_000
        assert len(found["loss"]) == 1 and found["loss"][0]["last"][-1] < 1  # of the first rank alone


def floats(values: list[float]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.array(values, dtype=float)


def test_a_zoom_gives_the_readings_themselves_and_smoothing_agrees(made: Path) -> None:
    with opened(made) as long, opened(made / "plain") as plain:
        assert is_long(long)
        found, true = (series(site, 12_000, 12_500, 800) for site in (long, plain))
        seldom = [series(site, 12_010, 12_060, 800).pop("own:accuracy")[0]["last"] for site in (long, plain)]
        assert found.pop("own:accuracy")[0]["last"] == true.pop("own:accuracy")[0]["last"]
        assert seldom == [[0.12, 0.121], [0.12, 0.121]]  # its line crosses the view, with no reading in it
        assert found == true
        assert series(long, 12_000, 20_000, 800, 0.03)["power"] == series(plain, 12_000, 20_000, 800, 0.03)["power"]
        smooth, exact = (series(site, 0, SECONDS, 200, 0.1)["utilization"][0] for site in (long, plain))
        there = np.interp(exact["x"], smooth["x"], floats(smooth["smooth"]))
        assert np.nanquantile(np.abs(there - floats(exact["smooth"])), 0.9) < 1
        rows = [list(csv_rows(site, ID, "power", SPIKE - 2.0, SPIKE + 2.0)) for site in (long, plain)]
        assert rows[0] == rows[1] and len(rows[0]) == 1 + 5 * GPUS


def cut_off(pyramid: Path) -> None:
    pyramid.write_bytes(pyramid.read_bytes()[:-1000])


def flip(pyramid: Path) -> None:
    text = bytearray(pyramid.read_bytes())
    text[-1000] ^= 1
    pyramid.write_bytes(bytes(text))


def no_pyramid(pyramid: Path) -> None:
    pyramid.write_bytes(b'{"version": 1')


def of_another(pyramid: Path) -> None:
    shutil.copy(pyramid.with_name("host_metrics_20261116_120000.pyramid"), pyramid)


def link(pyramid: Path) -> None:
    target = pyramid.rename(pyramid.with_name("elsewhere"))
    pyramid.symlink_to(target)


def rewrite_parquet(pyramid: Path) -> None:
    parquet = pyramid.with_suffix(".parquet")
    other = parquet.with_name("other.parquet")
    duckdb.execute(f"COPY (FROM '{parquet}' ORDER BY elapsed_seconds, gpu_index) TO '{other}' (FORMAT parquet)")
    other.replace(parquet)


@pytest.mark.parametrize("damage", [cut_off, flip, no_pyramid, of_another, link, rewrite_parquet, Path.unlink])
def test_a_pyramid_that_is_torn_stale_or_missing_is_not_believed(
    run: RunFolder, damage: Callable[[Path], object]
) -> None:
    (pyramid,) = run.path.rglob(f"gpu*{SUFFIX}")
    parquet = pyramid.with_suffix(".parquet")
    assert read_pyramid(parquet)
    damage(pyramid)
    assert read_pyramid(parquet) is None
    with opened(run.path.parent) as site:
        assert not is_long(site)
        assert max(series(site, 0, SECONDS, 200)["power"][1]["high"]) == 999.0


def test_a_copy_keeps_its_pyramids_and_sealing_again_makes_missing_ones(run: RunFolder) -> None:
    (pyramid,) = run.path.rglob(f"gpu*{SUFFIX}")
    before = pyramid.read_bytes()
    assert read_pyramid(pyramid.with_suffix(".parquet"))
    pyramid.unlink()
    seal_all(run)
    assert pyramid.read_bytes() == before


def test_stretches_have_a_fixed_number_of_readings_and_cross_no_gap(made: Path) -> None:
    (file,) = (made / ID).rglob(f"gpu*{SUFFIX}")
    pyramid = read_pyramid(file.with_suffix(".parquet"))
    assert pyramid and pyramid.rows == GPUS * (SECONDS - 5001)
    for subject in pyramid.subjects:
        assert (subject.ends - subject.starts).max() == READINGS - 1


def test_what_comes_of_a_run_in_progress_is_appended_to_the_stretches(made: Path) -> None:
    columns = RunColumns(RunFolder(made / ID))
    charts = [chart for chart in columns.charts() if chart.key == "power"]
    (before,) = columns.lines(charts, InView(0, SECONDS, 100))
    board = Subject("gpu", "GPU-1", {"gpu_index": 1, "uuid": "GPU-1"})
    at = float(SECONDS + TAIL + 1)
    columns.take("vm", Snapshot(time=0.0, elapsed=at, samples=(Sample(board, {"power_draw_watts": 123.0}),)))
    stretches = before[1].column.stretches()
    assert stretches and (stretches.times[-1], stretches.low[-1], stretches.last[-1]) == (at, 123.0, 123.0)
    ((_, lines),) = columns.lines_read(charts)
    assert [values.tolist() for values in lines[1].column.since(SECONDS + TAIL)] == [[at], [123.0]]
    columns.close()


def test_a_tick_with_many_steps_shows_the_time_of_one(made: Path) -> None:
    columns = RunColumns(RunFolder(made / ID))
    charts = [chart for chart in columns.charts() if chart.key == "step_seconds"]
    columns.lines(charts, InView(0, SECONDS, 100))
    rank = Subject("training", "rank 0", {"rank": 0})
    values: dict[str, Value] = {"step_seconds": 1.0, "step_counts": {"0.05": 30, "0.025": 10}}
    columns.take("vm", Snapshot(time=0.0, elapsed=SECONDS + 5.0, samples=(Sample(rank, values),)))
    ((_, lines),) = columns.lines_read(charts)
    assert lines[0].column.since(SECONDS)[1].tolist() == [0.025]
    columns.close()


def test_the_first_chart_needs_neither_the_database_nor_the_report(run: RunFolder) -> None:
    """Their imports would be most of the time from the start of the server to its first answer."""
    for file in [*run.files("gpu"), *run.files("host")]:
        file.unlink()  # some of their lines are in no pyramid
    script = f"""
import sys
from pathlib import Path
import pulsetrain.cli.serve, pulsetrain.views.web.server
from pulsetrain.runs.folder import Home
from pulsetrain.views.web.api import series_document
from pulsetrain.views.web.site import Site
found = series_document(Site(Home(Path({str(run.path.parent)!r}))), {ID!r}, ["loss"], None, None, 500, 0.0)
assert len(found["charts"]["loss"][0]["x"]) > 100
print({{"duckdb", "yaml", "httpx", "jinja2", "matplotlib", "pulsetrain.insight.report"}} & sys.modules.keys())
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"

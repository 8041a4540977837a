"""`pulsetrain export`: a run as files, and its lines as they were recorded."""

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.cli.conftest import Pulsetrain

from pulsetrain.catalog import CORE_GPU_FIELDS
from pulsetrain.runs.folder import RunFolder

MakeRun = Callable[..., RunFolder]
LINES: dict[str, list[dict[str, Any]]] = {
    "gpu": [
        {"gpu_index": 0, "uuid": "GPU-0", "simulated": True, "power_draw_watts": 71.528, "energy_joules": 4015574.747,
         "clock_sm_hertz": 1680000000, "throttle_reasons": ["sw_power_cap"], "up": 1, **dict.fromkeys(CORE_GPU_FIELDS)},
        {"gpu_index": 0, "uuid": "GPU-0", "up": 0, "field_of_tomorrow": {"a": [1, "x"]}},
    ],
    "host": [{"cpu_ratio": 0.5, "cpu_core_ratio": {"0": 0.25, "1": 0.75}}],
    "training": [
        {"event": "training_process", "severity": "info", "message": "records", "pid": 2**22 + 1},
        {"rank": 0, "step": 1, "loss": 0.1, "accuracy": 0.9, "val/acc": 0.8, "Loss": 3},
        {"rank": 0, "step": 2, "loss": None, "nonfinite": {"loss": "nan"}},
    ],
    "events": [{"kind": "gap", "severity": "info", "message": 'said "no"', "source": "nvidia", "ticks": 2}],
}  # fmt: skip


@pytest.fixture
def run(make_run: MakeRun, home: Path) -> RunFolder:
    return make_run(home=home / "runs", end=datetime(2026, 11, 16, 13, tzinfo=UTC), **LINES)


def read(file: Path) -> list[dict[str, Any]]:
    """Lines without what is null: that is the same as not to be there."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in line.items() if value is not None} for line in lines]


def recorded(run: RunFolder) -> dict[str, list[dict[str, Any]]]:
    return {table: [line for file in run.files(table) for line in read(file)] for table in LINES}


@pytest.mark.parametrize("sealed", [False, True])
def test_jsonl_gives_back_the_lines_that_were_recorded(
    pulsetrain: Pulsetrain, run: RunFolder, tmp_path: Path, sealed: bool
) -> None:
    before = recorded(run)
    if sealed:
        assert pulsetrain("runs", "seal", "last").stdout.startswith(f"{run.path.name}: 3 files, ")
    done = pulsetrain("export", "last", "--format", "jsonl", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert {table: read(tmp_path / f"out/{table}.jsonl") for table in LINES} == before
    first = json.loads((tmp_path / "out/gpu.jsonl").read_text().splitlines()[0])
    assert set(CORE_GPU_FIELDS) <= first.keys()


def test_it_says_what_it_wrote_and_writes_tables_with_lines_alone(
    pulsetrain: Pulsetrain, run: RunFolder, tmp_path: Path
) -> None:
    done = pulsetrain("export", "last", "--format", "csv")
    folder = tmp_path / run.path.name
    written = {"gpu": "2 lines", "host": "1 line", "training": "2 lines", "events": "1 line"}
    assert done.stdout.splitlines() == [f"{run.path.name}/{name}.csv  {rows}" for name, rows in written.items()]
    assert sorted(file.name for file in folder.iterdir()) == ["events.csv", "gpu.csv", "host.csv", "training.csv"]
    with (folder / "host.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["timestamp"], row["cpu_ratio"]) == ("2026-11-16T12:00:00.000Z", "0.5")
    assert json.loads(row["cpu_core_ratio"]) == {"0": 0.25, "1": 0.75}


def test_parquet_has_the_columns_that_a_query_sees(pulsetrain: Pulsetrain, run: RunFolder, tmp_path: Path) -> None:
    done = pulsetrain("export", run.path.name, "--format", "parquet", "--table", "training", "--output", "out")
    assert done.stdout == "out/training.parquet  2 lines\n"
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["training.parquet"]
    found = duckdb.connect().read_parquet(str(tmp_path / "out/training.parquet"))
    assert found.types[found.columns.index("timestamp")] == "TIMESTAMP WITH TIME ZONE"  # as the Z in CSV says
    assert found.select("run, step, accuracy").order("step").fetchall() == [
        (run.path.name, 1.0, 0.9),
        (run.path.name, 2.0, None),
    ]


def test_lines_of_several_hosts_say_whose_they_are(
    pulsetrain: Pulsetrain, make_run: MakeRun, home: Path, tmp_path: Path
) -> None:
    for host in ("node0", "node1"):
        make_run(home=home / "runs", host_name=host, host=[{"cpu_ratio": 0.5}])
    pulsetrain("export", "last", "--format", "jsonl", "--output", "out")
    assert [line["host"] for line in read(tmp_path / "out/host.jsonl")] == ["node0", "node1"]


def test_a_folder_that_cannot_be_written_is_a_clear_error(
    pulsetrain: Pulsetrain, run: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("")
    done = pulsetrain("export", "last", "--format", "csv", "--output", "out/deep")
    assert done.returncode == 1
    assert "out/deep/gpu.csv cannot be written" in done.stderr and "Traceback" not in done.stderr


def test_a_running_run_is_not_sealed_by_hand(pulsetrain: Pulsetrain, make_run: MakeRun, home: Path) -> None:
    make_run(home=home / "runs", status="running", hosts={"elsewhere": {}}, gpu=[{"gpu_index": 0}])
    done = pulsetrain("runs", "seal", "last")
    assert done.returncode == 2 and "is still running" in done.stderr

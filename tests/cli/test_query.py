"""`pulsetrain query`: what people and scripts get, and what a wrong question says."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.cli.conftest import Pulsetrain

from pulsetrain.runs.description import Code
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.tables import TABLES

MakeRun = Callable[..., RunFolder]


@pytest.fixture
def runs(make_run: MakeRun, home: Path) -> list[RunFolder]:
    def gpus(watts: float) -> list[dict[str, Any]]:
        return [
            {"gpu_index": index, "name": "NVIDIA L4", "power_draw_watts": watts + index, "energy_joules": 4015574.75,
             "throttle_reasons": ["idle"]}
            for index in range(2)
        ]  # fmt: skip

    return [
        make_run(id=f"20261116-1{n}0000-{name}-0000", home=home / "runs", name=name, gpu=gpus(50.0 + 10 * n))
        for n, name in enumerate(("first", "second"))
    ]


def test_people_get_an_aligned_table(pulsetrain: Pulsetrain, runs: list[RunFolder]) -> None:
    sql = "select gpu_index, avg(power_draw_watts) watts, max(energy_joules) j, any_value(fan_speed_percent) fan, "
    sql += "any_value(throttle_reasons) why from gpu where run like '%first%' group by 1 order by 1"
    done = pulsetrain("query", sql)
    assert done.stdout.splitlines() == [
        "gpu_index  watts        j  fan  why",
        '        0     50  4015575    -  ["idle"]',
        '        1     51  4015575    -  ["idle"]',
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_all_runs_are_asked_or_those_that_are_named(pulsetrain: Pulsetrain, runs: list[RunFolder]) -> None:
    sql = "select distinct run from gpu order by 1"
    both = pulsetrain("query", sql, "--csv").stdout.split()
    assert both == ["run", *(run.path.name for run in runs)]
    assert pulsetrain("query", sql, "--csv", "--run", "second").stdout.split() == ["run", runs[1].path.name]


def test_what_runs_were_is_a_table(pulsetrain: Pulsetrain, make_run: MakeRun, home: Path) -> None:
    for number, lr in enumerate((0.1, 3e-4)):
        make_run(
            id=f"20261116-1{number}0000-run-0000",
            home=home / "runs",
            config={"lr": lr, "model": {"kind": "vit", "depth": 12}},
            versions={"torch": "2.13.0"},
            code=Code(commit="3f9c", branch="main"),
        )
    asked = "select kind, name, value from config where run like '%-110000-%' and kind != 'environment' order by 1, 2"
    rows = json.loads(pulsetrain("query", asked, "--json").stdout)
    assert [tuple(row.values()) for row in rows] == [
        ("code", "branch", "main"),
        ("code", "commit", "3f9c"),
        ("config", "lr", "0.0003"),
        ("config", "model.depth", "12"),
        ("config", "model.kind", "vit"),
        ("versions", "torch", "2.13.0"),
    ]
    best = pulsetrain("query", "select run from config where name = 'lr' and number < 0.01", "--csv").stdout.split()
    assert best == ["run", "20261116-110000-run-0000"]


def test_scripts_get_csv_with_every_digit(pulsetrain: Pulsetrain, runs: list[RunFolder]) -> None:
    done = pulsetrain(
        "query",
        "select timestamp, energy_joules, throttle_reasons, uuid, 'a \"b\",c' as text from gpu limit 1",
        "--csv",
    )
    head, row = csv.reader(io.StringIO(done.stdout))
    assert head == ["timestamp", "energy_joules", "throttle_reasons", "uuid", "text"]
    assert row == ["2026-11-16T12:00:00.000Z", "4015574.75", '["idle"]', "", 'a "b",c']


def test_scripts_get_json(pulsetrain: Pulsetrain, runs: list[RunFolder]) -> None:
    sql = "select timestamp, gpu_index, uuid, throttle_reasons, 1.5 as decimal from gpu where gpu_index = 1"
    rows = json.loads(pulsetrain("query", sql, "--json").stdout)
    assert rows[0] == {
        "timestamp": "2026-11-16T12:00:01.000Z",
        "gpu_index": 1,
        "uuid": None,
        "throttle_reasons": ["idle"],
        "decimal": 1.5,
    }
    assert len(rows) == 2
    assert json.loads(pulsetrain("query", f"{sql} and false", "--json").stdout) == []


def test_a_result_becomes_a_parquet_file(pulsetrain: Pulsetrain, runs: list[RunFolder], tmp_path: Path) -> None:
    target = tmp_path / "it's.parquet"
    done = pulsetrain("query", "select gpu_index, power_draw_watts from gpu", "--parquet", str(target))
    assert (done.stdout, done.returncode) == (f"{target}\n", 0)
    found = duckdb.connect().read_parquet(str(target)).fetchall()
    assert sorted(found) == [(0, 50.0), (0, 60.0), (1, 51.0), (1, 61.0)]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".it")] == []


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("selec 1", "syntax error"),
        ("select watts from gpu", 'Referenced column "watts" not found'),
        ("select * from gpus", "gpus does not exist"),
        ("select 'x'::integer from gpu", "Could not convert"),
        ("drop view gpu", "a query must be a single SELECT"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from read_csv('/etc/passwd')", "Permission Error"),
    ],
)
def test_a_wrong_question_is_a_clear_error(pulsetrain: Pulsetrain, runs: list[RunFolder], sql: str, words: str) -> None:
    done = pulsetrain("query", sql)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and words in done.stderr
    assert f"The tables are {', '.join(TABLES)}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["select 1", "--csv", "--json"]])
def test_a_wrong_call_says_what_is_missing(pulsetrain: Pulsetrain, arguments: list[str]) -> None:
    done = pulsetrain("query", *arguments)
    assert done.returncode == 2 and "Error: " in done.stderr


def test_without_runs_the_tables_are_empty(pulsetrain: Pulsetrain) -> None:
    assert json.loads(pulsetrain("query", "select count(*) as n from gpu", "--json").stdout) == [{"n": 0}]


def test_damaged_lines_are_reported(pulsetrain: Pulsetrain, runs: list[RunFolder]) -> None:
    with (runs[0].path / "vm/gpu_metrics_20261116_120000.jsonl").open("a") as file:
        file.write("damaged\n")
    done = pulsetrain("query", "select count(*) from gpu", "--csv")
    assert done.stdout.split()[-1] == "4"
    assert done.stderr == "note: 1 damaged lines were skipped\n"


def test_the_schema_has_every_table_and_column_with_unit_and_help(pulsetrain: Pulsetrain) -> None:
    text = pulsetrain("query", "--schema").stdout
    assert all(f"\n{table}\n" in f"\n{text}" for table in TABLES)
    assert any(line.split()[:3] == ["power_draw_watts", "DOUBLE", "watts"] for line in text.splitlines())
    schema = json.loads(pulsetrain("query", "--schema", "--json").stdout)
    assert list(schema) == list(TABLES)
    assert all(column["help"] for columns in schema.values() for column in columns)


def test_a_reader_that_goes_away_is_not_an_error(environment: dict[str, str], runs: list[RunFolder]) -> None:
    sql = "select i from range(1_000_000) r(i), (select 1 from gpu limit 1)"
    command = f'"{sys.executable}" -m pulsetrain query "{sql}" --csv | head -n 2'
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("i\n0\n", "")


def test_a_narrow_terminal_shows_the_columns_that_fit_and_says_so(
    environment: dict[str, str], runs: list[RunFolder]
) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "pulsetrain", "query", "select * from gpu"],
        env={**environment, "COLUMNS": "60", "NO_COLOR": "1", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    lines = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    assert lines[0].split()[:3] == ["run", "host", "timestamp"]
    assert len(lines) == 5 and max(map(len, lines)) <= 60
    assert "more columns do not fit" in done.stderr

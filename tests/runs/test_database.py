"""Runs as tables: what is read, what is left out and counted, and what a query can reach."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.errors import UsageError
from pulsetrain.runs import line_columns
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import Host, RunFolder, host_name
from pulsetrain.runs.seal import seal_all
from pulsetrain.runs.tables import LINE_TABLES, TABLES, columns

MakeRun = Callable[..., RunFolder]


def jsonl(run: RunFolder, table: str = "gpu") -> Path:
    return run.path / f"vm/{table}_metrics_20261116_120000.jsonl"


def test_every_table_has_its_declared_columns_when_a_run_has_no_lines_at_all(make_run: MakeRun) -> None:
    database = Database([make_run()])
    for table in TABLES:
        assert list(database.columns(table)) == [column.name for column in columns(table)]
        assert list(database.columns(table).values()) == [column.type for column in columns(table)]
    assert [database.count(table) for table in LINE_TABLES] == [0] * len(LINE_TABLES)


def test_lines_become_rows_with_their_run_and_host(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0, "power_draw_watts": 70.5, "throttle_reasons": ["idle"]}])
    (row,) = Database([run]).rows("SELECT * FROM gpu")
    assert (row["run"], row["host"], row["gpu_index"]) == (run.path.name, "vm", 0)
    assert (row["power_draw_watts"], row["throttle_reasons"], row["uuid"]) == (70.5, ["idle"], None)
    assert row["timestamp"].isoformat() == "2026-11-16T12:00:00"


def test_a_field_with_a_value_for_each_core_is_a_map(make_run: MakeRun) -> None:
    database = Database([make_run(host=[{"cpu_core_ratio": {"0": 0.5, "1": 1.0}}])])
    assert database.rows("SELECT cpu_core_ratio['1'] AS busy FROM host") == [{"busy": 1.0}]


def test_arrays_have_nan_for_an_unknown_number_and_none_for_an_unknown_word(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0, "uuid": "GPU-1", "power_draw_watts": 70.0}, {"gpu_index": 1, "uuid": None}])
    found = Database([run]).arrays("SELECT timestamp, gpu_index, uuid, power_draw_watts FROM gpu ORDER BY gpu_index")
    assert found["gpu_index"].tolist() == [0.0, 1.0]
    assert found["uuid"].tolist() == ["GPU-1", None]
    assert found["power_draw_watts"][0] == 70.0 and np.isnan(found["power_draw_watts"][1])
    assert found["timestamp"][1] - found["timestamp"][0] == np.timedelta64(1, "s")


def test_figures_that_a_program_logs_are_columns(make_run: MakeRun) -> None:
    run = make_run(training=[{"step": 1}, {"step": 2, "accuracy": 0.9, 'odd "name/~': 3, "mode": "fast", "done": True}])
    database = Database([run])
    assert database.rows("SELECT accuracy, mode, done FROM training ORDER BY step") == [
        {"accuracy": None, "mode": None, "done": None},
        {"accuracy": 0.9, "mode": "fast", "done": True},
    ]
    assert database.rows('SELECT max("odd ""name/~") AS odd FROM training') == [{"odd": 3.0}]


def test_what_cannot_be_a_column_is_kept_as_json(make_run: MakeRun) -> None:
    line = {"step": 1, "loss": 0.5, "Loss": 7, "host": 3, "nested": {"a": [1, 2]}, "": 4}
    database = Database([make_run(training=[line, {"step": 2, "mixed": 1}, {"step": 3, "mixed": "x"}])])
    rows = database.rows("SELECT loss, host, other FROM training ORDER BY step")
    assert (rows[0]["loss"], rows[0]["host"]) == (0.5, "vm")
    assert [json.loads(row["other"]) for row in rows] == [
        {"Loss": 7, "host": 3, "nested": {"a": [1, 2]}, "": 4},
        {"mixed": 1},
        {"mixed": "x"},
    ]


def test_notes_of_the_recorder_are_no_reports(make_run: MakeRun) -> None:
    notes = [{"event": "training_process", "pid": 1}, {"event": "phase_end", "message": "x", "seconds": 2.0}]
    database = Database([make_run(training=[*notes, {"step": 1}])])
    assert database.rows("SELECT step FROM training") == [{"step": 1.0}]
    assert "pid" not in database.columns("training") and "event" not in database.columns("training")


def test_lines_of_a_process_that_learned_its_rank_late_are_of_that_rank_sealed_or_not(make_run: MakeRun) -> None:
    late = [{"rank": 0, "x": 1}, {"rank": 0, "x": 2}, {"rank": 3, "event": "training_rank"}]
    run = make_run(training=late)
    other = jsonl(run, "training").with_suffix(".pid7.jsonl")
    other.write_text('{"timestamp":"2026-11-16T12:00:00Z","elapsed_seconds":1.0,"rank":0,"x":3}\n')
    for _ in range(2):
        rows = Database([run]).rows("SELECT x, rank FROM training ORDER BY x")
        assert [(row["x"], row["rank"]) for row in rows] == [(1, 3), (2, 3), (3, 0)]
        seal_all(run)


def test_losses_that_are_no_numbers_can_be_asked_for(make_run: MakeRun) -> None:
    run = make_run(training=[{"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "nonfinite": {"loss": "nan"}}])
    found = Database([run]).rows("SELECT step FROM training WHERE nonfinite['loss'] = 'nan'")
    assert found == [{"step": 2.0}]


def test_details_of_events_are_columns(make_run: MakeRun) -> None:
    events = [
        {"kind": "xid", "severity": "error", "message": "bad", "gpu_index": 2, "uuid": "GPU-2", "xid": 79},
        {"kind": "phase_end", "severity": "info", "message": "v", "phase": "validation", "seconds": 1.5, "extra": 1},
    ]
    rows = Database([make_run(events=events)]).rows("SELECT * FROM events ORDER BY elapsed_seconds")
    assert rows[0]["severity"] == "critical", "as of older versions"
    assert (rows[0]["xid"], rows[0]["gpu_index"], rows[0]["uuid"]) == (79.0, 2, "GPU-2")
    assert (rows[1]["phase"], rows[1]["seconds"], rows[1]["extra"]) == ("validation", 1.5, 1.0)


DAMAGE = {
    "cut off": b'{"timestamp":"2026-11-16T12:00:05.0',
    "filled with NUL": b"\0" * 5000,
    "NUL at its end": b'{"timestamp":"2026-11-16T12:00:05.000Z","gpu_index":0}\0\0',
    "no JSON": b"Segmentation fault",
    "no object": b"[1, 2]",
    "a number": b"17",
    "not UTF-8": b'{"timestamp":"2026-11-16T12:00:05.000Z","name":"\xff"}',
    "two lines in one": b'{"timestamp":"2026-11-16T12:00:05.000Z"}{"timestamp":"2026-11-16T12:00:06.000Z"}',
    "without a time": b'{"gpu_index":0}',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_line_is_left_out_and_counted(make_run: MakeRun, damage: bytes) -> None:
    run = make_run(gpu=[{"gpu_index": 0}, {"gpu_index": 1}])
    first, second = jsonl(run).read_bytes().splitlines(keepends=True)
    jsonl(run).write_bytes(first + damage + b"\n" + second)
    database = Database([run])
    assert [row["gpu_index"] for row in database.rows("SELECT gpu_index FROM gpu")] == [0, 1]
    assert database.damaged_lines == 1


@settings(max_examples=15)
@given(st.lists(st.binary(max_size=200).filter(lambda line: b"\n" not in line and b"\r" not in line), max_size=8))
def test_whatever_is_between_two_lines_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, rubbish: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "vm").mkdir()
    first, last = (b'{"timestamp":"2026-11-16T12:00:0%dZ","gpu_index":%d}' % (n, n) for n in (1, 2))
    (folder / "vm/gpu_metrics_x.jsonl").write_bytes(b"\n".join([first, *rubbish, last]) + b"\n")
    found = Database([RunFolder(folder)]).rows("SELECT gpu_index FROM gpu WHERE gpu_index IS NOT NULL")
    assert [row["gpu_index"] for row in found] == [1, 2]


def test_a_value_of_the_wrong_type_does_not_lose_its_line(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0, "power_draw_watts": "much", "throttle_reasons": 7, "memory_used_mb": 5.0}])
    database = Database([run])
    (row,) = database.rows("SELECT power_draw_watts, throttle_reasons, memory_used_mb FROM gpu")
    assert row == {"power_draw_watts": None, "throttle_reasons": None, "memory_used_mb": 5.0}
    assert database.damaged_lines == 0


@pytest.mark.parametrize(("status", "damaged"), [("running", 0), ("finished", 1)])
def test_half_a_last_line_is_damage_only_when_nobody_will_write_the_rest(
    make_run: MakeRun, status: str, damaged: int
) -> None:
    me = psutil.Process()
    hosts = {host_name(): Host(pid=me.pid, pid_start=me.create_time())}
    run = make_run(gpu=[{"gpu_index": 0}], status=status, hosts=hosts)
    with jsonl(run).open("ab") as file:
        file.write(b'{"timestamp":"2026-11-16T12:0')
    database = Database([run])
    assert database.count("gpu") == 1
    assert database.damaged_lines == damaged


def test_empty_files_and_fields_of_older_and_newer_versions_read_fine(make_run: MakeRun, tmp_path: Path) -> None:
    older = make_run(id="20261116-110000-older-0000", gpu=[{"gpu_index": 0}])
    newer = make_run(id="20261116-130000-newer-0000", gpu=[{"gpu_index": 1, "hotspot_celsius": 90.0}], host=[])
    database = Database([older, newer])
    rows = database.rows("SELECT gpu_index, hotspot_celsius, energy_joules FROM gpu ORDER BY run")
    assert [(row["gpu_index"], row["hotspot_celsius"]) for row in rows] == [(0, None), (1, 90.0)]
    assert database.count("host") == 0


def test_sealed_files_with_more_and_fewer_columns_read_fine(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0, "power_draw_watts": 70.0}])
    for number, select in enumerate(("1 AS gpu_index", "2 AS gpu_index, 90.0 AS hotspot_celsius")):
        target = run.path / f"vm/gpu_metrics_2026111{number}_000000.parquet"
        duckdb.connect().execute(f"COPY (SELECT now()::TIMESTAMP AS timestamp, {select}) TO '{target}'")
    database = Database([run])
    rows = database.rows("SELECT gpu_index, power_draw_watts, hotspot_celsius FROM gpu ORDER BY gpu_index")
    assert [tuple(row.values()) for row in rows] == [(0, 70.0, None), (1, None, None), (2, None, 90.0)]


def test_lines_and_sealed_files_are_one_table(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0}], training=[{"step": 1, "accuracy": 0.5}])
    seal_all(run)
    (run.path / "vm/training_metrics_20261116_130000.jsonl").write_text(
        '{"timestamp":"2026-11-16T13:00:00.000Z","step":2,"accuracy":0.6,"f1":0.7}\n'
    )
    database = Database([run])
    rows = database.rows("SELECT step, accuracy, f1 FROM training ORDER BY step")
    assert [tuple(row.values()) for row in rows] == [(1.0, 0.5, None), (2.0, 0.6, 0.7)]


def test_a_sealed_file_that_is_not_whole_is_left_out_and_named(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0}], host=[{"cpu_ratio": 0.5}])
    seal_all(run)
    cut = jsonl(run).with_suffix(".parquet")
    cut.write_bytes(cut.read_bytes()[:-20])
    database = Database([run])
    assert database.count("gpu") == 0
    assert database.unreadable == [cut]
    assert database.count("host") == 1


def test_a_folder_may_have_any_name(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(home=tmp_path / "it's x, ünï", gpu=[{"gpu_index": 9}])  # what the pattern below would find
    odd = tmp_path / "it's [x]*, ?nï"
    run = make_run(home=odd, gpu=[{"gpu_index": 1}])
    seal_all(run)
    make_run(home=odd, gpu=[{"gpu_index": 2}])
    jsonl(run).rename(run.path / "vm/gpu_metrics_20261116_130000.jsonl")
    found = Database([run]).rows("SELECT run, gpu_index FROM gpu ORDER BY gpu_index")
    assert found == [{"run": run.path.name, "gpu_index": 1}, {"run": run.path.name, "gpu_index": 2}]


def test_a_relative_path_is_read_under_the_name_of_its_folder(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(gpu=[{"gpu_index": 0}])
    monkeypatch.chdir(run.path)
    assert Database([RunFolder(Path())]).rows("SELECT run FROM gpu") == [{"run": run.path.name}]


def test_the_first_rank_is_the_lowest_with_steps_of_each_run(make_run: MakeRun) -> None:
    def runs_of(name: str, *lines: dict[str, Any]) -> RunFolder:
        return make_run(id=name, training=list(lines))

    runs = [
        runs_of("named", {"rank": 1, "step_seconds": 0.1}, {"rank": 0, "first": 7, "step_seconds": 0.2}),
        runs_of("idle", {"rank": 0, "loss": 1.0}, {"rank": 2, "step_seconds": 0.3}, {"rank": 3, "step_seconds": 0.4}),
        runs_of("alone", {"step_seconds": 0.5}),
        runs_of("stepless", {"rank": 1, "loss": 2.0}, {"rank": 4, "loss": 3.0}),
    ]
    rows = Database(runs).rows("SELECT run, rank, step_seconds FROM first_rank.training ORDER BY run")
    assert [tuple(row.values()) for row in rows] == [
        ("alone", None, 0.5),
        ("idle", 2, 0.3),
        ("named", 0, 0.2),
        ("stepless", 1, None),
    ]


def test_boards_are_distinguished_by_uuid_or_else_by_number(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0, "uuid": "GPU-0"}, {"gpu_index": 1}])
    assert [row["board"] for row in Database([run]).rows("SELECT board FROM boards.gpu ORDER BY gpu_index")] == [
        "GPU-0",
        "1",
    ]
    assert "board" not in Database([run]).columns("gpu")


def test_only_tables_that_a_query_names_are_opened(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0}], training=[{"step": 1}])
    database = Database([run])
    assert database.count("training") == 1
    jsonl(run).write_text("damaged\n")  # it has not been touched yet
    assert database.damaged_so_far == 0
    assert database.damaged_lines == 1


def test_tables_show_the_moment_at_which_they_were_opened(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0}])
    database = Database([run])
    assert database.count("gpu") == 1
    seal_all(run)
    assert database.rows("SELECT gpu_index FROM gpu") == [{"gpu_index": 0}]


def test_a_file_that_is_sealed_between_listing_and_reading_is_found_again(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0}])

    class Sealed(RunFolder):
        """Its files go away as soon as they have been listed."""

        def files(self, table: str) -> list[Path]:
            listed = super().files(table)
            seal_all(run)
            return listed

    database = Database([run])
    database._runs = [Sealed(run.path)]
    assert database.rows("SELECT gpu_index FROM gpu") == [{"gpu_index": 0}]


def test_the_table_of_runs_has_a_row_for_each_also_for_one_that_is_damaged(make_run: MakeRun) -> None:
    gpu = {"gpu_index": 0, "name": "NVIDIA L4"}
    first = make_run(id="20261116-110000-a-0000", command=["python", "a b.py"], tags={"lr": "0.1"}, exit_code=0,
                     hosts={"vm": Host(gpus=[gpu, gpu])})  # fmt: skip
    broken = make_run(id="20261116-120000-b-0000")
    (broken.path / "run.json").write_text("{")
    rows = Database([first, broken]).rows("SELECT *, tags['lr'] AS lr FROM runs")
    assert [row["run"] for row in rows] == [first.path.name, broken.path.name]
    assert (rows[0]["command"], rows[0]["lr"], rows[0]["gpus"]) == ("python 'a b.py'", "0.1", 2)
    assert (rows[0]["status"], rows[0]["exit_code"], rows[0]["hosts"]) == ("finished", 0, ["vm"])
    assert rows[0]["gpu_names"] == ["NVIDIA L4", "NVIDIA L4"]
    assert (rows[1]["status"], rows[1]["gpus"]) == (None, None)


def test_runs_can_be_joined_with_their_lines(make_run: MakeRun) -> None:
    runs = [
        make_run(id=f"20261116-1{n}0000-{name}-0000", name=name, gpu=[{"gpu_index": 0, "power_draw_watts": 10.0 * n}])
        for n, name in enumerate(("a", "b"))
    ]
    found = Database(runs).rows(
        "SELECT runs.name, avg(power_draw_watts) AS watts FROM gpu JOIN runs USING (run) GROUP BY 1"
    )
    assert {row["name"]: row["watts"] for row in found} == {"a": 0.0, "b": 10.0}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM read_text('{secret}'), gpu",
        "COPY gpu TO '{secret}'",
        "COPY (SELECT 1) TO '{sealed}'",
        "ATTACH '{secret}'",
        "SET enable_external_access = true",
        "DROP VIEW gpu",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_a_query_of_the_users_reads_tables_and_nothing_else(make_run: MakeRun, tmp_path: Path, sql: str) -> None:
    run = make_run(gpu=[{"gpu_index": 0}], host=[{"cpu_ratio": 0.5}])
    seal_all(run)
    sealed = jsonl(run).with_suffix(".parquet")
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    before = sealed.read_bytes()
    database = Database([run])
    with pytest.raises(UsageError):
        list(database.ask(sql.format(secret=secret, sealed=sealed)).rows())
    assert secret.read_text() == "a,b\n1,2\n"
    assert sealed.read_bytes() == before


def test_variables_of_the_program_are_no_tables(make_run: MakeRun) -> None:
    gpus = {"a": np.array([1])}
    with pytest.raises(duckdb.CatalogException):
        Database([make_run()]).rows("SELECT * FROM gpus")
    assert gpus


def test_a_query_of_the_users_sees_sealed_files_and_lines(make_run: MakeRun) -> None:
    run = make_run(gpu=[{"gpu_index": 0}], host=[{"cpu_ratio": 0.5}])
    seal_all(run)
    make_run(gpu=[{"gpu_index": 1}])
    jsonl(run).rename(run.path / "vm/gpu_metrics_20261116_130000.jsonl")
    result = Database([run]).ask("SELECT gpu_index, name, 1.5 AS x FROM gpu ORDER BY ALL")
    assert result.names == ["gpu_index", "name", "x"]
    assert result.numeric == [True, False, True]
    assert [row[0] for row in result.rows()] == [0, 1]


def test_many_made_up_names_do_not_make_columns_without_end(make_run: MakeRun) -> None:
    names = [f"n{number:05}" for number in range(line_columns.MOST_FOUND + 50)]
    database = Database([make_run(training=[dict.fromkeys(names, 1.0)])])
    (row,) = database.rows("SELECT * FROM training")
    assert len(database.columns("training")) == len(columns("training")) + line_columns.MOST_FOUND
    left: dict[str, Any] = json.loads(row["other"])
    assert len(left) == 50
    assert {name for name, value in row.items() if value == 1.0} | left.keys() == set(names)
    assert database.names_without_column == 50


def test_a_line_that_names_something_twice_is_read(make_run: MakeRun) -> None:
    folder = make_run(training=[{"step": 1, "loss": 2.0}])
    (file,) = folder.files("training")
    file.write_text(file.read_text().replace('"loss"', '"own": 1, "own": 3, "event": null, "loss": 2.0, "loss"'))
    (row,) = Database([folder]).rows("SELECT * FROM training")
    assert (row["step"], row["loss"]) == (1, 2.0)


def test_nothing_is_left_behind_in_the_working_directory(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    database = Database([make_run(gpu=[{"gpu_index": 0}])])
    database.execute("SET memory_limit = '20MB'")
    database.rows("SELECT count(*) FROM (SELECT i FROM range(2_000_000) r(i) ORDER BY hash(i))")
    assert list(Path().iterdir()) == []
    database.close()

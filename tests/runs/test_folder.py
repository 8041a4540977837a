"""Run folders: how they are made, found, and told dead from alive."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.runs.folder import Home, Host, Run, RunFolder, host_name, slug

START = datetime(2026, 11, 16, 1, 30, 54, tzinfo=UTC)


def make(home: Home, name: str, start: datetime = START, **fields: object) -> RunFolder:
    folder = home.create(name, start)
    folder.save(Run(id=folder.path.name, name=name, start=start, **fields))  # type: ignore[arg-type]
    return folder


def test_runs_of_the_same_second_and_name_get_folders_of_their_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "runs")
    folders = [home.create("resnet50", START).path for _ in range(50)]
    assert len(set(folders)) == 50
    assert all(folder.name.startswith("20261116-013054-resnet50-") for folder in folders)


def test_a_run_is_found_by_id_prefix_name_path_and_as_the_last(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = make(home, "first")
    second = make(home, "second", datetime(2026, 11, 17, tzinfo=UTC))
    assert home.resolve(first.path.name).path == first.path
    assert home.resolve("20261116").path == first.path
    assert home.resolve("second").path == second.path
    assert home.resolve(str(first.path)).path == first.path
    assert home.resolve("last").path == second.path


def test_a_prefix_of_several_runs_and_a_run_that_does_not_exist_are_clear_errors(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(UsageError, match="there are no runs"):
        home.resolve("last")
    make(home, "a")
    make(home, "b")
    with pytest.raises(UsageError, match="2 runs start with '20261116'"):
        home.resolve("20261116")
    with pytest.raises(UsageError, match="there is no run 'nothing'"):
        home.resolve("nothing")


def test_runs_of_one_second_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = make(home, "resnet", START.replace(second=53, microsecond=900_000))
    # By name, these would be in the order a, b, c.
    third = make(home, "b", START.replace(microsecond=300))
    second = make(home, "c", START.replace(microsecond=200))
    first = make(home, "a", START.replace(microsecond=100))
    damaged = make(home, "z")
    (damaged.path / "run.json").write_text("{")
    after = make(home, "a", START.replace(second=55))
    in_order = [before, damaged, first, second, third, after]
    assert [folder.path for folder in home.runs()] == [folder.path for folder in in_order]
    after.remove()
    assert home.resolve("last").path == third.path
    damaged.remove()
    same_name = make(home, "c", START.replace(microsecond=250))
    assert home.resolve("c").path == same_name.path


def test_a_name_means_its_latest_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    make(home, "resnet")
    latest = make(home, "resnet", datetime(2026, 11, 17, tzinfo=UTC))
    assert home.resolve("resnet").path == latest.path


def test_a_run_whose_watching_process_is_gone_died(tmp_path: Path) -> None:
    me = psutil.Process()
    alive = Host(pid=me.pid, pid_start=me.create_time())
    reused = Host(pid=me.pid, pid_start=me.create_time() - 100)
    home = Home(tmp_path)
    assert make(home, "a", hosts={host_name(): alive}).load().status == "running"
    assert make(home, "b", hosts={host_name(): reused}).load().status == "died"


def test_a_run_of_another_host_lives_while_its_files_move(tmp_path: Path) -> None:
    run = make(Home(tmp_path), "a", hosts={"elsewhere": Host(pid=1)})
    file = run.path / "elsewhere/host_metrics_20261116_013054.jsonl"
    file.parent.mkdir()
    file.write_text("{}\n")
    assert run.load().status == "running"
    for old in (file, run.path / "run.json"):
        os.utime(old, (0, 0))
    assert run.load().status == "died"


def test_a_home_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PulsetrainError, match="runs cannot be kept in") as error:
        Home(tmp_path / "file" / "runs").create("x", START)
    assert "PULSETRAIN_HOME" in str(error.value)


def test_a_damaged_run_json_is_a_clear_error(tmp_path: Path) -> None:
    run = make(Home(tmp_path), "a")
    (run.path / "run.json").write_text('{"id": "x", ')
    with pytest.raises(PulsetrainError, match=r"run\.json cannot be read"):
        run.load()


def test_the_length_of_a_run_of_an_older_version_is_that_between_its_times(tmp_path: Path) -> None:
    folder = make(Home(tmp_path), "old")
    file = folder.path / "run.json"
    for end, seconds in (("2026-11-16T01:31:54Z", 60.0), ("2026-11-16T01:00:00Z", 0.0)):  # the clock was set back
        file.write_text(json.dumps({"id": "old", "name": "old", "start": "2026-11-16T01:30:54Z", "end": end}))
        assert folder.load().seconds == seconds


def test_a_run_json_of_a_newer_version_is_still_read(tmp_path: Path) -> None:
    run = make(Home(tmp_path), "a")
    text = (run.path / "run.json").read_text().replace('"name"', '"invented_later": [1], "name"')
    (run.path / "run.json").write_text(text)
    assert run.load().name == "a"


@pytest.mark.parametrize(
    ("name", "safe"), [("ResNet 50/é", "ResNet-50"), ("../../etc", "etc"), ("", "run"), ("a" * 99, "a" * 40)]
)
def test_names_become_safe_file_names(name: str, safe: str) -> None:
    assert slug(name) == safe


def test_hosts_of_one_job_share_a_run_and_each_adds_itself(tmp_path: Path) -> None:
    home = Home(tmp_path)
    me = psutil.Process()
    first, new = home.open("train", START, "4711")
    assert new and first.path.name.startswith("20261116-013054-train-4711-")
    first.save(Run(id=first.path.name, name="train", start=START, hosts={"node0": Host(pid=me.pid)}))
    second, new = home.open("train", START, "4711")
    assert not new and second.path == first.path
    second.host_folder(host_name()).mkdir()
    second.save_host(host_name(), Host(pid=me.pid, pid_start=me.create_time(), cpu_cores=8))
    assert set(first.load().hosts) == {"node0", host_name()}


def test_a_job_that_runs_twice_on_one_host_makes_two_runs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first, _ = home.open("train", START, "4711")
    first.save(Run(id=first.path.name, name="train", start=START, status="finished"))
    second, new = home.open("train", START, "4711")
    assert new and second.path != first.path


def test_trainings_that_a_job_starts_beside_each_other_on_one_host_are_runs_of_their_own(tmp_path: Path) -> None:
    home = Home(tmp_path)
    me = psutil.Process()
    hosts = {host_name(): Host(pid=me.pid, pid_start=me.create_time())}
    first, _ = home.open("train", START, "4711")
    first.save(Run(id=first.path.name, name="train", start=START, hosts=hosts))
    second, new = home.open("train", START, "4711")
    assert new and second.path != first.path
    rank, new = home.open("train", START, "4711", one_of_many=True)
    assert not new and rank.path == first.path


def test_of_many_hosts_that_begin_at_once_one_makes_the_run(tmp_path: Path) -> None:
    def begin(number: int) -> tuple[Path, bool]:
        folder, new = Home(tmp_path).open("train", START, "4711")
        if new:
            time.sleep(0.2)  # the others must wait for run.json
            folder.save(Run(id=folder.path.name, name="train", start=datetime.now(UTC), hosts={"maker": Host()}))
        return folder.path, new

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(begin, range(8)))
    assert len({path for path, _ in results}) == 1
    assert [new for _, new in results].count(True) == 1

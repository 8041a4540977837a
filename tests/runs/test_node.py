"""Following all runs of a machine: what is seen of them, when they come and go, and whose processes are whose."""

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually

from pulsetrain.live import Live
from pulsetrain.runs import node as module
from pulsetrain.runs.folder import Host, Run, RunFolder, host_name
from pulsetrain.runs.node import Node, default_folders
from pulsetrain.snapshot import Label, Sample, Snapshot, Subject

MakeRun = Callable[..., RunFolder]
Follow = Callable[..., Node]


class Seen:
    """What a follower was told: the present state of each run."""

    def __init__(self) -> None:
        self.runs: dict[str, Live] = {}
        self.ended: list[str] = []

    def __call__(self, run: Run, snapshot: Snapshot) -> None:
        if snapshot.last:
            self.runs.pop(run.id, None)
            self.ended.append(run.id)
        else:
            self.runs.setdefault(run.id, Live())(snapshot)

    def training(self, run: str) -> dict[str, Any]:
        (state,) = self.runs[run].table("training")
        return dict(state.values)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def follow(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follow]:
    """A node whose runs `seen` is told of."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    made: list[Node] = []

    def follow(*folders: Path | str, but: str | None = None) -> Node:
        made.append(Node([str(folder) for folder in folders], seen, but=but))
        return made[-1]

    yield follow
    for node in made:
        node.stop()


@pytest.fixture
def going(make_run: MakeRun) -> MakeRun:
    """A run that this process watches, since 100 seconds."""

    def make(id: str, **tables: Any) -> RunFolder:
        host = Host(pid=os.getpid(), pid_start=psutil.Process().create_time(), started=time.monotonic() - 100)
        return make_run(id=id, host_name=host_name(), status="running", hosts={host_name(): host}, **tables)

    return make


def add_line(run: RunFolder, name: str, **line: object) -> None:
    with (run.host_folder(host_name()) / name).open("a") as file:
        file.write(json.dumps({"timestamp": "2026-11-16T12:00:00.000Z", **line}) + "\n")


def finish(run: RunFolder) -> None:
    about = run.load()
    about.status = "finished"
    run.save(about)


def test_a_run_is_followed_from_its_beginning_and_every_line_counts_once(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun
) -> None:
    run = going("r1", training=[{"step": n, "samples": 32, "loss": 1 / n} for n in (1, 2, 3)])
    node = follow(tmp_path)
    for _ in range(3):
        node.look()
    assert (seen.training("r1")["step"], seen.training("r1")["loss"]) == (3, 1 / 3)
    add_line(run, "training_metrics_20261116_120000.jsonl", step=4, samples=32, elapsed_seconds=4.0)
    for _ in range(2):
        node.look()
    (state,) = seen.runs["r1"].table("training")
    assert (state.values["step"], state.totals["samples"]) == (4, 128)


def test_the_age_of_a_training_that_stood_still_before_we_came_is_known(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun
) -> None:
    began = time.monotonic()
    going("r1", training=[{"step": 1, "elapsed_seconds": 40.0}])
    follow(tmp_path).look()
    live = seen.runs["r1"]
    (state,) = live.table("training")
    assert 60.0 <= live.elapsed - state.seen <= 60.0 + time.monotonic() - began + 0.001


def test_the_newest_account_and_all_events_are_reported(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun
) -> None:
    run = going("r1", events=[{"kind": "gap", "severity": "info", "message": "missed"}])
    for joules in (10.0, 20.0):
        add_line(run, "account_metrics_20261116_120000.jsonl", energy_joules={"gpu": joules}, gpu_seconds=8.0)
    node = follow(tmp_path)
    node.look()
    add_line(run, "account_metrics_20261116_130000.jsonl", energy_joules={"gpu": 30.0})
    add_line(run, "events.jsonl", kind="xid", severity="critical", message="XID 79")
    node.look()
    (state,) = seen.runs["r1"].table("account")
    assert state.values == {"energy_joules": {"gpu": 30.0}, "gpu_seconds": 8.0}
    assert seen.runs["r1"].events == {("gap", "info"): 1, ("xid", "critical"): 1}


def test_runs_come_and_go(tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun) -> None:
    node = follow(tmp_path / "not there yet", tmp_path)
    node.look()
    assert seen.runs == {}
    first = going("r1", training=[{"step": 1}])
    node.look()
    going("r2", training=[{"step": 2}])
    node.look()
    assert set(seen.runs) == {"r1", "r2"}
    finish(first)
    node.look()
    node.look()
    assert (set(seen.runs), seen.ended) == ({"r2"}, ["r1"])


def test_runs_that_have_ended_or_died_or_are_elsewhere_or_our_own_are_left_out(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun, make_run: MakeRun
) -> None:
    make_run(id="finished", training=[{"step": 1}])
    make_run(id="died", host_name=host_name(), status="running", hosts={host_name(): Host(pid=2**22 + 1)})
    make_run(id="elsewhere", host_name="other", status="running", training=[{"step": 1}])
    going("ours", training=[{"step": 1}])
    follow(tmp_path, but="ours").look()
    assert seen.runs == {}


def test_a_pattern_means_the_homes_of_all_users(tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun) -> None:
    for user in ("ada", "eva"):
        going(f"run-of-{user}", home=tmp_path / user / ".pulsetrain/runs", training=[{"step": 1}])
    follow(f"{tmp_path}/*/.pulsetrain/runs").look()
    assert set(seen.runs) == {"run-of-ada", "run-of-eva"}


def test_what_cannot_be_read_is_said_once_and_does_not_hide_the_rest(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "closed").write_text("no folder")
    damaged = going("damaged", home=tmp_path / "damaged", training=[{"step": 1}])
    (damaged.path / "run.json").write_text("{")
    going("r1", home=tmp_path / "good", training=[{"step": 1}])
    node = follow(*(tmp_path / name for name in ("closed", "damaged", "good")))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            node.look()
    assert set(seen.runs) == {"r1"}
    assert [record.getMessage().split(" cannot")[0] for record in caplog.records] == [
        f"runs in {tmp_path / 'closed'}",
        f"runs in {tmp_path / 'damaged'}",
    ]


def on_gpu(pid: int) -> Snapshot:
    labels: dict[str, Label] = {"pid": pid, "gpu_index": 0, "uuid": "GPU-1", "user": "eva"}
    host = Sample(Subject("host", ""), {"load_1m": 1.0})
    return Snapshot(0.0, 0.0, (host, Sample(Subject("process", f"{pid}@GPU-1", labels), {"gpu_memory_mb": 5.0})))


def owner(node: Node, pid: int) -> object:
    node.attributed(on_gpu(pid))
    node.look()
    host, process = node.attributed(on_gpu(pid)).samples
    assert (host.subject.table, process.values) == ("host", {"gpu_memory_mb": 5.0})
    return process.subject.labels.get("run")


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "PULSETRAIN_RUN_ID": "r7"}) as process:
        yield process
        process.kill()


def test_a_process_on_a_gpu_belongs_to_the_run_of_its_environment(
    tmp_path: Path, follow: Follow, sleeping: subprocess.Popen[bytes]
) -> None:
    assert owner(follow(tmp_path), sleeping.pid) == "r7"


def test_a_process_on_a_gpu_belongs_to_the_run_that_lists_it(tmp_path: Path, follow: Follow, going: MakeRun) -> None:
    ended = 2**22 + 1
    going("r1", process=[{"pid": ended, "cpu_seconds": 1.0}, {"pid": 5, "gpu_index": 0, "gpu_memory_mb": 1.0}])
    assert owner(follow(tmp_path), ended) == "r1"


def test_a_process_of_no_run_stays_without(tmp_path: Path, follow: Follow, going: MakeRun) -> None:
    going("r1", training=[{"step": 1}])
    assert owner(follow(tmp_path), 2**22 + 1) is None


def test_the_thread_follows_by_itself(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.02)
    going("r1", training=[{"step": 1}])
    node = follow(tmp_path)
    node.start()
    assert eventually(lambda: set(seen.runs) == {"r1"})


def test_root_sees_the_runs_of_all_users_and_others_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_folders("mine") == ["mine", "/home/*/.pulsetrain/runs"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_folders("mine") == ["mine"]


def test_what_one_user_puts_into_a_folder_blinds_nobody(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun
) -> None:
    pipe, endless, odd, huge = (going(name, training=[{"step": 1}]) for name in ("pipe", "endless", "odd", "huge"))
    (pipe.path / "run.json").unlink()
    os.mkfifo(pipe.path / "run.json")
    (endless.host_folder(host_name()) / "training_metrics_20261116_120001.jsonl").symlink_to("/dev/zero")
    for line in ({"rank": "x", "step": [1]}, {"rank": 1e400}, {"rank": {}, "step_seconds": "long"}, {"step": None}):
        add_line(odd, "training_metrics_20261116_120000.jsonl", elapsed_seconds=1.0, **line)
        add_line(odd, "account_metrics_20261116_120000.jsonl", **line)
        add_line(odd, "process_metrics_20261116_120000.jsonl", **{**line, "pid": {}})
        add_line(odd, "events.jsonl", kind=7, severity=[], **line)
    with (huge.host_folder(host_name()) / "training_metrics_20261116_120002.jsonl").open("wb") as file:
        file.truncate(200 * 2**20)  # one line without an end
    going("good", training=[{"step": 5}])
    node = follow(tmp_path)
    for _ in range(3):
        node.look()
    assert seen.training("good")["step"] == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_no_link_of_another_user_is_followed_into_a_private_run(
    tmp_path: Path, seen: Seen, follow: Follow, going: MakeRun
) -> None:
    (tmp_path / "shown").mkdir()
    going("private", training=[{"step": 5}])
    (tmp_path / "shown/run").symlink_to(tmp_path / "private")
    os.lchown(tmp_path / "shown/run", 12345, 12345)
    node = follow(tmp_path / "shown")
    node.look()
    assert seen.runs == {}

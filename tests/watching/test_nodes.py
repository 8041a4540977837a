"""Several hosts that share a folder make one run: real processes with host names, clocks and fates of their own."""

import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually
from tests.watching.conftest import Cluster

SCRIPTS = Path(__file__).parent / "scripts"
AHEAD = 3600
SLOW_FROM, STEPS = 60, 110
STOPPED_SECONDS = 3.0

MakeCluster = Callable[[], Cluster]
WrongClock = Callable[[int], dict[str, str]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def last_step(cluster: Cluster, host: str) -> int:
    return max((line.get("step") or 0 for line in cluster.lines(host, "training_metrics")), default=0)


def tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@pytest.fixture(scope="module")
def trained(make_cluster: MakeCluster, wrong_clock: WrongClock, user_python: str) -> Cluster:
    """DDP over two hosts. The second has a wrong clock, hangs for a while, and is slow from some step on."""
    cluster = make_cluster()
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "GLOO_SOCKET_IFNAME": "lo",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NUM_NODES": "2",
    }
    command = (user_python, str(SCRIPTS / "ddp.py"), str(STEPS), "--slow", "1", str(SLOW_FROM), "0.15")
    nodes = [
        cluster.start(f"node{number}", *command, **shared, RANK=str(number), SLURM_NODEID=str(number), **clock)
        for number, clock in enumerate(({}, wrong_clock(AHEAD)))
    ]
    assert eventually(lambda: last_step(cluster, "node1") > 20), cluster.output()
    stopped = tree(nodes[1].pid)
    for process in stopped:
        process.suspend()
    began = last_tick(cluster, "node0")
    assert eventually(lambda: last_tick(cluster, "node0") > began + STOPPED_SECONDS), cluster.output()
    for process in stopped:
        process.resume()
    assert [node.wait() for node in nodes] == [0, 0], cluster.output()
    return cluster


def last_tick(cluster: Cluster, host: str) -> float:
    return max((line["elapsed_seconds"] for line in cluster.lines(host, "host_metrics")), default=0.0)


@pytest.fixture(scope="module")
def document(trained: Cluster) -> dict[str, Any]:
    return trained.document()


def test_two_hosts_of_a_job_make_one_run_with_both_in_its_report(trained: Cluster, document: dict[str, Any]) -> None:
    assert len(trained.runs) == 1
    nodes = document["nodes"]["nodes"]
    assert [(node["host"], node["status"], node["ranks"]) for node in nodes] == [
        ("node0", "finished", [0]),
        ("node1", "finished", [1]),
    ]
    launch = document["run"]["hosts"]["node1"]["launch"]
    assert launch == {"launcher": "slurm", "job_id": "4711", "node_rank": 1, "nodes": 2, "world_size": 2}
    assert [rank["steps"] for rank in document["nodes"]["ranks"]] == [STEPS, STEPS]
    assert document["nodes"]["rank_totals"]["steps"]["sum"] == 2 * STEPS
    for form in ([], ["--markdown"]):
        text = trained.report(*form)
        assert "Nodes" in text and "Ranks" in text and "node1" in text


def test_a_wrong_clock_is_found_from_the_steps_and_its_error_holds(document: dict[str, Any]) -> None:
    clock = document["nodes"]["nodes"][1]["clock"]
    assert clock["basis"] == "steps"
    assert abs(clock["ahead_seconds"] - AHEAD) <= clock["error_seconds"] < AHEAD / 2
    first, second = (rank for rank in document["ledger"]["ranks"])
    assert abs(first["ended"] - second["ended"]) < AHEAD / 2


def test_the_slow_rank_is_named_with_its_host_and_since_when(document: dict[str, Any]) -> None:
    late = document["nodes"]["stragglers"]["stretches"][0]
    assert (late["rank"], late["host"], late["until_step"]) == (1, "node1", STEPS)
    assert abs(late["since_step"] - SLOW_FROM) <= 10
    finding = next(finding for finding in document["verdict"]["findings"] if finding["rule"] == "Straggler")
    assert finding["summary"].startswith("Rank 1 on node1 holds up the others")


def test_a_host_that_hung_is_named_for_the_step_that_it_held_up(document: dict[str, Any]) -> None:
    held_up = document["nodes"]["stragglers"]["held_up"]
    assert any(step["host"] == "node1" and step["seconds"] > STOPPED_SECONDS / 2 for step in held_up), held_up


def test_two_hosts_on_one_machine_count_its_energy_once(document: dict[str, Any]) -> None:
    devices = [device for device in document["energy"]["devices"] if device["device"] == "cpu"]
    assert len(devices) == 2
    assert [device["charged"] for device in devices].count(True) == 1
    charged = [device["total"]["joules"] for device in document["energy"]["devices"] if device["charged"]]
    assert document["energy"]["total"]["joules"] == pytest.approx(sum(charged))


def test_a_killed_host_is_marked_and_a_requeued_job_continues_its_run(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    command = (sys.executable, str(SCRIPTS / "steps.py"))
    job = {"SLURM_JOB_ID": "99", "SLURM_JOB_NUM_NODES": "3"}

    def start(number: int, until: str, **more: str) -> Any:
        variables = {**job, "RANK": str(number), "SLURM_NODEID": str(number), **more}
        return cluster.start(f"node{number}", *command, str(cluster.folder / until), **variables)

    nodes = [start(number, "first") for number in range(3)]
    assert eventually(lambda: all(last_step(cluster, f"node{n}") > 5 for n in range(3))), cluster.output()
    for process in tree(nodes[2].pid):
        process.send_signal(signal.SIGKILL)
    killed_at = last_tick(cluster, "node0")
    assert eventually(lambda: last_tick(cluster, "node0") > killed_at + 2), cluster.output()
    (cluster.folder / "first").touch()
    assert [node.wait() for node in nodes[:2]] == [0, 0], cluster.output()

    document = cluster.document()
    status = {node["host"]: node["status"] for node in document["nodes"]["nodes"]}
    assert status == {"node0": "finished", "node1": "finished", "node2": "vanished"}
    gone = document["nodes"]["nodes"][2]
    assert gone["lost_seconds"] > 0 and gone["ranks"] == [2]
    assert document["verdict"]["main"]["rule"] == "NodeVanished"
    assert document["verdict"]["headline"].startswith("node2 fell silent")
    ended = last_tick(cluster, "node0")

    again = [start(number, "second", SLURM_RESTART_COUNT="1") for number in range(2)]
    assert eventually(lambda: last_tick(cluster, "node0") > ended + 1), cluster.output()
    (cluster.folder / "second").touch()
    assert [node.wait() for node in again] == [0, 0], cluster.output()
    assert len(cluster.runs) == 1
    document = cluster.document()
    assert document["run"]["status"] == "finished"
    assert [node["attempts"] for node in document["nodes"]["nodes"]] == [2, 2, 1]
    assert document["run"]["seconds"] > ended

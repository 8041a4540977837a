"""What a report says of a host that has gone silent."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from pulsetrain.insight.report import make_report
from pulsetrain.runs.folder import Host, HostAttempt, RunFolder

START = datetime(2026, 11, 16, 12, tzinfo=UTC)
SILENT = HostAttempt(start=START)
ENDED = HostAttempt(start=START, ended=2.0, status="finished", exit_code=0)


@pytest.mark.parametrize(
    ("run_status", "third"),
    [("running", ENDED), ("finished", ENDED), ("finished", SILENT)],
    ids=["it made the run", "another made it", "another, and a third is silent too"],
)
def test_a_host_that_has_not_moved_since_the_others_ended_has_vanished(
    make_run: Callable[..., RunFolder], run_status: str, third: HostAttempt
) -> None:
    attempts = {"vm": SILENT, "node1": ENDED, "node2": third}
    hosts = {name: Host(attempts=[attempt]) for name, attempt in attempts.items()}
    folder = make_run(status=run_status, hosts=hosts, host=[{"cpu_ratio": 0.5}] * 3)
    minute_ago = time.time() - 60
    for host in hosts:
        folder.host_folder(host).mkdir(exist_ok=True)
    for file in folder.host_folder("vm").iterdir():
        os.utime(file, (minute_ago, minute_ago))
    nodes = make_report(folder).nodes
    assert nodes
    assert {node.host: node.status for node in nodes.nodes}["vm"] == "vanished"

"""The servers that tests start leave those of the machine alone."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import Alertmanager, NodeExporter, Prometheus, Pushgateway, Server, VictoriaMetrics

SERVERS: tuple[Callable[[Path], Server], ...] = (
    Prometheus,
    VictoriaMetrics,
    Pushgateway,
    lambda folder: Alertmanager(folder, "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"),
    NodeExporter,
)
OF_THE_AGENT = "--storage.agent.path"
"""Prometheus refuses it unless it runs as an agent, which ours does not."""


@pytest.mark.parametrize("make", SERVERS, ids=["prometheus", "victoria", "pushgateway", "alertmanager", "node"])
def test_a_server_keeps_nothing_where_the_machines_own_keeps_it(make: Callable[[Path], Server], tmp_path: Path) -> None:
    server = make(tmp_path)
    help_text = subprocess.run([server.program, "--help"], capture_output=True, text=True)
    kept_elsewhere = re.findall(r"(--[\w.-]+)=\"/var/", help_text.stdout + help_text.stderr)
    given = {argument.partition("=")[0] for argument in server.arguments()}
    assert set(kept_elsewhere) - given - {OF_THE_AGENT} == set()

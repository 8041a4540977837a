"""One job on three hosts without a common folder, and a collector: a host that is cut off, and one that vanishes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.servers import free_port
from tests.transfer.network import HOME, kill_tree, network
from tests.waiting import eventually

from pulsetrain.runs.folder import Home, RunFolder

PULSETRAIN = [sys.executable, "-m", "pulsetrain"]
STEPS = Path(__file__).parents[1] / "watching/scripts/steps.py"
HOSTS = ("node0", "node1", "node2")
TOKEN = "a-token-of-this-test"
CUT_SECONDS = float(os.environ.get("PULSETRAIN_TEST_CUT_SECONDS", "3"))


def lines(run: RunFolder, host: str, table: str = "training") -> list[bytes]:
    """The whole lines of a host."""
    files = [file for file in run.files(table) if file.parent.name == host]
    return [line for file in files for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def test_a_host_that_was_cut_off_loses_nothing_and_one_that_vanished_is_marked(tmp_path: Path) -> None:
    def said() -> str:
        return "\n".join(file.read_text() for file in tmp_path.glob("*.txt"))

    port = free_port()
    with network(HOSTS) as net:
        serve = [*PULSETRAIN, "serve", "--collector", "--no-machine", "--host", "0.0.0.0", "--port", str(port)]
        variables = {"PULSETRAIN_COLLECTOR_TOKEN": TOKEN}
        net.start(HOME, serve, tmp_path / "home.txt", **variables, PULSETRAIN_HOME=str(tmp_path / HOME))
        assert eventually(lambda: "stop with" in (tmp_path / "home.txt").read_text())
        home = Home(tmp_path / HOME / "runs")
        running = {}
        for number, host in reversed([*enumerate(HOSTS)]):  # the one that vanishes makes the run
            to = f"http://{net.home_address(host)}:{port}"
            run = [*PULSETRAIN, "run", "-q", "--simulate", "1xH100", "--interval", "0.5", "--run-id", "job", "--to", to]
            running[host] = net.start(
                host,
                [*run, "--", sys.executable, str(STEPS), str(tmp_path / "enough")],
                tmp_path / f"{host}.txt",
                **variables,
                PULSETRAIN_HOME=str(tmp_path / host),
                RANK=str(number),
                WORLD_SIZE=str(len(HOSTS)),
            )
            folder = f"2*/{host}"
            assert eventually(lambda: any(home.path.glob(folder))), said()  # noqa: B023
        assert len(list(home.runs())) == 1  # though no folder is common to them
        arrived = home.resolve("last")
        recorded = {host: Home(tmp_path / host / "runs").resolve("last") for host in HOSTS}
        assert eventually(lambda: all(lines(arrived, host) for host in HOSTS)), said()

        net.cut("node1")
        began, before = time.monotonic(), len(lines(recorded["node1"], "node1"))
        kill_tree(running["node2"].pid)
        assert eventually(lambda: len(lines(recorded["node1"], "node1")) > before + 20), said()
        time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - began)))
        assert len(lines(arrived, "node1")) < len(lines(recorded["node1"], "node1")) - 10
        net.mend("node1")
        (tmp_path / "enough").touch()
        assert [running[host].wait() for host in HOSTS[:2]] == [0, 0], said()

        for host in HOSTS[:2]:
            for table in ("training", "gpu", "host", "account"):
                assert lines(arrived, host, table) == lines(recorded[host], host, table), said()
        got, had = lines(arrived, "node2"), lines(recorded["node2"], "node2")
        assert got == had[: len(got)]  # but for what was not sent when it vanished
        assert not any(b"transfer_gap" in line for host in HOSTS for line in lines(arrived, host, "events"))

        minute_ago = time.time() - 60
        for file in (arrived.path / "node2").iterdir():
            os.utime(file, (minute_ago, minute_ago))
        report = subprocess.run(
            [*PULSETRAIN, "report", str(arrived.path), "--json"], capture_output=True, check=True, text=True
        )
        document = json.loads(report.stdout)
        nodes = {node["host"]: node for node in document["nodes"]["nodes"]}
        assert {host: node["status"] for host, node in nodes.items()} == {
            "node0": "finished",
            "node1": "finished",
            "node2": "vanished",
        }
        assert nodes["node2"]["ranks"] == [2]
        assert document["verdict"]["main"]["rule"] == "NodeVanished"

"""Whole programs: a collector that is killed and comes back, and a notebook that is killed and resumed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import program
from tests.waiting import eventually

from pulsetrain.runs.folder import Home, RunFolder

PULSETRAIN = [sys.executable, "-m", "pulsetrain"]
TRAINING = """
import sys, time, pulsetrain
from pathlib import Path
for step in range(10_000):
    pulsetrain.log(step=step, loss=1 / (step + 1))
    time.sleep(0.05)
    if Path(sys.argv[1]).exists():
        break
"""
NOTEBOOK = """
import os, sys, time, pulsetrain
from pathlib import Path
run = pulsetrain.init("notebook", to=sys.argv[1], simulate="1xH100", quiet=True)
print(run.folder, flush=True)
for step in range(40):
    pulsetrain.log(step=step, loss=1.0)
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
pulsetrain.finish()
"""


def certificate(folder: Path) -> None:
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -addext subjectAltName=IP:127.0.0.1"
    command = [program("openssl"), *f"{options} -keyout own.key -out own.crt -days 3 -subj /CN=own".split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@contextmanager
def collector(folder: Path, port: int) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """`pulsetrain serve --collector` with TLS, and the port it took."""
    (folder / "web.yml").write_text("tls_server_config: {cert_file: own.crt, key_file: own.key}\n")
    command = [*PULSETRAIN, "serve", "--collector", "--no-machine", "--port", str(port), "--web-config", "web.yml"]
    environment = {**os.environ, "PULSETRAIN_HOME": str(folder / "home")}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        said = ""
        while "stop with" not in said:
            said += process.stderr.readline() or "stop with nothing said"
        found = re.search(r"run --to https://127\.0\.0\.1:(\d+)", said)
        assert found, said
        yield int(found[1]), process
    finally:
        process.kill()
        process.communicate()


def lines(run: RunFolder, table: str) -> list[bytes]:
    return b"".join(file.read_bytes() for file in run.files(table)).splitlines()


def test_a_collector_that_is_killed_and_comes_back_has_all_of_the_run(tmp_path: Path) -> None:
    certificate(tmp_path)
    home = Home(tmp_path / "home/runs")
    there = Home(tmp_path / "there/runs")
    with collector(tmp_path, 0) as (port, first):
        environment = {
            **os.environ,
            "PULSETRAIN_HOME": str(tmp_path / "there"),
            "PULSETRAIN_COLLECTOR_TOKEN": (tmp_path / "home/collector-token").read_text().strip(),
            "SSL_CERT_FILE": str(tmp_path / "own.crt"),
        }
        command = [*PULSETRAIN, "run", "--quiet", "--simulate", "2xH100", "--to", f"https://127.0.0.1:{port}", "--"]
        command += [sys.executable, "-c", TRAINING, str(tmp_path / "enough")]
        training = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: any(run.files("training") for run in home.runs()))
        (run,) = home.runs()
        assert run.load().status == "running"
        first.kill()
    (source,) = there.runs()
    before = len(lines(source, "training"))
    assert eventually(lambda: len(lines(source, "training")) > before + 20)  # nobody takes them now
    with collector(tmp_path, port):
        (tmp_path / "enough").touch()
        _, said = training.communicate()
        assert training.returncode == 0
        assert "not sent" not in said
        for table in ("training", "gpu", "host"):
            assert lines(run, table) == lines(source, table)
    assert run.load().status == "finished"
    assert "events" not in [path.stem for path in run.path.rglob("*.jsonl")] or b"transfer_gap" not in b"".join(
        lines(run, "events")
    )


def test_what_a_killed_notebook_had_written_arrives_with_the_next_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    environment = {**os.environ, "PULSETRAIN_HOME": str(tmp_path / "there")}
    command = [sys.executable, "-c", NOTEBOOK, str(store), str(tmp_path / "enough")]
    notebook = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert notebook.stdout
    killed = RunFolder(Path(notebook.stdout.readline().strip()))
    assert eventually(lambda: list(store.rglob("*.seg")))
    assert eventually(lambda: len(lines(killed, "training")) >= 40)
    (host,) = killed.load().hosts.values()
    for pid in (host.pid, notebook.pid):  # the machine vanishes
        os.kill(pid, signal.SIGKILL)
    notebook.communicate()
    assert eventually(lambda: killed.load().status == "died")
    again = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    state = killed.path / ".shipping/state.json"
    assert eventually(lambda: json.loads(state.read_text())["complete"])
    (tmp_path / "enough").touch()
    again.communicate()
    fetched = subprocess.run(
        [*PULSETRAIN, "fetch", str(store), "--dir", str(tmp_path / "home"), "--json"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [json.loads(text)["gaps"] for text in fetched.stdout.splitlines()] == [[], []]
    home = Home(tmp_path / "home")
    for source in Home(tmp_path / "there/runs").runs():
        run = home.resolve(source.path.name)
        assert lines(run, "training") == lines(source, "training")
        assert lines(run, "gpu") == lines(source, "gpu")

"""Hosts for tests: processes with host names of their own, which share one folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

CLOCK = Path(__file__).parents[1] / "clock/step.c"
NAMESPACE = ("unshare", "--uts", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))


@dataclass
class Cluster:
    """Several hosts with one home for runs."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def runs(self) -> list[Path]:
        return sorted(path for path in (self.folder / "home/runs").iterdir() if not path.name.startswith("."))

    def start(self, host: str, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """`pulsetrain run` on a host, as a user would start it there."""
        named = [*NAMESPACE, "sh", "-c", 'hostname "$0" && exec "$@"', host]
        watched = [sys.executable, "-m", "pulsetrain", "run", "--interval", "0.5", "--quiet", "--", *command]
        with (self.folder / f"{host}.txt").open("ab") as output:
            process = subprocess.Popen(
                [*named, *watched], env=self._environment(**variables), cwd=self.folder, stdout=output, stderr=output
            )
        self.started.append(process)
        return process

    def report(self, *options: str) -> str:
        command = [sys.executable, "-m", "pulsetrain", "report", "last", *options]
        done = subprocess.run(command, env=self._environment(), cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.report("--json"))
        return found

    def lines(self, host: str, table: str) -> list[dict[str, Any]]:
        """The whole lines that a host has written by now."""
        files = sorted(self.folder.glob(f"home/runs/*/{host}/{table}_*.jsonl"))
        return [msgspec.json.decode(line) for file in files for line in file.read_bytes().split(b"\n")[:-1]]

    def output(self) -> str:
        return "\n".join(f"{file.name}: {file.read_text()}" for file in sorted(self.folder.glob("*.txt")))

    def end(self) -> None:
        for process in self.started:
            for one in [*_children(process), process]:
                one.kill()
            process.wait()

    def _environment(self, **variables: str) -> dict[str, str]:
        launchers = ("PULSETRAIN_", "SLURM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "CUDA_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
        return {**kept, "PULSETRAIN_HOME": str(self.folder / "home"), **variables}


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="session")
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Cluster]]:
    """Clusters whose processes end with the tests."""
    tried = (
        subprocess.run([*NAMESPACE, "hostname", "node0"], capture_output=True, text=True) if _has_unshare() else None
    )
    if tried is None or tried.returncode:
        reason = tried.stderr.strip() if tried else "there is no unshare"
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(f"no process can have a host name of its own: {reason}")
        pytest.skip(f"needs the right to give processes host names of their own: {reason}")
    made: list[Cluster] = []

    def make() -> Cluster:
        made.append(Cluster(tmp_path_factory.mktemp("cluster")))
        return made[-1]

    yield make
    for cluster in made:
        cluster.end()


def _has_unshare() -> bool:
    return sys.platform == "linux" and shutil.which("unshare") is not None


@pytest.fixture(scope="session")
def wrong_clock(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, str]]:
    """Variables for a host whose clock is ahead by so many seconds."""
    if shutil.which("gcc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("gcc is missing")
        pytest.skip("needs gcc to compile a clock that can be set")
    folder = tmp_path_factory.mktemp("clock")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", folder / "step.so", CLOCK], check=True)

    def variables(ahead: int) -> dict[str, str]:
        (folder / str(ahead)).write_text(str(ahead))
        return {"LD_PRELOAD": str(folder / "step.so"), "PULSETRAIN_TEST_CLOCK": str(folder / str(ahead))}

    return variables

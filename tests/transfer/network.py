"""Hosts on a network of their own: namespaces of the kernel, each joined to one that is home by a cable."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from tests.servers import program

HOME = "home"


class Network:
    """Namespaces, and the programs that were started in them."""

    def __init__(self, name: str, hosts: Sequence[str]) -> None:
        self._name = name
        self._hosts = list(hosts)
        self._started: list[subprocess.Popen[bytes]] = []

    def build(self) -> None:
        """Raises CalledProcessError where the kernel does not let us."""
        for host in (HOME, *self._hosts):
            ip("netns", "add", self._space(host))
            ip("-n", self._space(host), "link", "set", "lo", "up")
        for number, host in enumerate(self._hosts):
            here, there = self._space(HOME), self._space(host)
            ip("-n", here, "link", "add", f"to{number}", "type", "veth", "peer", "name", "cable", "netns", there)
            for space, link, end in ((here, f"to{number}", 1), (there, "cable", 2)):
                ip("-n", space, "address", "add", f"10.231.{number}.{end}/30", "dev", link)
                ip("-n", space, "link", "set", link, "up")

    def home_address(self, host: str) -> str:
        """Where a host finds what listens at home."""
        return f"10.231.{self._hosts.index(host)}.1"

    def cut(self, host: str) -> None:
        ip("-n", self._space(HOME), "link", "set", f"to{self._hosts.index(host)}", "down")

    def mend(self, host: str) -> None:
        ip("-n", self._space(HOME), "link", "set", f"to{self._hosts.index(host)}", "up")

    def start(self, host: str, command: Sequence[str], output: Path, **variables: str) -> subprocess.Popen[bytes]:
        """A program on a host, under the host's name."""
        inside = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *command]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PULSETRAIN_", "SLURM_"))}
        with output.open("ab") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self._space(host), *inside],
                env={**kept, "NO_PROXY": "*", **variables},
                stdout=file,
                stderr=file,
            )
        self._started.append(process)
        return process

    def remove(self) -> None:
        for process in self._started:
            kill_tree(process.pid)
            process.wait()
        for host in (HOME, *self._hosts):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", self._space(host))

    def _space(self, host: str) -> str:
        return f"{self._name}-{host}"


@contextlib.contextmanager
def network(hosts: Sequence[str]) -> Iterator[Network]:
    """Skips the test where namespaces cannot be made; with CI=true it fails."""
    program("ip")
    made = Network(f"pulsetrain-{os.getpid()}", hosts)
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            reason = f"no network namespaces can be made: {error.stderr.strip()}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        yield made
    finally:
        made.remove()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def kill_tree(pid: int) -> None:
    """At once, as a machine that loses its power."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

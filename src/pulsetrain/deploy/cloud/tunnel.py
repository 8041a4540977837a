"""The pages of another machine, at ports of this one, as long as an ssh connection is open."""

import socket
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from pulsetrain.deploy.cloud.remote import Remote
from pulsetrain.errors import PulsetrainError

OPEN_SECONDS = 90.0
"""For the connection to be there: somebody may have to type a password, and a new machine to start."""


class TunnelPage(NamedTuple):
    """One page there, and where it is here."""

    name: str
    remote_port: int
    local_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.local_port}"


def choose_ports(pages: Sequence[tuple[str, int]]) -> list[TunnelPage]:
    """The same ports here where they are free, else any free ones."""
    return [TunnelPage(name, port, port if _is_free(port) else _any_free()) for name, port in pages]


def tunnel_command(remote: Remote, pages: Sequence[TunnelPage]) -> list[str]:
    forwards = [word for page in pages for word in ("-L", f"127.0.0.1:{page.local_port}:127.0.0.1:{page.remote_port}")]
    return remote.command(None, ["-N", "-o", "ExitOnForwardFailure=yes", *forwards])


class Tunnel:
    """An ssh that forwards ports, within a `with`."""

    def __init__(self, remote: Remote, pages: Sequence[TunnelPage]) -> None:
        self._remote = remote
        self._pages = pages
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Tunnel":
        self._process = subprocess.Popen(tunnel_command(self._remote, self._pages))
        deadline = time.monotonic() + OPEN_SECONDS
        while not _answers(self._pages[0].local_port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise PulsetrainError(
                    f"{self._remote.name} could not be reached by ssh.",
                    hint=f"Does this work? pulsetrain cloud vm ssh {self._remote.name}",
                )
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> int:
        """Until the connection ends."""
        assert self._process
        return self._process.wait()

    def close(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

"""A container engine of our own, started for tests: it reaches no registry, and its images are made here.

It is Debian's docker.io and busybox-static, and needs root. Where it cannot be, a test is skipped with the reason, and
fails when CI=true.
"""

import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import docker
import pytest
from tests.servers import program
from tests.waiting import eventually

BUSYBOX = "bench/busybox:1"
COMMANDS = ("sh", "cat", "dd", "echo", "env", "head", "ls", "mkdir", "printf", "sleep", "tail", "true", "yes")


class Engine:
    """dockerd, within a `with`, with everything it keeps in a folder of its own.

    The folder's name is short: those of its sockets must not be longer than 107 characters.
    """

    def __init__(self) -> None:
        self.folder = folder = Path(tempfile.mkdtemp(prefix="engine-"))
        self.address = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._need(hasattr(os, "geteuid") and os.geteuid() == 0, "a container engine needs root")
        # With us it ends too, when somebody kills the test run.
        arguments = [
            *(program("setpriv"), "--pdeathsig", "TERM", program("dockerd")),
            *("--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec", "-p", f"{self.folder}/pid"),
            *("-H", self.address, "--bridge=none", "--iptables=false", "--storage-driver=vfs"),
        ]
        with (self.folder / "dockerd.log").open("wb") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        eventually(lambda: self._has_ended() or self.answers())
        if self._has_ended():
            reason = f"dockerd cannot start: {(self.folder / 'dockerd.log').read_text()[-300:]}"
            self.stop()
            self._need(False, reason)
        self._add_busybox()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """All its containers end with it."""
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None
        for line in Path("/proc/mounts").read_text().splitlines():  # what it forgot, or could not do when it failed
            if (place := line.split()[1]).startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", place], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self) -> Any:
        return docker.DockerClient(base_url=self.address)

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self.address.removeprefix("unix://"))
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(64)

    def containers(self) -> list[str]:
        """The states of all containers that there are."""
        client = self.client()
        try:
            return [container.status for container in client.containers.list(all=True, ignore_removed=True)]
        finally:
            client.close()

    def _add_busybox(self) -> None:
        """A root with nothing but busybox, and folders to mount on."""
        content = Path(program("busybox")).read_bytes()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name in ("bin", "tmp", "results", "go", "usr", "lib", "lib64", "etc"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o777
                tar.addfile(folder)
            binary = tarfile.TarInfo("bin/busybox")
            binary.mode, binary.size = 0o755, len(content)
            tar.addfile(binary, io.BytesIO(content))
            for name in COMMANDS:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        client = self.client()
        try:
            repository, tag = BUSYBOX.split(":")
            client.api.import_image_from_data(archive.getvalue(), repository=repository, tag=tag)
        finally:
            client.close()

    @staticmethod
    def _need(met: bool, reason: str) -> None:
        if met:
            return
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)

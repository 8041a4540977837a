"""Buckets and other machines: moto's S3 server and a real sshd, with the clients that users have."""

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers import Server, free_port, program
from tests.transfer.sending import LINES, RUN, WRITER, line, segments
from tests.waiting import eventually

from pulsetrain.errors import UsageError
from pulsetrain.runs.folder import Home
from pulsetrain.transfer.fetching import Fetcher
from pulsetrain.transfer.store import Store, StoreError, StoreRejected, open_store


def round_trip(store: Store, home: Path) -> None:
    """A run goes there in pieces, some twice, and comes back whole."""
    sent = [line(number) for number in range(6)]
    made = segments(sent)
    with closing(Fetcher(store, Home(home))) as fetcher:
        assert fetcher.look() == []
        for looks in (made[:3], made[2:]):
            for name, data in looks:
                store.put(f"{RUN}/{WRITER}/{name}", data)
            fetcher.look()
        assert (home / RUN / LINES).read_bytes() == b"".join(sent)
        assert fetcher.look()[0].segments == 0


@pytest.fixture
def s3(tmp_path: Path, clients: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = free_port()
    script = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "PYTHONPATH": str(clients)}
    python = str(clients.parents[2] / "bin/python")
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen([python, "-c", script, str(port)], env=environment, stdout=log, stderr=log)
    try:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        import httpx

        def made() -> bool:
            try:
                return httpx.put(f"{url}/bucket").is_success
            except httpx.HTTPError:
                return False

        assert eventually(made), (tmp_path / "moto.log").read_text()
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_run_goes_through_a_bucket(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    round_trip(open_store("s3://bucket/some/folder"), tmp_path / "home")
    with pytest.raises(StoreError, match="nowhere"):
        open_store("s3://nowhere/folder").put("a/b/c", b"")


class Sshd(Server):
    """A real sshd for the user who runs the tests, with keys of its own."""

    name = "sshd"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") or self.program
        for name in ("host", "user"):
            command = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True)
        (folder / "authorized_keys").write_text((folder / "user.pub").read_text())
        folder.chmod(0o700)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # which a service would make when it starts
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder / 'authorized_keys'}\nStrictModes no\nPasswordAuthentication no\n"
            "Subsystem sftp internal-sftp\n"
        )

    def arguments(self) -> list[str]:
        return ["-D", "-e", "-f", str(self.folder / "sshd_config")]

    def _answers(self) -> bool:
        import socket

        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_run_goes_to_another_machine_by_ssh(tmp_path: Path, clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "user"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with Sshd(tmp_path / "sshd") as server:
        url = f"ssh://{getpass.getuser()}@127.0.0.1:{server.port}{tmp_path / 'there'}"
        shutil.copy(server.folder / "user", home / ".ssh/id_ed25519")
        with pytest.raises(StoreRejected, match="ost key"):  # nobody has said yet that this host is the right one
            open_store(url).list("")
        key = (server.folder / "host.pub").read_text()
        (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{server.port} {key}")
        round_trip(open_store(url), tmp_path / "home")
        assert not list((tmp_path / "there").rglob(".*"))


def test_a_client_that_is_not_installed_is_named_with_its_command(tmp_path: Path) -> None:
    script = "from pulsetrain.transfer.store import open_store; open_store('gs://bucket/folder')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "gs:// needs the package gcsfs." in done.stderr
    assert "pip install 'pulsetrain[gcs]'" in done.stderr
    with pytest.raises(UsageError, match="does not name a bucket"):
        open_store("s3://")

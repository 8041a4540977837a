"""pulsetrain on a fresh Debian that a real sshd answers for, in namespaces of its own and without a network."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from tests.servers import program
from tests.waiting import eventually

MADE = Path(__file__).parents[3] / ".debian-root"
"""By .ci/debian-root, from `make test`."""
VOLATILE = {"proc", "sys", "dev", "run", "tmp", "wheels"}
ENTER = """
mount --make-rprivate /
for kind in proc dev; do mount --rbind /$kind "$1/$kind"; done
mount --bind "$2" "$1/wheels"
ip link set lo up 2>/dev/null || ifconfig lo up 2>/dev/null || true
exec chroot "$1" /usr/sbin/sshd -D -e -p 2222
"""
DOCKER = """#!/bin/sh
# What `pulsetrain stack` asks of Docker. Its servers are one program that answers all their ports.
echo "$*" >> /docker.log
case "$*" in
*"up --detach"*)
    [ -e /run/servers ] || { touch /run/servers; setsid python3 -B /servers.py </dev/null >/dev/null 2>&1 & } ;;
ps*) [ ! -e /run/servers ] || printf '%s\\t/var/lib/pulsetrain-stack\\n' \
    prometheus grafana alertmanager pushgateway node-exporter ;;
esac
"""
SERVERS = """
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
for port in (9090, 3000, 9093, 9091, 9100):
    threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", port), Ready).serve_forever).start()
"""


class Machine:
    """A Debian in a folder, with an sshd, and how to reach it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.config = folder / "ssh_config"
        self._folder = folder
        self.root.mkdir()
        subprocess.run(["tar", "-C", self.root, "-xf", MADE / "root.tar"], check=True)
        for name in ("wheels", "run/sshd", "root/.ssh"):
            (self.root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        key = folder / "key"
        subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(key.with_suffix(".pub"), self.root / "root/.ssh/authorized_keys")
        (self.root / "etc/pip.conf").write_text(
            "[global]\nno-index = true\nfind-links = /wheels\n[install]\nno-compile = true\n"
        )

    def start(self) -> "subprocess.Popen[bytes]":
        kinds = ("--mount", "--net", "--pid", "--fork", "--kill-child")
        words = [program("unshare"), *kinds, "sh", "-c", ENTER, "sh", str(self.root), str(MADE / "wheels")]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        into = f"nsenter --net=/proc/{process.pid}/ns/net {program('busybox')} nc 127.0.0.1 2222"
        self.config.write_text(
            f"Host debian\n  User root\n  IdentityFile {self._folder}/key\n  IdentitiesOnly yes\n  BatchMode yes\n"
            f"  StrictHostKeyChecking no\n  UserKnownHostsFile {self._folder}/known_hosts\n  LogLevel ERROR\n"
            f"  ProxyCommand {into}\n"
        )
        return process

    def ssh(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([program("ssh"), "-F", self.config, "debian", *words], capture_output=True, text=True)

    def fingerprint(self) -> dict[str, str]:
        """Every file, folder and link there: its kind, mode, size, time of change and content."""
        found = {}
        for folder, names, plain in os.walk(self.root):
            if Path(folder) == self.root:
                names[:] = [name for name in names if name not in VOLATILE]
            for name in (*names, *plain):
                path = Path(folder, name)
                about = path.lstat()
                text = f"{about.st_mode} {about.st_size} {about.st_mtime_ns}"
                if path.is_symlink():
                    text += f" {path.readlink()}"
                found[str(path.relative_to(self.root))] = text
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() or not (MADE / "ready").exists():
        reason = "needs root, and the Debian that .ci/debian-root makes"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    machine = Machine(tmp_path)
    process = machine.start()
    try:
        assert eventually(lambda: machine.ssh("true").returncode == 0)
        yield machine
    finally:
        process.kill()  # and with it all that it started
        process.wait()


def install(machine: Machine, *words: str) -> "subprocess.CompletedProcess[str]":
    arguments = ["cloud", "vm", "install", "debian", "--ssh-config", str(machine.config), *words]
    return subprocess.run([sys.executable, "-m", "pulsetrain", *arguments], capture_output=True, text=True)


@contextlib.contextmanager
def tunnel(machine: Machine) -> Iterator[dict[str, str]]:
    """The pages of `vm tunnel` by name, until Ctrl-C."""
    words = ["cloud", "vm", "tunnel", "debian", "--ssh-config", str(machine.config)]
    process = subprocess.Popen([sys.executable, "-m", "pulsetrain", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = [process.stdout.readline().split() for _ in range(3)]
    assert process.stdout.readline() == "Ctrl-C closes the tunnel.\n"
    yield {words[0]: words[1] for words in lines}
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == "\nclosed\n" and process.returncode == 0


def test_a_fresh_debian_becomes_an_agent_with_a_stack_and_a_second_time_changes_nothing(machine: Machine) -> None:
    docker = machine.root / "usr/local/bin/docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    (machine.root / "servers.py").write_text(SERVERS)

    first = install(machine, "--stack")
    assert first.returncode == 0, first.stdout + first.stderr
    for text in ("installed python3-venv", "pulsetrain 0.", "/etc/systemd/system/pulsetrain.service", "the stack in"):
        assert text in first.stdout
    assert "debian: ready" in first.stdout and "systemd is not running" in first.stderr
    sampled = machine.ssh("pulsetrain", "sample", "--simulate", "1xL4")
    assert sampled.returncode == 0 and "L4" in sampled.stdout, sampled.stderr
    assert machine.ssh("systemctl", "is-enabled", "pulsetrain").stdout == "enabled\n"
    assert (machine.root / "var/lib/pulsetrain-stack/compose.yml").exists()
    assert "up --detach" in (machine.root / "docker.log").read_text()

    with tunnel(machine) as pages:
        assert pages.keys() == {"Grafana", "Prometheus", "agent"}
        with urllib.request.urlopen(pages["Grafana"]) as answer:
            assert answer.status == 200

    (machine.root / "docker.log").unlink()
    before = machine.fingerprint()
    second = install(machine, "--stack")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "debian: already up to date" in second.stdout
    (machine.root / "docker.log").unlink()
    assert machine.fingerprint() == before

    (machine.root / "etc/systemd/system/pulsetrain.service").unlink()  # what is missing is put back, and only that
    third = install(machine)
    assert third.stdout.splitlines()[:1] == ["  /etc/systemd/system/pulsetrain.service"]

    broken = install(machine, "--package", "no-such-package==1")
    assert broken.returncode == 1 and "Traceback" not in broken.stderr
    assert "error: debian: pip could not install pulsetrain." in broken.stderr and "hint: " in broken.stderr


def test_a_host_that_cannot_be_reached_is_a_clear_error(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host nowhere\n  ProxyCommand false\n")
    words = ["cloud", "vm", "install", "nowhere", "--ssh-config", str(config)]
    done = subprocess.run([sys.executable, "-m", "pulsetrain", *words], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: nowhere: " in done.stderr and "Nothing was changed there." in done.stderr


@pytest.mark.parametrize(("package", "text"), [("absent.whl", "does not exist"), ("a b; rm", "not a wheel, a URL")])
def test_a_package_that_is_none_is_refused_before_anybody_connects(package: str, text: str) -> None:
    words = ["cloud", "vm", "install", "me@nowhere", "--package", package]
    done = subprocess.run([sys.executable, "-m", "pulsetrain", *words], capture_output=True, text=True)
    assert done.returncode == 2 and text in done.stderr


def test_shellcheck_finds_nothing_in_what_runs_there() -> None:
    script = Path(str(files("pulsetrain") / "deploy/cloud/install.sh"))
    done = subprocess.run([program("shellcheck"), script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.waiting import eventually

from pulsetrain.sources.processes import COMMAND_LENGTH, HIDDEN, OUTSIDE, ProcessDirectory, container, shortened

ID = "3f9c0a1b2c3d" + "45" * 26
OTHER = "aaaabbbbcccc" + "67" * 26
UID = "0f2bd1f5-4e2c-4b50-a0c9-6a2b1c3d4e5f"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "--lr", "0.1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.readline()  # it is its own program from here on
        yield process
        process.kill()


@pytest.fixture
def host_proc(tmp_path: Path) -> Path:
    """The /proc of a machine, also where the tests run in a container."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    return tmp_path


@pytest.fixture
def container_proc(tmp_path: Path) -> Path:
    """The /proc of a container: its pid namespace is not the first one."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532758]")
    return tmp_path


def test_a_process_is_described_by_user_command_and_parent(host_proc: Path, child: subprocess.Popen[bytes]) -> None:
    who = ProcessDirectory(host_proc).describe(child.pid)
    assert who.user == psutil.Process().username()
    assert who.command.startswith(Path(sys.executable).name + " -c import sys;")
    assert who.command.endswith("--lr 0.1")
    assert who.parent_pid == os.getpid()


def test_an_ended_pid_is_said_to_be_so(host_proc: Path, child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert ProcessDirectory(host_proc).describe(child.pid) == HIDDEN


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no zombies")
def test_a_zombie_keeps_its_name(host_proc: Path, child: subprocess.Popen[bytes]) -> None:
    child.kill()
    assert eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    who = ProcessDirectory(host_proc).describe(child.pid)
    assert who.command == f"[{psutil.Process(child.pid).name()}]"
    assert who.parent_pid == os.getpid()


def test_a_pid_that_a_container_cannot_see_is_outside_of_it(container_proc: Path) -> None:
    assert ProcessDirectory(container_proc).describe(4_000_000) == OUTSIDE


def test_a_host_pid_that_equals_a_local_one_by_chance_is_not_taken_for_it(
    container_proc: Path, child: subprocess.Popen[bytes]
) -> None:
    files = container_proc / str(child.pid) / "fd"
    files.mkdir(parents=True)
    (files / "0").symlink_to("/dev/pts/0")
    (files / "1").symlink_to("/data/nvidia/log.txt")
    assert ProcessDirectory(container_proc).describe(child.pid) == OUTSIDE


@pytest.mark.parametrize("device", ["/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"])
def test_a_local_pid_in_a_container_is_believed_when_it_holds_a_gpu(
    container_proc: Path, child: subprocess.Popen[bytes], device: str
) -> None:
    files = container_proc / str(child.pid) / "fd"
    files.mkdir(parents=True)
    (files / "0").symlink_to("/dev/pts/0")
    (files / "7").symlink_to(device)
    assert ProcessDirectory(container_proc).describe(child.pid).parent_pid == os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="pid namespaces are Linux's")
def test_a_real_pid_namespace_is_recognized() -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a pid namespace")
    script = (
        "import os; from pulsetrain.sources import processes; print(processes.ProcessDirectory().describe(os.getpid()))"
    )
    done = subprocess.run([*unshare, sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(OUTSIDE)


def test_a_process_of_our_own_needs_no_gpu_to_be_believed(container_proc: Path, child: subprocess.Popen[bytes]) -> None:
    assert ProcessDirectory(container_proc).who(child.pid, started=1.0).parent_pid == os.getpid()


def test_the_container_of_a_process_is_found(host_proc: Path, child: subprocess.Popen[bytes]) -> None:
    (host_proc / str(child.pid)).mkdir()
    (host_proc / str(child.pid) / "cgroup").write_text(f"0::/system.slice/docker-{ID}.scope\n")
    assert ProcessDirectory(host_proc).describe(child.pid).container == "docker:3f9c0a1b2c3d"


def test_another_process_with_a_known_pid_is_described_again(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    directory = ProcessDirectory(tmp_path)
    (tmp_path / str(child.pid)).mkdir()
    (tmp_path / str(child.pid) / "cgroup").write_text(f"0::/docker/{ID}\n")
    assert directory.who(child.pid, started=100.0).container == "docker:3f9c0a1b2c3d"
    (tmp_path / str(child.pid) / "cgroup").write_text(f"0::/docker/{OTHER}\n")
    assert directory.who(child.pid, started=100.0).container == "docker:3f9c0a1b2c3d"
    assert directory.who(child.pid, started=200.0).container == "docker:aaaabbbbcccc"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no exec")
def test_a_process_that_became_another_program_is_described_again_after_a_while() -> None:
    now = 0.0
    directory = ProcessDirectory(clock=lambda: now)
    command = ["sh", "-c", "echo; read _; exec sleep 3600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        assert directory.who(process.pid, started=1.0).command == " ".join(command)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert eventually(lambda: psutil.Process(process.pid).name() == "sleep")
        now = 29.0
        assert directory.who(process.pid, started=1.0).command == " ".join(command)
        now = 31.0
        assert directory.who(process.pid, started=1.0).command == "sleep 3600"
        process.kill()


@pytest.mark.parametrize(
    ("cgroups", "expected"),
    [
        (f"0::/system.slice/docker-{ID}.scope", f"docker:{ID[:12]}"),
        (
            f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service",
            f"docker:{ID[:12]}",
        ),
        (f"0::/machine.slice/libpod-{ID}.scope/container", f"podman:{ID[:12]}"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", f"podman:{ID[:12]}"),
        (f"0::/default/{ID}", f"container:{ID[:12]}"),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/"
            f"cri-containerd-{ID}.scope",
            f"pod:{UID}/{ID[:12]}",
        ),
        (f"4:memory:/kubepods/besteffort/pod{UID}/{ID}", f"pod:{UID}/{ID[:12]}"),
        (f"0::/kubepods/pod{UID.replace('-', '')}/{ID}", f"pod:{UID.replace('-', '')}/{ID[:12]}"),
        (f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope", f"pod:{UID}/{ID[:12]}"),
        (f"0::/../../kubepods/pod{UID}/{ID}", f"pod:{UID}/{ID[:12]}"),
        (f"0::/system.slice/crio-{ID}.scope", f"crio:{ID[:12]}"),
        (f"0::/docker/{OTHER}/docker/{ID}", f"docker:{ID[:12]}"),
        (f"0::/docker/{OTHER}/kubelet/kubepods/pod{UID}/{ID}", f"pod:{UID}/{ID[:12]}"),
        (f"0::/machine.slice/libpod-conmon-{ID}.scope", None),
        ("0::/lxc.payload.trainer/system.slice/cron.service", "lxc:trainer"),
        ("9:memory:/lxc/trainer", "lxc:trainer"),
        ("0::/lxc.monitor.trainer", None),
        ("0::/", None),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("0::/system.slice/docker.service", None),
        ("4:memory:/slurm/uid_1000/job_4711/step_0", None),
    ],
)
def test_a_container_is_read_from_the_cgroup(cgroups: str, expected: str | None) -> None:
    assert container(cgroups + "\n") == expected


@pytest.mark.skipif(sys.platform == "win32", reason="the paths are POSIX")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["/opt/conda/bin/python3.11", "-u", "/home/ada/vision/train.py", "--data", "/mnt/x"],
            "python3.11 -u train.py --data /mnt/x",
        ),
        (["python", "-m", "torch.distributed.run", "train.py"], "python -m torch.distributed.run train.py"),
        (["./train.sh"], "./train.sh"),
        (["ray::RolloutWorker.sample"], "ray::RolloutWorker.sample"),
        (["nginx: master process /usr/sbin/nginx"], "nginx: master process /usr/sbin/nginx"),
        (["/bin/sh", "-c", "/opt/run --out /tmp/a\n/opt/next"], "sh -c /opt/run --out /tmp/a /opt/next"),
    ],
)
def test_a_command_is_readable_at_a_glance(words: list[str], expected: str) -> None:
    assert shortened(words) == expected


def test_a_long_command_is_cut() -> None:
    text = shortened(["python", *("--option=value" for _ in range(20))])
    assert len(text) == COMMAND_LENGTH
    assert text.endswith("…")


def test_a_command_line_in_another_encoding_can_be_stored_and_shown(host_proc: Path) -> None:
    command = [b"sh", b"-c", b"echo; sleep 60; : \xe9t\xe9 \x1b[2J"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout
            child.stdout.readline()  # it is its own program from here on
            who = ProcessDirectory(host_proc).who(child.pid, 0.0)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert who.command == "sh -c echo; sleep 60; : \ufffdt\ufffd \ufffd[2J"
    who.command.encode()


def test_a_secret_in_a_command_line_is_covered() -> None:
    assert shortened(["/usr/bin/python3", "train.py", "--api-key", "abc"]) == "python3 train.py --api-key ***"

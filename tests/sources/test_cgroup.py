import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Sample
from pulsetrain.sources import Source
from pulsetrain.sources.cgroup import Cgroup, CgroupUse

Read = Callable[[Source], list[Sample]]
GIB = 1 << 30


@pytest.fixture
def machine(recorded: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy that the test may change."""
    return lambda name: shutil.copytree(recorded / name, tmp_path / name)


def test_a_docker_container_of_version_1_shows_limits_and_usage(recorded: Path, read: Read) -> None:
    (sample,) = read(Cgroup(recorded / "cgroup-docker-v1", environ={}))
    assert sample.subject.table == "host"
    assert sample.values == {
        "container_memory_used_bytes": 2 * GIB,  # of 3 GiB, 1 GiB is inactive file cache
        "container_memory_limit_bytes": 8 * GIB,
        "container_cpu_seconds": 812.5,
        "container_cpu_throttled_seconds": 7.25,
        "container_cpu_limit_cores": 2.0,
    }


def test_a_docker_container_of_version_2_shows_limits_and_usage(recorded: Path, read: Read) -> None:
    (sample,) = read(Cgroup(recorded / "cgroup-docker-v2", environ={}))
    assert sample.values == {
        "container_memory_used_bytes": 4 * GIB,
        "container_memory_limit_bytes": 16 * GIB,
        "container_cpu_seconds": 95.25,
        "container_cpu_throttled_seconds": 1.5,
        "container_cpu_limit_cores": 3.5,
    }


def test_a_pod_without_limits_shows_its_usage_and_no_limit(recorded: Path, read: Read) -> None:
    (sample,) = read(Cgroup(recorded / "cgroup-kubernetes-v2", environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1"}))
    assert sample.values == {
        "container_memory_used_bytes": GIB // 2,
        "container_cpu_seconds": 12.0,
        "container_cpu_throttled_seconds": 0.0,
    }


def test_version_1_without_limits_shows_none(machine: Callable[[str], Path], read: Read) -> None:
    root = machine("cgroup-docker-v1")
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    (root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us").write_text("-1\n")
    (sample,) = read(Cgroup(root, environ={}))
    assert "container_memory_limit_bytes" not in sample.values
    assert "container_cpu_limit_cores" not in sample.values


def test_a_limit_that_is_changed_while_we_watch_is_seen(machine: Callable[[str], Path], read: Read) -> None:
    root = machine("cgroup-docker-v2")
    source = Cgroup(root, environ={})
    (root / "sys/fs/cgroup/memory.max").write_text(f"{2 * GIB}\n")
    (root / "sys/fs/cgroup/cpu.max").write_text("max 100000\n")
    (sample,) = read(source)
    assert sample.values["container_memory_limit_bytes"] == 2 * GIB
    assert "container_cpu_limit_cores" not in sample.values


def test_a_bare_machine_is_not_a_container(recorded: Path) -> None:
    with pytest.raises(Unavailable, match="not in a container"):
        Cgroup(recorded / "cgroup-systemd-host", environ={})


def test_a_limit_above_our_cgroup_applies_with_the_usage_of_all_below_it(
    machine: Callable[[str], Path], read: Read
) -> None:
    root = machine("cgroup-systemd-host")
    slices = root / "sys/fs/cgroup/user.slice"
    (slices / "memory.max").write_text(f"{64 * GIB}\n")
    (slices / "user-1000.slice/memory.max").write_text(f"{32 * GIB}\n")
    (slices / "cpu.max").write_text("800000 100000\n")
    (sample,) = read(Cgroup(root, environ={}))
    assert sample.values == {
        "container_memory_used_bytes": 6 * GIB,
        "container_memory_limit_bytes": 32 * GIB,
        "container_cpu_seconds": 5000.0,
        "container_cpu_throttled_seconds": 0.25,
        "container_cpu_limit_cores": 8.0,
    }


def test_a_batch_job_in_a_hybrid_tree_is_limited_by_version_1(recorded: Path, read: Read) -> None:
    (sample,) = read(Cgroup(recorded / "cgroup-hybrid", environ={}))
    assert sample.values == {
        "container_memory_used_bytes": 20 * GIB,  # of the whole job, which the limit is for
        "container_memory_limit_bytes": 64 * GIB,
        "container_cpu_seconds": 20 * GIB / 1e6,  # of our step, as no CPU limit stands above it
        "container_cpu_throttled_seconds": 0.0,
    }


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{'3f9c' * 16}",
        f"/system.slice/docker-{'3f9c' * 16}.scope",
        f"/kubepods.slice/kubepods-pod0f2bd1f5_4e2c_4b50_a0c9_6a2b1c3d4e5f.slice/cri-containerd-{'3f9c' * 16}.scope",
        "/lxc.payload.trainer/init.scope",
    ],
)
def test_a_container_that_sees_the_path_of_the_host_is_known_by_it(
    machine: Callable[[str], Path], read: Read, path: str
) -> None:
    root = machine("cgroup-systemd-host")
    session = root / "sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"
    shutil.copytree(session, root / "sys/fs/cgroup" / path[1:])
    (root / "proc/self/cgroup").write_text(f"0::{path}\n")
    (sample,) = read(Cgroup(root, environ={}))
    assert sample.values["container_cpu_seconds"] == 60.0


def test_a_podman_container_is_known_by_its_marker(machine: Callable[[str], Path]) -> None:
    root = machine("cgroup-kubernetes-v2")
    with pytest.raises(Unavailable):
        Cgroup(root, environ={})
    (root / "run").mkdir()
    (root / "run/.containerenv").touch()
    Cgroup(root, environ={})


@pytest.mark.parametrize("path", ["/..", "/../../system.slice/docker.service"])
def test_a_path_outside_of_what_is_mounted_leads_to_the_top(
    machine: Callable[[str], Path], read: Read, path: str
) -> None:
    root = machine("cgroup-docker-v2")
    (root / "proc/self/cgroup").write_text(f"0::{path}\n")
    (sample,) = read(Cgroup(root, environ={}))
    assert sample.values["container_memory_limit_bytes"] == 16 * GIB


def test_cpu_time_is_shown_where_the_cpu_controller_is_off(machine: Callable[[str], Path], read: Read) -> None:
    root = machine("cgroup-docker-v2")
    (root / "sys/fs/cgroup/cpu.max").unlink()
    (root / "sys/fs/cgroup/cpu.stat").write_text("usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n")
    (sample,) = read(Cgroup(root, environ={}))
    assert sample.values["container_cpu_seconds"] == 5.0
    assert "container_cpu_throttled_seconds" not in sample.values
    assert "container_cpu_limit_cores" not in sample.values


def test_a_system_without_cgroups_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no cgroups"):
        Cgroup(tmp_path, environ={})


CONTAINER = "3f9c0a1b2c3d4e5f"


def container_tree(root: Path, folder: str, mount: str, cgroup: str, files: dict[str, str]) -> None:
    """A machine with a process 42 in a container."""
    for pid in ("42", "self"):
        (root / f"proc/{pid}/ns").mkdir(parents=True)
        (root / f"proc/{pid}/ns/net").symlink_to(f"net:[{pid}]")
    (root / "proc/self/mountinfo").write_text(mount)
    (root / "proc/42/cgroup").write_text(cgroup)
    (root / "proc/42/net").mkdir()
    head = "Inter-|   Receive\n face |bytes packets\n"
    (root / "proc/42/net/dev").write_text(f"{head}  lo: 9 1 0 0 0 0 0 0 9 1\neth0: 700 2 0 0 0 0 0 0 300 4\n")
    place = root / "sys/fs/cgroup" / folder
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(text)


def test_what_a_container_uses_is_that_of_its_cgroup(tmp_path: Path) -> None:
    folder = f"system.slice/docker-{CONTAINER}.scope"
    mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    files = {
        "memory.current": "5000",
        "memory.stat": "inactive_file 1000\n",
        "memory.max": "max",
        "cpu.stat": "usage_usec 2500000\n",
        "io.stat": "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n",
    }
    container_tree(tmp_path, folder, mount, f"0::/{folder}\n", files)
    use = CgroupUse(42, CONTAINER, tmp_path)
    use.read()
    (tmp_path / "sys/fs/cgroup" / folder / "memory.current").write_text("3000")
    use.read()
    assert use.values == {
        "job_memory_bytes": 2000,
        "job_memory_peak_bytes": 4000,
        "job_cpu_seconds": 2.5,
        "job_read_bytes": 11,
        "job_written_bytes": 22,
        "job_network_received_bytes": 700,
        "job_network_sent_bytes": 300,
    }
    (tmp_path / "sys/fs/cgroup" / folder / "cpu.stat").unlink()  # it has ended: the last values stay
    use.read()
    assert use.values["job_cpu_seconds"] == 2.5


def test_version_1_reports_the_same_of_a_container(tmp_path: Path) -> None:
    mount = "31 23 0:27 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
    files = {"blkio.throttle.io_service_bytes": "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n"}
    container_tree(tmp_path, f"blkio/docker/{CONTAINER}", mount, f"3:blkio:/docker/{CONTAINER}\n", files)
    use = CgroupUse(42, CONTAINER, tmp_path)
    use.read()
    assert (use.values["job_read_bytes"], use.values["job_written_bytes"]) == (10, 20)


def test_a_process_of_somebody_else_with_the_same_pid_reports_nothing(tmp_path: Path) -> None:
    mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    container_tree(tmp_path, "user.slice", mount, "0::/user.slice\n", {"memory.current": "5000", "memory.stat": ""})
    use = CgroupUse(42, CONTAINER, tmp_path)
    use.read()
    assert not use.found and use.values == {}

"""Starting the watched command, and waiting for its end."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BESIDE_OTHERS = """
import os, subprocess, threading
from pulsetrain.watching.child import Child

child, ended, codes = Child(["sleep", "1"], lambda number: None), threading.Event(), []

def start_others():
    while not ended.is_set():
        codes.append(subprocess.run(["false"]).returncode)

others = threading.Thread(target=start_others)
others.start()
print(child.run(os.environ, lambda pid: None).exit_code)
ended.set()
others.join()
child.release()
print(set(codes))
"""
LEAVES_AN_ORPHAN = "(sleep 0.1 &); sleep 1; cat /proc/[0-9]*/status | grep -c '^State:.Z'"


@pytest.mark.skipif(sys.platform != "linux", reason="signals tell who sent them on Linux only")
def test_processes_that_other_threads_start_are_left_to_them() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE_OTHERS], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.split() == ["0", "{1}"]


@pytest.mark.skipif(sys.platform != "linux", reason="pid namespaces are Linux's")
def test_as_init_of_a_container_orphans_are_collected(tmp_path: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a pid namespace")
    run = [sys.executable, "-m", "pulsetrain", "run", "-q", "--dir", str(tmp_path)]
    done = subprocess.run(
        [*unshare, *run, "--", "sh", "-c", LEAVES_AN_ORPHAN], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["0"]

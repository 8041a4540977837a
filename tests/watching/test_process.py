"""Processes that already run, watched from their middle."""

import os
import subprocess

import psutil

from pulsetrain.watching.process import lives


class Ending(psutil.Process):  # type: ignore[misc]
    """A process that ends right after it was seen running, and is waited for."""

    child: subprocess.Popen[bytes]

    def is_running(self) -> bool:
        running = bool(super().is_running())
        self.child.kill()
        self.child.wait()
        return running


def test_a_process_that_ends_between_two_looks_has_ended() -> None:
    with subprocess.Popen(["sleep", "3600"]) as child:
        process = Ending(child.pid)
        process.child = child
        assert not lives(process)


def test_a_process_lives_until_it_is_a_zombie() -> None:
    with subprocess.Popen(["sleep", "3600"]) as child:
        process = psutil.Process(child.pid)
        assert lives(process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays one until somebody asks for it
        assert process.is_running()
        assert not lives(process)

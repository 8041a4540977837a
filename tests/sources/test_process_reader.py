"""What processes use, whoever they belong to: real processes, looked at by hand."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from pulsetrain.sources.process_reader import ProcessUse

BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"


class Held:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """A process that computes for half a second of CPU time when it is told to, and then rests."""
    code = f"input()\n{BUSY}"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as started:
        yield started
        started.kill()


def compute(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()


def test_memory_and_start_are_known_at_once_and_cores_from_the_second_look(process: subprocess.Popen[str]) -> None:
    clock = Held()
    use = ProcessUse(clock)
    first = use.look([process.pid])[process.pid]
    assert first.keys() == {"memory_bytes", "start_time_seconds"}
    assert first["memory_bytes"] == pytest.approx(psutil.Process(process.pid).memory_info().rss, rel=0.5)
    assert first["start_time_seconds"] == pytest.approx(psutil.Process(process.pid).create_time(), abs=1.5)
    compute(process)
    clock.now += 2.0
    cores = use.look([process.pid])[process.pid]["cpu_cores"]
    assert isinstance(cores, float) and 0.2 <= cores <= 0.6


def test_a_process_that_has_ended_is_left_out(process: subprocess.Popen[str]) -> None:
    use = ProcessUse()
    process.kill()
    psutil.wait_procs([psutil.Process(process.pid)])
    assert use.look([process.pid]) == {}

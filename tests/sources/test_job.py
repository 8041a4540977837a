"""Real processes: a command does what the test tells it, and the test reads the job in between."""

import ast
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.waiting import eventually

from pulsetrain.snapshot import Sample, Value
from pulsetrain.sources import Source
from pulsetrain.sources.job import MOST_LINES, Job
from pulsetrain.sources.process_reader import LinuxProcessReader, ProcessReader, ProcessStat, PsutilProcessReader

Read = Callable[[Source], list[Sample]]

COMMAND = """
import ast, multiprocessing, os, signal, subprocess, sys, threading, time

def start(code="pass"):
    "A child that runs the code, and then stays until it is told to end."
    source = f"import os, subprocess, sys, time\\n{code}\\nprint(flush=True)\\nsys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child

def busy(seconds):
    "A child that has used so much CPU time, and rests."
    return start(f"while time.process_time() < {seconds}: pass")

def end(child):
    child.stdin.close()
    child.wait()

for line in sys.stdin:
    result = None
    exec(ast.literal_eval(line))
    print(result, flush=True)
"""


class Command:
    """The watched command, and what the job makes of it."""

    def __init__(
        self,
        read: Read,
        reader: ProcessReader,
        clock: Callable[[], float] = time.monotonic,
        *,
        before: str = "pass",
        from_now: bool = False,
    ) -> None:
        """A command that has done something `before` it is watched."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "--epochs", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read = read
        self.pid = self._process.pid
        self.job = Job(reader, clock, from_now=from_now)
        self.do(before)
        self.job.watch(self.pid)

    def do(self, code: str) -> int | None:
        """Run code in the command; the value of its `result`."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(repr(code) + "\n")
        self._process.stdin.flush()
        value: int | None = ast.literal_eval(self._process.stdout.readline())
        return value

    def values(self) -> dict[str, float]:
        """The job as a whole, read now."""
        return numbers(self._read(self.job)[0].values)

    def processes(self) -> dict[Value, Sample]:
        """The lines of its processes by pid, read now."""
        return {line.subject.labels["pid"]: line for line in self._read(self.job)[1:]}

    def kill(self) -> None:
        # Its children first, while it still keeps them together: some end by themselves as soon as it does.
        if self._process.poll() is None:
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.kill()
        self._process.communicate()


def numbers(values: dict[str, Value]) -> dict[str, float]:
    return {field: value for field, value in values.items() if isinstance(value, int | float)}


READERS = [LinuxProcessReader, PsutilProcessReader] if sys.platform == "linux" else [PsutilProcessReader]
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone counts what children leave to their parents"
)


class Held:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Held:
    return Held()


@pytest.fixture(params=READERS)
def command(request: pytest.FixtureRequest, read: Read, clock: Held) -> Iterator[Command]:
    command = Command(read, request.param(), clock)
    yield command
    command.kill()


def test_nothing_is_read_before_the_command_has_started(read: Read) -> None:
    assert read(Job()) == []


def test_a_command_is_counted_with_its_children_and_theirs(command: Command) -> None:
    before = command.values()
    assert before["job_processes"] == 1
    command.do('a = start(); b = start(\'child = subprocess.Popen([sys.executable, "-c", "input()"])\')')
    after = command.values()
    assert after["job_processes"] == 4
    assert after["job_memory_bytes"] > before["job_memory_bytes"]
    command.do("end(a)")
    assert command.values()["job_processes"] == 3


def test_processes_that_are_not_of_the_command_are_not_counted(command: Command) -> None:
    command.values()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        assert command.values()["job_processes"] == 1


def test_workers_of_multiprocessing_are_counted(command: Command) -> None:
    command.do(
        "context = multiprocessing.get_context('spawn')\n"
        "workers = [context.Process(target=time.sleep, args=(3600,), daemon=True) for _ in range(3)]\n"
        "for worker in workers: worker.start()"
    )
    tracker = 1 if sys.platform != "win32" else 0  # spawn has a process of its own that tracks resources
    assert command.values()["job_processes"] == 1 + 3 + tracker


def test_each_process_has_a_line_that_says_who_it_is(command: Command) -> None:
    child = command.do("child = start(); result = child.pid")
    lines = command.processes()
    assert set(lines) == {command.pid, child}
    labels = lines[command.pid].subject.labels
    assert labels["parent_pid"] == os.getpid()
    assert labels["user"] == psutil.Process().username()
    assert str(labels["command"]).startswith(f"{Path(sys.executable).name} -c import ast, multiprocessing")
    assert lines[child].subject.labels["parent_pid"] == command.pid
    assert {"cpu_seconds", "memory_bytes", "threads"} <= lines[child].values.keys()


def test_the_subject_of_a_process_is_made_once(command: Command) -> None:
    assert command.processes()[command.pid].subject is command.processes()[command.pid].subject


def test_a_process_says_when_it_started(command: Command) -> None:
    started = command.processes()[command.pid].values["start_time_seconds"]
    assert started == pytest.approx(psutil.Process(command.pid).create_time(), abs=1.5)


def test_threads_are_counted(command: Command) -> None:
    before = command.values()["job_threads"]
    command.do("for _ in range(5): threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()")
    assert command.values()["job_threads"] == before + 5
    assert command.processes()[command.pid].values["threads"] == before + 5


def test_cores_are_those_kept_busy_since_the_last_reading(command: Command, clock: Held) -> None:
    first = command.values()
    assert "job_cpu_cores" not in first  # nothing to compare with
    clock.now += 2
    child = command.do("child = busy(0.4); result = child.pid")
    line = command.processes()[child]
    cores, used = line.values["cpu_cores"], line.values["cpu_seconds"]
    assert isinstance(cores, float) and isinstance(used, float)
    assert used >= 0.39
    assert cores == pytest.approx(used / 2, abs=1e-3)

    def rests() -> bool:
        clock.now += 2
        return command.processes()[child].values["cpu_cores"] == 0.0

    assert eventually(rests)


def test_cores_of_a_very_short_time_are_left_out(command: Command, clock: Held) -> None:
    command.values()
    clock.now += 0.02
    assert "job_cpu_cores" not in command.values()
    clock.now += 1
    assert "job_cpu_cores" in command.values()


@pytest.fixture(params=READERS)
def late(request: pytest.FixtureRequest, read: Read, tmp_path: Path) -> Iterator[Command]:
    """A process that is watched from its middle, as `attach` does: it and a child of it have been busy."""
    write = f"file = open({str(tmp_path / 'data')!r}, 'wb', buffering=0); file.write(bytes(8 << 20))"
    before = f"{write}; os.fsync(file.fileno()); child = busy(0.4)\nwhile time.process_time() < 0.4: pass"
    command = Command(read, request.param(), before=before, from_now=True)
    yield command
    command.kill()


def test_of_a_process_that_ran_before_only_what_it_uses_from_now_on_is_counted(late: Command) -> None:
    first = late.values()
    assert first["job_cpu_seconds"] == first.get("job_written_bytes", 0) == 0
    late.do("until = time.process_time() + 0.3\nwhile time.process_time() < until: pass")
    assert 0.25 <= late.values()["job_cpu_seconds"] < 0.6


@linux_only
def test_a_child_that_was_there_before_is_not_counted_when_its_parent_waits_for_it(late: Command) -> None:
    late.values()
    late.do("end(child)")
    assert late.values()["job_cpu_seconds"] < 0.3


@linux_only
def test_cpu_time_of_children_that_come_and_go_between_readings_is_counted(command: Command) -> None:
    before = command.values()["job_cpu_seconds"]
    command.do("for _ in range(3): end(busy(0.2))")
    values = command.values()
    assert values["job_processes"] == 1
    assert values["job_cpu_seconds"] >= before + 0.5


@linux_only
def test_cpu_time_is_counted_once_while_a_child_lives_is_a_zombie_and_is_waited_for(command: Command) -> None:
    child = command.do("child = busy(0.5); result = child.pid")
    assert child
    living = command.values()["job_cpu_seconds"]
    command.do("child.stdin.close()")
    assert eventually(lambda: psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    as_zombie = command.values()
    assert as_zombie["job_processes"] == 1
    assert child not in command.processes()
    command.do("child.wait()")
    after = command.values()
    assert 0.4 <= living <= as_zombie["job_cpu_seconds"] <= after["job_cpu_seconds"] < living + 0.3


@linux_only
def test_cpu_time_is_counted_once_when_a_child_ends_while_we_read(read: Read) -> None:
    class Ending(LinuxProcessReader):
        """Lets the child end after its parent has been read, and before it is read itself."""

        child: int | None = None

        def stat(self, pid: int) -> ProcessStat | None:
            if pid == self.child:
                self.child = None
                parent.do("end(child)")
            return super().stat(pid)

    reader = Ending()
    parent = Command(read, reader)
    child = parent.do("child = busy(0.5); result = child.pid")
    living = parent.values()["job_cpu_seconds"]
    reader.child = child
    parent.values()
    after = parent.values()["job_cpu_seconds"]
    parent.kill()
    assert reader.child is None
    assert living <= after < living + 0.3


@linux_only
def test_a_daemon_stays_with_the_job_and_its_cpu_time_is_kept_when_it_ends(command: Command) -> None:
    burner = "import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(3600)"
    code = f"subprocess.Popen([sys.executable, '-c', {burner!r}])"
    middle = command.do(f"middle = start({code!r}); result = middle.pid")
    assert middle
    (daemon,) = psutil.Process(middle).children()
    assert command.values()["job_processes"] == 3
    command.do("end(middle)")
    assert eventually(lambda: sum(daemon.cpu_times()[:2]) >= 0.4)
    with_daemon = command.values()
    assert with_daemon["job_processes"] == 2
    assert with_daemon["job_cpu_seconds"] >= 0.4
    daemon.kill()
    assert eventually(lambda: not psutil.pid_exists(daemon.pid))
    without = command.values()
    assert without["job_processes"] == 1
    assert without["job_cpu_seconds"] >= with_daemon["job_cpu_seconds"]
    command.do("end(busy(0.2))")
    assert command.values()["job_cpu_seconds"] >= without["job_cpu_seconds"] + 0.15


def test_a_command_that_ended_keeps_its_counters(command: Command) -> None:
    command.do("end(busy(0.2))")
    before = command.values()
    command.kill()
    after = command.values()
    assert after["job_processes"] == 0
    assert after["job_memory_bytes"] == 0
    for counter in ("job_cpu_seconds", "job_read_bytes", "job_written_bytes"):
        assert after.get(counter, 0) >= before.get(counter, 0)


@linux_only
def test_what_a_child_writes_is_counted_once_and_kept_when_it_ends(command: Command, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    code = f"file = open({path!r}, 'wb', buffering=0); file.write(bytes(8 << 20)); os.fsync(file.fileno())"
    command.do(f"child = start({code!r})")
    written = command.values()["job_written_bytes"]
    if written == 0:
        pytest.skip("the temporary folder is in memory")
    assert written >= 8 << 20
    command.do("end(child)")
    assert written <= command.values()["job_written_bytes"] < 12 << 20


@linux_only
def test_the_busiest_processes_have_the_lines_when_there_are_many(command: Command) -> None:
    command.do(f"children = [subprocess.Popen(['sleep', '3600']) for _ in range({MOST_LINES + 10})]")
    assert command.values()["job_processes"] == MOST_LINES + 11
    child = command.do("child = busy(0.2); result = child.pid")
    lines = command.processes()
    assert len(lines) == MOST_LINES
    assert next(iter(lines)) == child


def test_another_process_that_got_the_pid_of_a_child_is_not_taken_for_it(read: Read) -> None:
    class Reused(PsutilProcessReader):
        """Says that a process of someone else has the pid by now."""

        pid: int | None = None

        def stat(self, pid: int) -> ProcessStat | None:
            stat = super().stat(pid)
            return stat._replace(started=stat.started + 1, parent_pid=1) if stat and pid == self.pid else stat

    reader = Reused()
    parent = Command(read, reader)
    child = parent.do("child = busy(0.3); result = child.pid")
    before = parent.values()
    reader.pid = child
    after = parent.values()
    parent.kill()
    assert (before["job_processes"], after["job_processes"]) == (2, 1)
    assert after["job_cpu_seconds"] >= before["job_cpu_seconds"]


def start_with_pid(pid: int) -> subprocess.Popen[bytes]:
    """A process of ours that gets a free pid, on kernels that let root choose the next one."""
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(50):
        try:
            last_pid.write_text(str(pid - 1))
        except (FileNotFoundError, PermissionError):
            break
        process = subprocess.Popen(["sleep", "3600"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    pytest.skip("needs root, and a kernel with ns_last_pid")


def test_a_later_process_with_the_pid_of_the_ended_command_is_not_taken_for_it(command: Command) -> None:
    assert command.values()["job_processes"] == 1
    command.kill()
    assert command.values()["job_processes"] == 0
    other = start_with_pid(command.pid)
    values = command.values()
    other.kill()
    other.wait()
    assert values["job_processes"] == 0


@pytest.fixture
def as_nobody() -> Iterator[None]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_a_process_of_another_user_is_counted_without_its_io(command: Command, as_nobody: None) -> None:
    values = command.values()
    assert values["job_processes"] == 1
    assert "job_written_bytes" not in values
    line = command.processes()[command.pid]
    assert line.values["memory_bytes"] == values["job_memory_bytes"] > 0
    assert "written_bytes" not in line.values

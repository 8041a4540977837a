"""What the dashboard costs, how soon it is there, and how fast it answers a key: in terminals of 120 by 40."""

import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence

from tests.nvml.scenario import Scenario

from benchmarks import peers
from benchmarks.processes import ROOT, Failed, Machine, cpu_seconds, end, here, memory_kb, spread
from benchmarks.results import Limit, Report, Result, beside

COLUMNS, LINES = 120, 40
OURS = (sys.executable, "-m", "pulsetrain", "top", "--interval", "1")
NVITOP = (sys.executable, "-m", "nvitop", "--monitor", "full", "--interval", "1")
PROCESSES = 20
STARTUP_SECONDS = 8
WINDOW_SECONDS = 10
FIRST_WORD = b"GPUs"
HELP_KEY, HELP_WORD = b"?", b"send a signal"
CLOSE_KEY = b"\x1b"


class Terminal:
    """A program in a terminal of its own, whose output is read all the time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.started = time.perf_counter()
        self.pid, self._file = pty.fork()
        if not self.pid:
            os.chdir(ROOT)
            os.execve(command[0], list(command), {**environment, "TERM": "xterm-256color"})
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._output = b""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def type(self, keys: bytes) -> None:
        with self._changed:
            self._output = b""
        os.write(self._file, keys)

    def wait_for(self, word: bytes, seconds: float = 60.0) -> float:
        """When it was seen, on the clock of `time.perf_counter`."""
        with self._changed:
            if not self._changed.wait_for(lambda: word in self._output, seconds):
                raise TimeoutError(f"{word!r} did not appear")
            return time.perf_counter()

    def ended(self) -> bool:
        """Whether it did so by itself."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def close(self) -> None:
        os.kill(self.pid, 15)
        os.waitpid(self.pid, 0)

    def _read(self) -> None:
        while True:
            select.select([self._file], [], [])
            try:
                data = os.read(self._file, 65536)
            except OSError:  # the program has ended
                return
            with self._changed:
                self._output = (self._output + data)[-1_000_000:]
                self._changed.notify_all()


def run(machine: Machine, quick: bool) -> Report:
    sleepers = [subprocess.Popen(["sleep", "3600"]) for _ in range(PROCESSES)]
    try:
        return _measure(machine, quick, [sleeper.pid for sleeper in sleepers])
    finally:
        end(sleepers)


def _measure(machine: Machine, quick: bool, pids: Sequence[int]) -> Report:
    boards = Scenario().gpus(8, "H100")
    for number, pid in enumerate(pids):
        boards.process(number % 8, pid, 3000, sm_percent=20)
    environment = machine.environment(boards) | {"PYTHONPATH": str(ROOT)}
    names, notes = here(["top", "nvitop"], peers.MODULES)
    commands = {name: {"top": OURS, "nvitop": NVITOP}[name] for name in names}
    return Report(
        [
            *_cpu(commands, environment, windows=1 if quick else 6),
            _first_frame(environment, rounds=3 if quick else 10),
            _key(environment, rounds=5 if quick else 20),
        ],
        notes,
    )


def _cpu(commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], windows: int) -> list[Result]:
    """CPU of all at the same time, and memory at the end."""
    terminals = {name: Terminal(command, environment) for name, command in commands.items()}
    used: dict[str, list[float]] = {name: [] for name in terminals}
    time.sleep(STARTUP_SECONDS)
    for _ in range(windows):
        before = {name: (time.monotonic(), cpu_seconds(one.pid)) for name, one in terminals.items()}
        time.sleep(WINDOW_SECONDS)
        for name, one in terminals.items():
            began, cpu_before = before[name]
            used[name].append(100 * (cpu_seconds(one.pid) - cpu_before) / (time.monotonic() - began))
    failed = {name: "it ended by itself" for name, one in terminals.items() if one.ended()}
    memory = {name: memory_kb(one.pid)["Pss"] / 1024 for name, one in terminals.items() if name not in failed}
    for one in terminals.values():
        one.close()
    if "top" in failed:
        raise Failed(failed["top"])
    cpu = {name: min(used[name]) for name in memory}
    ours = Result("top", "CPU at 1 Hz", cpu.pop("top"), "% of a core", target=Limit(2.0), spread=spread(used["top"]))
    pss = Result("top", "PSS", memory.pop("top"), "MB")
    no_more = {"nvitop": Limit(1.0, "ratio")}
    return [ours, *beside(ours, cpu, failed, no_more), *(beside(pss, memory, {}) or [pss])]


def _first_frame(environment: Mapping[str, str], rounds: int) -> Result:
    """From the command to the first frame."""
    times = []
    for _ in range(rounds):
        terminal = Terminal(OURS, environment)
        times.append(1000 * (terminal.wait_for(FIRST_WORD) - terminal.started))
        terminal.close()
    return Result("top", "first frame", statistics.median(times), "ms", target=Limit(500), spread=spread(times))


def _key(environment: Mapping[str, str], rounds: int) -> Result:
    """From a key to what it brings up."""
    terminal = Terminal(OURS, environment)
    time.sleep(STARTUP_SECONDS / 2)
    times = []
    for _ in range(rounds):
        pressed = time.perf_counter()
        terminal.type(HELP_KEY)
        times.append(1000 * (terminal.wait_for(HELP_WORD) - pressed))
        terminal.type(CLOSE_KEY)
        time.sleep(0.5)
    terminal.close()
    return Result("top", "key to screen", statistics.median(times), "ms", target=Limit(50), spread=spread(times))

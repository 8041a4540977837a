"""A command as a benchmark: its output is taken, its process group is its own, its time is that of its process."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pulsetrain.bench.declaration import Benchmark
from pulsetrain.bench.output import OutputLog
from pulsetrain.bench.workload import WorkloadExit, signal_reason
from pulsetrain.sources.job import Job
from pulsetrain.units import KIB
from pulsetrain.watching import child, instrument
from pulsetrain.watching.recording import RunRecording

LOOK_SECONDS = 0.1
"""How often to look at the memory peak, which is gone with the process."""
CHUNK = 65536
DRAIN_SECONDS = 5.0
"""Processes that outlive the command may hold its output open: they are not waited for any longer."""


class CommandWorkload:
    """Runs a command with its output in a pipe, and without input."""

    def __init__(self, benchmark: Benchmark, output: OutputLog, *, instrumented: bool = True) -> None:
        child.check(benchmark.command)
        self._job = Job()
        self.source = self._job
        self.stages: dict[str, float] = {}
        self.notes: list[str] = []
        self.image_id = self.image_digest = ""
        self._benchmark = benchmark
        self._output = output
        self._instrumented = instrumented
        self._environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._started = self._stopped = 0.0
        self._start = datetime.now(UTC)
        self._exit_code: int | None = None
        self._over = threading.Event()
        self._memory_peak: int | None = None

    def prepare(self, recording: RunRecording) -> None:
        environment = instrument.environment(recording.folder, recording.start, recording.started, self._instrumented)
        self._environment = environment | self._benchmark.env

    def start(self) -> None:
        self._start, self._started = datetime.now(UTC), time.monotonic()
        self._process = process = _spawn(self._benchmark.command, self._environment)
        self._job.watch(process.pid)
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._drain, "output"), (self._await_end, "end"))
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> WorkloadExit | None:
        deadline = time.monotonic() + seconds
        while not self._over.wait(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            self._look_at_memory()
            if time.monotonic() >= deadline:
                return None
        assert self._exit_code is not None
        took = self._stopped - self._started
        code = self._exit_code if self._exit_code >= 0 else 128 - self._exit_code
        end = self._start + timedelta(seconds=took)
        reason = signal_reason(code) if self._exit_code < 0 else ""
        return WorkloadExit(code, self._start, end, took, reason)

    def ended(self) -> None:
        self._job.end(self._collect)

    def stop(self) -> None:
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def keep(self, folder: Path) -> None:
        """A command writes where it wants to."""

    def close(self) -> None:
        if self._process:
            if not self._over.is_set():
                self.kill()
                self._over.wait()
            self._collect()
            self._threads[0].join(DRAIN_SECONDS)
            assert self._process.stdout
            if not self._threads[0].is_alive():  # else some process of the command still holds it
                self._process.stdout.close()
        self._output.close()

    def _signal(self, number: int) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _drain(self) -> None:
        assert self._process and self._process.stdout
        while data := os.read(self._process.stdout.fileno(), CHUNK):
            self._output.feed(data)

    def _await_end(self) -> None:
        """It stays a zombie until its counters are read."""
        assert self._process
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._stopped = time.monotonic()
        assert ended
        self._exit_code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._over.set()

    def _look_at_memory(self) -> None:
        """The most that the command's first process has held; the kernel keeps it as long as the process lives."""
        assert self._process
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{self._process.pid}/status").read_text()
            if found := re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE):
                self._memory_peak = max(self._memory_peak or 0, int(found[1]) * KIB)

    def _collect(self) -> int | None:
        """Let go of the process; its memory peak. What `wait4` says counts our own memory in, and is of no use."""
        if self._process and self._process.returncode is None:
            self._process.wait()
        return self._memory_peak


def _spawn(command: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """In a process group of its own: Ctrl-C reaches us, and we stop it in order."""
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    except OSError as error:
        raise child.CannotStart(f"{command[0]}: {error.strerror}.", 126) from None

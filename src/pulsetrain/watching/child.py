"""Starts the watched command and stays out of its way: its stdio, signals and exit code are its own.

The command shares our terminal and process group, so what the terminal sends (Ctrl-C, Ctrl-Z, a new size) reaches it
directly, once. What another process sends to us alone (`kill`, a scheduler) is passed on.
"""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pulsetrain.errors import PulsetrainError
from pulsetrain.units import KIB
from pulsetrain.watching.guard import WAKE, SignalGuard

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
STOPPING_NUMBERS = frozenset(getattr(signal, name) for name in STOPPING if hasattr(signal, name))
PASSED_ON = (*STOPPING, "SIGUSR1", "SIGUSR2", "SIGALRM")
INIT = 1
"""The pid of the process to which orphans are left; in a container, it may be ours."""


class CannotStart(PulsetrainError):
    """As a shell has it: 127 when there is no such command, 126 when it cannot be executed."""

    def __init__(self, message: str, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class CommandExit(NamedTuple):
    exit_code: int
    """As a shell shows it: 128 + the signal's number when a signal ended the command."""
    signal: str | None
    stopped: bool
    """Whether someone asked it to stop before it ended."""

    @property
    def status(self) -> str:
        if self.exit_code == 0:
            return "finished"
        return "interrupted" if self.stopped or self.signal in STOPPING else "failed"


def check(command: Sequence[str]) -> None:
    """Say that a command does not exist before anything is recorded."""
    found = shutil.which(command[0])
    if found:
        return
    name = command[0]
    if shutil.which(name, mode=os.F_OK):
        raise CannotStart(f"{name}: not executable.", 126, _hint(name))
    raise CannotStart(f"{name}: command not found.", 127, _hint(name))


def _hint(name: str) -> str | None:
    """What the user may have meant by a command that cannot be started."""
    words = name.split()
    if len(words) > 1 and shutil.which(words[0]):
        return f"Leave out the quotes: pulsetrain run -- {name}"
    if name.endswith(".py"):
        return f"Try: pulsetrain run -- python {name}"
    if Path(name).is_dir():
        return "It is a folder."
    if Path(name).is_file():
        return f"Try: pulsetrain run -- ./{name}" if os.access(name, os.X_OK) else f"Try: chmod +x {name}"
    return None


class Child:
    """A command to run. Signals are held back from construction to `release`, so make it before any thread."""

    def __init__(self, command: Sequence[str], interrupted: Callable[[int], None]) -> None:
        """`interrupted` is called, from another thread, with a signal that comes while the command does not run."""
        self._command = list(command)
        self._interrupted = interrupted
        self._passed_on = {
            number
            for name in PASSED_ON
            if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) is not signal.SIG_IGN
        }
        self._pid: int | None = None
        self._inherited_peak_bytes = 0
        self._guard: SignalGuard | None = None
        self._sigwait = hasattr(signal, "sigwaitinfo")
        if self._sigwait:
            assert WAKE is not None
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it never hears of a command's end
            # Threads inherit the mask: no signal interrupts a reading, all wait for the command or the guard.
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._passed_on, signal.SIGCHLD, WAKE})
            self._guard = SignalGuard(self._passed_on, interrupted)

    def run(self, environment: Mapping[str, str], started: Callable[[int], None]) -> CommandExit:
        """Start the command, tell its pid, and wait for its end."""
        if not self._guard:
            return self._run_with_handlers(environment, started)
        self._guard.close()
        try:
            return self._run_with_sigwait(environment, started)
        finally:
            self._guard = SignalGuard(self._passed_on, self._interrupted)

    def collect(self) -> int | None:
        """Let go of a command that has ended; the most memory, in bytes, that one of its processes held.

        None where nobody can tell: the kernel counts what this process held when it started the command as the
        command's own, which hides whatever is less.
        """
        if self._pid is None:
            return None
        _, _, usage = os.wait4(self._pid, 0)
        self._pid = None
        peak = usage.ru_maxrss * KIB
        return peak if peak > self._inherited_peak_bytes else None

    def release(self) -> None:
        """Let signals do what they did before."""
        if self._guard:
            self._guard.close()
            self._guard = None
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _run_with_sigwait(self, environment: Mapping[str, str], started: Callable[[int], None]) -> CommandExit:
        try:
            # Not subprocess: it can neither set the child's signal mask nor be used safely beside threads for it.
            pid = os.posix_spawnp(
                self._command[0],
                self._command,
                environment,
                setsigmask=self._mask,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these; the command should not
            )
        except OSError as error:
            raise self._cannot_start(error) from None
        self._pid, self._inherited_peak_bytes = pid, _own_memory_peak_bytes()
        started(pid)
        threading.Thread(target=_announce_end, args=(pid, threading.get_ident()), name="end", daemon=True).start()
        stopped = False
        while True:
            # Without a timeout: sigtimedwait gives garbage when we are stopped and continued meanwhile.
            info = signal.sigwaitinfo({*self._passed_on, signal.SIGCHLD})
            if info.si_signo == signal.SIGCHLD:
                code = _exit_code(pid)
                if code is not None:
                    return _command_exit(code, stopped)
                continue
            stopped = stopped or signal.Signals(info.si_signo).name in STOPPING
            # Above 0, the kernel sent it on behalf of the terminal, to the command as well.
            if info.si_code <= 0:
                os.kill(pid, info.si_signo)

    def _run_with_handlers(self, environment: Mapping[str, str], started: Callable[[int], None]) -> CommandExit:
        """Where signals do not tell who sent them (macOS, Windows)."""
        stopped = False
        process: subprocess.Popen[bytes] | None = None

        def pass_on(number: int, frame: object) -> None:
            nonlocal stopped
            stopped = stopped or signal.Signals(number).name in STOPPING
            if process and not (number == signal.SIGINT and _in_foreground()):
                process.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in self._passed_on}
        try:
            process = subprocess.Popen(self._command, env=environment)
            started(process.pid)
            return _command_exit(process.wait(), stopped)
        except OSError as error:
            raise self._cannot_start(error) from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _cannot_start(self, error: OSError) -> CannotStart:
        code = 127 if error.errno == errno.ENOENT else 126
        return CannotStart(f"{self._command[0]}: {error.strerror}.", code)


def _announce_end(pid: int, waiting_thread: int) -> None:
    """Send the waiting thread a SIGCHLD of its own: another library's thread may have swallowed the kernel's."""
    with contextlib.suppress(ChildProcessError):  # it has been heard of, and collected
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    signal.pthread_kill(waiting_thread, signal.SIGCHLD)


def _exit_code(pid: int) -> int | None:
    """The exit code of `pid` when it has ended, negative for a signal. It stays a zombie with counters to be read."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        if os.getpid() == INIT:
            _collect_orphans(pid)
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _collect_orphans(pid: int) -> None:
    """Let go of processes that were left to us as init of a container. Elsewhere, children belong to other threads."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != pid:
        with contextlib.suppress(ChildProcessError):  # another thread began it, and was quicker
            os.waitpid(ended.si_pid, 0)


def _own_memory_peak_bytes() -> int:
    """The most memory that this process has held; 0 where the system does not say."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    except FileNotFoundError:
        return 0
    return int(found[1]) * KIB if found else 0


def _command_exit(code: int, stopped: bool) -> CommandExit:
    if code >= 0:
        return CommandExit(code, None, stopped)
    return CommandExit(
        128 - code, signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}", stopped
    )


def _in_foreground() -> bool:
    """Whether the terminal's Ctrl-C reaches our whole group."""
    try:
        return hasattr(os, "tcgetpgrp") and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False

"""Starts the watched command and stays out of its way: its stdio, signals and exit code are its own.

The command shares our terminal and process group, so what the terminal sends (Ctrl-C, Ctrl-Z, a new size) reaches it
directly, once. What another process sends to us alone (`kill`, a scheduler) is passed on.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pulsetrain.errors import PulsetrainError

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
PASSED_ON = (*STOPPING, "SIGUSR1", "SIGUSR2", "SIGALRM")


class CannotStart(PulsetrainError):
    """As a shell has it: 127 when there is no such command, 126 when it cannot be executed."""

    def __init__(self, message: str, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class Ended(NamedTuple):
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
    path = shutil.which(command[0], mode=os.F_OK)
    if path:
        raise CannotStart(f"{command[0]}: not executable.", 126, f"Try: pulsetrain run -- python {command[0]}")
    raise CannotStart(f"{command[0]}: command not found.", 127)


class Child:
    """A command to run. Signals are held back from construction on, so make it before any thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._passed_on = {
            number
            for name in PASSED_ON
            if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) is not signal.SIG_IGN
        }
        self._sigwait = hasattr(signal, "sigtimedwait")
        if self._sigwait:
            # Threads inherit the mask: no signal interrupts a reading, all wait for `run`.
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._passed_on, signal.SIGCHLD})

    def run(self, environment: Mapping[str, str], started: Callable[[int], None]) -> Ended:
        """Start the command, tell its pid, and wait for its end."""
        way = self._run_with_sigwait if self._sigwait else self._run_with_handlers
        return way(environment, started)

    def _run_with_sigwait(self, environment: Mapping[str, str], started: Callable[[int], None]) -> Ended:
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
        started(pid)
        stopped = False
        while True:
            # The timeout is for a library whose own thread, unknown to us, swallows the news of the command's end.
            info = signal.sigtimedwait({*self._passed_on, signal.SIGCHLD}, 1.0)
            if info is None or info.si_signo == signal.SIGCHLD:
                code = _exit_code(pid)
                if code is not None:
                    return _ended(code, stopped)
                continue
            stopped = stopped or signal.Signals(info.si_signo).name in STOPPING
            # Above 0, the kernel sent it on behalf of the terminal, to the command as well.
            if info.si_code <= 0:
                os.kill(pid, info.si_signo)

    def _run_with_handlers(self, environment: Mapping[str, str], started: Callable[[int], None]) -> Ended:
        """Where signals do not tell who sent them (macOS, Windows)."""
        stopped = False
        process: subprocess.Popen[bytes] | None = None

        def pass_on(number: int, frame: object) -> None:
            nonlocal stopped
            stopped = stopped or signal.Signals(number).name in STOPPING
            if process and not (number == signal.SIGINT and _in_foreground()):
                process.send_signal(number)

        for number in self._passed_on:
            signal.signal(number, pass_on)
        try:
            process = subprocess.Popen(self._command, env=environment)
        except OSError as error:
            raise self._cannot_start(error) from None
        started(process.pid)
        return _ended(process.wait(), stopped)

    def _cannot_start(self, error: OSError) -> CannotStart:
        code = 127 if error.errno == errno.ENOENT else 126
        return CannotStart(f"{self._command[0]}: {error.strerror}.", code)


def _exit_code(pid: int) -> int | None:
    """The exit code of `pid` when it has ended, negative for a signal. It stays a zombie, whose counters can be read.

    Other children are collected; in a container we may be init.
    """
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        if ended.si_pid == pid:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        os.waitpid(ended.si_pid, 0)


def _ended(code: int, stopped: bool) -> Ended:
    if code >= 0:
        return Ended(code, None, stopped)
    return Ended(
        128 - code, signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}", stopped
    )


def _in_foreground() -> bool:
    """Whether the terminal's Ctrl-C reaches our whole group."""
    try:
        return hasattr(os, "tcgetpgrp") and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False

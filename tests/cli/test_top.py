"""`pulsetrain top` as a user calls it: once, in a pipe, in a terminal, for runs, for other machines."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.waiting import PATIENCE_SECONDS, eventually

from pulsetrain.runs.folder import RunFolder

Pulsetrain = Callable[..., CompletedProcess[str]]


def test_one_frame_of_this_machine_is_printed_as_text(pulsetrain: Pulsetrain) -> None:
    shown = pulsetrain("top", "--simulate", "2xL4", "--once", "--interval", "0.2")
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    assert re.search(r"^1 GPUs  2 x L4\n +utilization +memory", shown.stdout, re.MULTILINE)
    assert re.findall(r"^ +(\d) +[█▉▊▋▌▍▎▏·]+ +\d+ %", shown.stdout, re.MULTILINE) == ["0", "1"]
    assert re.search(r"disk +[\d.]+ .?i?B/s read", shown.stdout)


def test_one_frame_of_a_run_has_its_history_from_its_files(
    pulsetrain: Pulsetrain, home: Path, make_run: Callable[..., RunFolder]
) -> None:
    gpu = {"gpu_index": 0, "uuid": "GPU-0", "name": "NVIDIA L4", "up": 1, "utilization_percent": 42.0}
    losses = [{"rank": 0, "step": step, "loss": 3.0 - step / 10} for step in range(20)]
    make_run("20261116-120000-resnet-aaaa", name="resnet", home=home / "runs", gpu=[gpu] * 20, training=losses)
    shown = pulsetrain("top", "resnet", "--once")
    assert shown.returncode == 0, shown.stderr
    assert "resnet  finished" in shown.stdout
    assert re.search(r"loss 1\.1 +1\.1 to 3", shown.stdout)
    assert "utilization 42 %" in shown.stdout


def test_a_run_in_progress_is_found_and_followed(environment: dict[str, str], pulsetrain: Pulsetrain) -> None:
    command = (sys.executable, "-m", "pulsetrain", "run", "--quiet", "--simulate", "1xL4", "--interval", "0.2")
    running = subprocess.Popen([*command, "--name", "found", "--", "sleep", "3600"], env=environment)
    try:
        frames: list[str] = []

        def followed() -> bool:
            frames.append(pulsetrain("top", "--once").stdout)
            return "found  running" in frames[-1] and "utilization" in frames[-1]

        assert eventually(followed), frames[-1]
        assert re.search(r"found on \S+  simulated GPUs", frames[-1].splitlines()[0])
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()


def test_two_runs_at_a_time_are_refused(pulsetrain: Pulsetrain) -> None:
    shown = pulsetrain("top", "a", "b")
    assert shown.returncode == 2
    assert "pulsetrain compare" in shown.stderr


def test_thresholds_of_the_settings_file_count(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text("[thresholds]\ngpu_hot_celsius = 5\ngpu_too_hot_celsius = 10\n")
    shown = pulsetrain("top", "--simulate", "1xL4", "--once", "--interval", "0.2")
    assert re.search(r"^ GPU 0 \d+ °C$", shown.stdout, re.MULTILINE)


def test_a_palette_that_does_not_exist_is_refused(pulsetrain: Pulsetrain, tmp_path: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text('palette = "pink"\n')
    shown = pulsetrain("top", "--once")
    assert shown.returncode == 2
    assert "pink" in shown.stderr


def test_without_a_terminal_it_is_the_plain_table(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pulsetrain", "top", "--simulate", "2xL4", "--interval", "0.2"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("GPU  name"):
                break
        assert "L4 (simulated)" in next(process.stdout)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 0


class Terminal:
    """A terminal with the dashboard in it."""

    def __init__(self, environment: dict[str, str], *arguments: str, **more: str) -> None:
        command = [sys.executable, "-m", "pulsetrain", "top", *arguments]
        self.pid, self._file = pty.fork()
        if not self.pid:
            os.execve(command[0], command, {**environment, "TERM": "xterm-256color", **more})
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.output = b""

    def wait_for(self, word: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while word not in self.output:
            assert time.monotonic() < deadline, self.output[-2000:]
            self.read()

    def read(self) -> None:
        if select.select([self._file], [], [], 0.1)[0]:
            try:
                self.output += os.read(self._file, 65536)
            except OSError:  # it has ended
                return

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def exit_code(self) -> int:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("it did not end")


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(*arguments: str, **more: str) -> Terminal:
        opened.append(Terminal(environment, *arguments, **more))
        return opened[-1]

    yield make
    for one in opened:
        try:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def test_in_a_terminal_it_is_the_dashboard_until_q(terminal: Callable[..., Terminal]) -> None:
    top = terminal("--simulate", "8xH100")
    top.wait_for(b"GPUs")
    top.wait_for(b"\x1b[?1000h")  # Textual listens to the mouse: it has taken over
    top.type(b"?")
    top.wait_for(b"send a signal")
    top.output = b""
    top.type(b"?")
    top.wait_for(b"Processes")  # was hidden below the help
    top.type(b"q")
    assert top.exit_code() == 0
    assert b"\x1b[?1049l" in top.output  # the terminal is as it was


def test_a_dumb_terminal_gets_the_plain_table(terminal: Callable[..., Terminal]) -> None:
    top = terminal("--simulate", "2xL4", TERM="dumb")
    top.wait_for(b"GPU  name")
    assert b"\x1b" not in top.output

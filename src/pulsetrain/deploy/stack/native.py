"""The stack without Docker: servers installed on this machine, as processes in the background."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import psutil

from pulsetrain.deploy.stack.services import Service, arguments, grafana_environment
from pulsetrain.deploy.stack.settings import StackSettings
from pulsetrain.errors import PulsetrainError

END_SECONDS = 15.0
"""For a server to end by itself; Prometheus writes its newest samples to disk."""


class _Process(msgspec.Struct, frozen=True):
    """A .pid file. Process ids are reused, so it also has the time of the start."""

    pid: int
    started: float
    command: list[str]


class Native:
    """The servers of a stack, their pid files, logs and data in DIR/native."""

    def __init__(self, folder: Path, settings: StackSettings) -> None:
        self._top = folder
        self._folder = folder / "native"
        self._settings = settings

    def running(self) -> set[str]:
        return {name for name in self._names() if self._find(name)}

    def up(self, restart: Collection[str]) -> None:
        """Start what does not run, and restart what has another command line now or is in `restart`.

        When one cannot be started, those that were started before it are stopped again.
        """
        started = []
        try:
            for service in self._settings.services:
                if self._start(service, anew=service.name in restart):
                    started.append(service.name)
        except OSError as error:
            for name in started:
                self._stop(name)
            raise PulsetrainError(f"{service.program} could not be started: {error.strerror}.") from None
        for name in self.running() - {service.name for service in self._settings.services}:
            self._stop(name)

    def down(self, volumes: bool) -> list[str]:
        """Stop all; with `volumes`, remove what they recorded. The names of those that ran."""
        stopped = [name for name in sorted(self._names()) if self._stop(name)]
        if volumes:
            shutil.rmtree(self._folder / "data", ignore_errors=True)
        return stopped

    def ended(self) -> dict[str, str]:
        """Those that should run and do not, each with the last line of its log."""
        running = self.running()
        return {
            service.name: _last_line(self.log(service.name))
            for service in self._settings.services
            if service.name not in running
        }

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _start(self, service: Service, *, anew: bool) -> bool:
        """Whether it had to be started."""
        name = service.name
        data = self._folder / "data" / name
        command = [
            shutil.which(service.program) or service.program,
            *arguments(name, self._settings.listen(name), str(self._top / name), str(data)),
        ]
        found = self._find(name)
        if found and found[0].command == command and not anew:
            return False
        self._stop(name)
        data.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=data,
                env={**os.environ, **self._environment(name, data)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        note = _Process(process.pid, psutil.Process(process.pid).create_time(), command)
        self._pid_file(name).write_bytes(msgspec.json.encode(note))
        process.returncode = 0  # it outlives us, on purpose: no warning about that
        return True

    def _environment(self, name: str, data: Path) -> Mapping[str, str]:
        if name != "grafana":
            return {}
        folder = self._top / "grafana"
        return {
            **grafana_environment(
                self._settings.address_of(name),
                self._settings.port(name),
                str(folder / "provisioning"),
                str(folder / "dashboards"),
            ),
            "GF_PATHS_DATA": str(data),
            "GF_PATHS_LOGS": str(data / "log"),
            "GF_PATHS_PLUGINS": str(data / "plugins"),
            "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{folder / 'admin-password'}}}",
        }

    def _stop(self, name: str) -> bool:
        """Whether it ran."""
        found = self._find(name)
        if found:
            _, process = found
            _signal(process, signal.SIGTERM)
            if not _wait(process, END_SECONDS):
                _signal(process, signal.SIGKILL)
                _wait(process, END_SECONDS)
        self._pid_file(name).unlink(missing_ok=True)
        return found is not None

    def _find(self, name: str) -> tuple[_Process, psutil.Process] | None:
        """The process that we started under this name, if it still runs."""
        try:
            note = msgspec.json.decode(self._pid_file(name).read_bytes(), type=_Process)
            process = psutil.Process(note.pid)
            same = abs(process.create_time() - note.started) < 1.0
        except (FileNotFoundError, msgspec.MsgspecError, psutil.NoSuchProcess):
            return None
        return (note, process) if same and not _gone(process) else None

    def _names(self) -> set[str]:
        return {file.stem for file in self._folder.glob("*.pid")}

    def _pid_file(self, name: str) -> Path:
        return self._folder / f"{name}.pid"


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _wait(process: psutil.Process, seconds: float) -> bool:
    """Whether it has ended within this time."""
    deadline = time.monotonic() + seconds
    while not _gone(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _gone(process: psutil.Process) -> bool:
    """One that nobody has waited for yet is gone too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")

"""Who is behind a pid: user, command, container. For the process lists of the GPUs and of the watched command."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

import psutil

from pulsetrain.training.masking import masked_command
from pulsetrain.untrusted import showable

T = TypeVar("T")


class ProcessIdentity(NamedTuple):
    """What a reader of a process list wants to know of a process."""

    user: str | None
    command: str
    """The command line without the folders of program and script, at most 80 characters."""
    container: str | None
    """`docker:3f9c0a1b2c3d` (or podman, containerd, crio, container), `pod:UID/3f9c0a1b2c3d`, or `lxc:NAME`.

    None outside of containers, and within our own where its cgroup namespace hides the id.
    """
    parent_pid: int | None


OUTSIDE = ProcessIdentity(None, "outside this namespace", None, None)
HIDDEN = ProcessIdentity(None, "ended or hidden", None, None)

COMMAND_LENGTH = 80

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, a constant of the kernel
_GPU_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
_FRESH_SECONDS = 30.0  # a process may become another program (exec), or write itself another title
_CACHE_SIZE = 1024

_ID = re.compile(r"(?:([a-z]+)[-/:])?([0-9a-f]{64})(?=$|[./:])")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})")
_LXC = re.compile(r"/lxc(?:/|\.payload[./])([^/\s]+)")
_RUNTIMES = {"docker": "docker", "libpod": "podman", "containerd": "containerd", "crio": "crio"}


class ProcessDirectory:
    """Looks processes up, and remembers them by pid and start time.

    Drivers may name pids of the host (NVML: older drivers always, newer ones in some calls), and in a pid namespace of
    our own another process may bear the number: there a pid is believed only if its process has a GPU's file open.
    """

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        try:
            self._nested = str((proc / "self/ns/pid").readlink()) != _INITIAL_PID_NAMESPACE
        except FileNotFoundError:  # a system without pid namespaces
            self._nested = False
        self._known: dict[tuple[int, float | None], tuple[float, ProcessIdentity]] = {}

    def describe(self, pid: int) -> ProcessIdentity:
        """Who is behind a pid that a GPU driver named. Never fails: what we cannot see is said to be so."""
        try:
            started = _visible(psutil.Process(pid).create_time)
        except psutil.NoSuchProcess:
            return OUTSIDE if self._nested else HIDDEN
        return self._remembered(pid, started, doubtful=self._nested)

    def who(self, pid: int, started: float) -> ProcessIdentity:
        """Who a process of our own pid namespace is; its start, in any unit, tells it from others of the same pid."""
        return self._remembered(pid, started, doubtful=False)

    def _remembered(self, pid: int, started: float | None, doubtful: bool) -> ProcessIdentity:
        now = self._clock()
        known = self._known.get((pid, started))
        if known and now - known[0] < _FRESH_SECONDS:
            return known[1]
        who = OUTSIDE if doubtful and not self._uses_gpu(pid) else self._look_up(pid)
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        if not who.command.startswith("["):  # for a moment, a program that is just being started has no command line
            self._known[pid, started] = (now, who)
        return who

    def _look_up(self, pid: int) -> ProcessIdentity:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                return ProcessIdentity(
                    _visible(process.username), _command(process), self._container(pid), process.ppid()
                )
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # denied: /proc is mounted with hidepid
            return HIDDEN

    def _container(self, pid: int) -> str | None:
        try:
            return container((self._proc / str(pid) / "cgroup").read_text(errors="replace"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # not Linux, just ended, or hidden
            return None

    def _uses_gpu(self, pid: int) -> bool:
        try:
            return any(_target(file).startswith(_GPU_FILES) for file in (self._proc / str(pid) / "fd").iterdir())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False


def container(cgroups: str) -> str | None:
    """The container that the lines of a /proc/PID/cgroup name, spelled as in `ProcessIdentity.container`."""
    for line in cgroups.splitlines():
        found = _ID.findall(line)
        if not found:
            continue
        word, id = found[-1]  # where containers are nested, the innermost comes last
        if word == "conmon":  # podman's and CRI-O's watcher, which runs beside the container
            continue
        pods = _POD.findall(line)
        if pods:
            return f"pod:{pods[-1].replace('_', '-')}/{id[:12]}"
        return f"{_RUNTIMES.get(word, 'container')}:{id[:12]}"
    lxc = _LXC.search(cgroups)
    return showable(f"lxc:{lxc[1]}") if lxc else None


def shortened(words: list[str]) -> str:
    """A command line to be read at a glance, by anybody: `python train.py --lr 0.1`, with secrets covered."""
    words = masked_command(words)
    if len(words) > 1 or " " not in words[0]:  # else the process wrote itself a title
        script = next((i for i, word in enumerate(words) if i and not word.startswith("-")), 0)
        words = [_file_name(word) if i in (0, script) else word for i, word in enumerate(words)]
    text = showable(" ".join(" ".join(words).split()))
    return text if len(text) <= COMMAND_LENGTH else f"{text[: COMMAND_LENGTH - 1]}…"


def _file_name(word: str) -> str:
    path = PurePath(word)
    return path.name if path.is_absolute() and (" " not in word or os.name == "nt") else word


def _command(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
    except (psutil.AccessDenied, psutil.ZombieProcess):
        words = []
    return shortened(words) if any(words) else f"[{showable(process.name())}]"


def _visible(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except psutil.AccessDenied:
        return None


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except FileNotFoundError:  # closed since it was listed
        return ""

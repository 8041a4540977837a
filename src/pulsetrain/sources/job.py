"""The watched command: its processes, and what they use together."""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import platform
from typing import NamedTuple, Protocol

import psutil

from pulsetrain.snapshot import Sample, Subject, Value
from pulsetrain.sources.host import SHORTEST_SECONDS
from pulsetrain.sources.processes import Directory, Who

MOST_LINES = 64
"""Of more processes the busiest have a line of their own, then the largest; the sums count all."""

_ATTEMPTS = 3


class Stat(NamedTuple):
    """What one process shows."""

    parent_pid: int
    started: float
    """Tells processes apart that bear the same pid, one after the other. In the platform's own unit."""
    ended: bool
    """A zombie, of which only the counters are left."""
    cpu_seconds: float
    waited_cpu_seconds: float
    """Of its children that ended and were waited for. 0 where the platform does not count it."""
    memory_bytes: int
    threads: int


class Io(NamedTuple):
    """On Linux with that of the children that were waited for."""

    read_bytes: int
    written_bytes: int


class Reader(Protocol):
    def stat(self, pid: int) -> Stat | None:
        """None when there is no such process any more."""

    def io(self, pid: int) -> Io | None:
        """None when it is not counted here or not ours to read; raises ProcessLookupError when the process is gone."""


@dataclass
class Member:
    """A process of the job."""

    pid: int
    stat: Stat
    io: Io | None = None
    cpu_seconds_before: float = 0.0
    """When cores were last worked out; 0 for a process that has come since."""
    who: Who | None = None
    subject: Subject | None = None


class Rising:
    """A sum that never falls: what vanishes from it is kept."""

    def __init__(self) -> None:
        self.total: float = 0
        self._kept: float = 0

    def advance(self, sum: float) -> float:
        self._kept += max(0, self.total - self._kept - sum)
        self.total = self._kept + sum
        return self.total


class Job:
    """The command that `watch` names, and all that descends from it. What once belongs to it stays, as daemons do.

    A process that is waited for leaves its CPU time and I/O to its parent; what the others leave is kept here.
    """

    name = "job"
    period = 2.0

    def __init__(self, reader: Reader | None = None) -> None:
        self._reader = reader or (LinuxReader() if platform == "linux" else PsutilReader())
        self._directory = Directory()
        self._host = Subject("host", "")
        self._root: int | None = None
        self._members: dict[int, Member] = {}
        self._pids: set[int] = set()
        self._cpu_seconds, self._read_bytes, self._written_bytes = Rising(), Rising(), Rising()
        self._counts_io = False
        self._cores_at: float | None = None
        self._cpu_seconds_before = 0.0

    def watch(self, pid: int) -> None:
        """The command has started; until then there is nothing to read."""
        self._root = pid

    def read(self) -> Iterator[Sample]:
        if self._root is None:
            return
        now = time.monotonic()
        for _ in range(_ATTEMPTS):
            if self._survey(self._root):
                break
        first = self._cores_at is None
        seconds = now - (self._cores_at or now)
        yield Sample(self._host, self._together(seconds))
        for member in self._busiest():
            yield Sample(self._subject(member), _alone(member, seconds))
        if first or seconds >= SHORTEST_SECONDS:
            self._cores_at = now
            self._cpu_seconds_before = self._cpu_seconds.total
            for member in self._members.values():
                member.cpu_seconds_before = member.stat.cpu_seconds

    def close(self) -> None:
        pass

    def _survey(self, root: int) -> bool:
        """Look at every process of the job, and for new ones among the pids that were not there before.

        False when one ended meanwhile: its parent may have been read before it inherited.
        """
        pids = set(psutil.pids()) - {os.getpid()}  # a program that calls pulsetrain.init has us for a child
        new, first = pids - self._pids, not self._pids
        self._pids = pids
        complete = True
        members: dict[int, Member] = {}  # parents before children
        for pid, member in self._members.items():
            if pid not in pids:
                continue
            if self._look(member):
                members[pid] = member
            else:
                complete = False
                pids.remove(pid)  # who bears it now, or later, is new
        stats = {pid: stat for pid in new if (stat := self._reader.stat(pid))}
        while found := [pid for pid, stat in stats.items() if stat.parent_pid in members or (first and pid == root)]:
            for pid in found:
                member = Member(pid, stats.pop(pid))
                if self._look(member):
                    members[pid] = member
        self._members = members
        return complete

    def _look(self, member: Member) -> bool:
        """False when the process is gone, or its pid is another's by now."""
        stat = self._reader.stat(member.pid)
        if stat is None or stat.started != member.stat.started:
            return False
        try:
            io = self._reader.io(member.pid)
        except ProcessLookupError:
            return False
        member.stat = stat
        member.io = io or member.io  # it may become unreadable; what it did before stays
        return True

    def _together(self, seconds: float) -> dict[str, Value]:
        stats = [member.stat for member in self._members.values()]
        running = [stat for stat in stats if not stat.ended]
        cpu_seconds = self._cpu_seconds.advance(sum(stat.cpu_seconds + stat.waited_cpu_seconds for stat in stats))
        values: dict[str, Value] = {
            "job_processes": len(running),
            "job_threads": sum(stat.threads for stat in running),
            "job_memory_bytes": sum(stat.memory_bytes for stat in running),
            "job_cpu_seconds": round(cpu_seconds, 2),
        }
        if seconds >= SHORTEST_SECONDS:
            values["job_cpu_cores"] = round((cpu_seconds - self._cpu_seconds_before) / seconds, 4)
        ios = [member.io for member in self._members.values() if member.io]
        self._counts_io |= bool(ios)
        if self._counts_io:
            values["job_read_bytes"] = self._read_bytes.advance(sum(io.read_bytes for io in ios))
            values["job_written_bytes"] = self._written_bytes.advance(sum(io.written_bytes for io in ios))
        return values

    def _busiest(self) -> list[Member]:
        running = [member for member in self._members.values() if not member.stat.ended]
        running.sort(key=lambda m: (m.stat.cpu_seconds - m.cpu_seconds_before, m.stat.memory_bytes), reverse=True)
        return running[:MOST_LINES]

    def _subject(self, member: Member) -> Subject:
        who = self._directory.who(member.pid, member.stat.started)
        if member.subject is None or who != member.who:
            member.who = who
            member.subject = Subject("process", str(member.pid), {"pid": member.pid, **who._asdict()})
        return member.subject


def _alone(member: Member, seconds: float) -> dict[str, Value]:
    stat = member.stat
    values: dict[str, Value] = {
        "cpu_seconds": round(stat.cpu_seconds, 2),
        "memory_bytes": stat.memory_bytes,
        "threads": stat.threads,
    }
    if seconds >= SHORTEST_SECONDS:
        values["cpu_cores"] = round((stat.cpu_seconds - member.cpu_seconds_before) / seconds, 4)
    if member.io:
        values["read_bytes"], values["written_bytes"] = member.io
    return values


class LinuxReader:
    """Reads /proc by hand, at a fourth of psutil's cost: a job may have a hundred processes."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._counts_io = (proc / "self/io").exists()
        self._io = re.compile(rb"^read_bytes: (\d+)\nwrite_bytes: (\d+)$", re.MULTILINE)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def stat(self, pid: int) -> Stat | None:
        try:
            line = _contents(f"{self._proc}/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return None
        field = line[line.rindex(b")") + 2 :].split()  # from the third on: the name before them may hold anything
        return Stat(
            parent_pid=int(field[1]),
            started=int(field[19]),
            ended=field[0] in b"ZX",
            cpu_seconds=(int(field[11]) + int(field[12])) / self._ticks,
            waited_cpu_seconds=(int(field[13]) + int(field[14])) / self._ticks,
            memory_bytes=int(field[21]) * self._page_bytes,
            threads=int(field[17]),
        )

    def io(self, pid: int) -> Io | None:
        if not self._counts_io:
            return None
        try:
            found = self._io.search(_contents(f"{self._proc}/{pid}/io"))
        except PermissionError:  # another user's, as a setuid program is
            return None
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        return Io(int(found[1]), int(found[2])) if found else None


def _contents(file: str) -> bytes:
    """Of a small file, in a third of the time that Path.read_bytes takes."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


class PsutilReader:
    """For every other platform."""

    def stat(self, pid: int) -> Stat | None:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                ended = process.status() == psutil.STATUS_ZOMBIE
                times = process.cpu_times()
                return Stat(
                    parent_pid=process.ppid(),
                    started=process.create_time(),
                    ended=ended,
                    cpu_seconds=times.user + times.system,
                    waited_cpu_seconds=times.children_user + times.children_system,
                    memory_bytes=0 if ended else process.memory_info().rss,
                    threads=1 if ended else process.num_threads(),
                )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None

    def io(self, pid: int) -> Io | None:
        if not hasattr(psutil.Process, "io_counters"):  # macOS
            return None
        try:
            io = psutil.Process(pid).io_counters()
        except (psutil.AccessDenied, psutil.ZombieProcess):
            return None
        except psutil.NoSuchProcess:
            raise ProcessLookupError(pid) from None
        return Io(io.read_bytes, io.write_bytes)

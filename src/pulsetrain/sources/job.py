"""The watched command: its processes, and what they use together."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from pulsetrain import catalog
from pulsetrain.catalog import HOST
from pulsetrain.snapshot import Sample, Subject, Value
from pulsetrain.sources.host import SHORTEST_SECONDS
from pulsetrain.sources.process_reader import ProcessIo, ProcessReader, ProcessStat, process_reader
from pulsetrain.sources.processes import ProcessDirectory, ProcessIdentity

MOST_LINES = 64
"""Of more processes the busiest have a line of their own, then the largest; the sums count all."""

_ATTEMPTS = 3


@dataclass
class JobProcess:
    """A process of the job."""

    pid: int
    stat: ProcessStat
    io: ProcessIo | None = None
    cpu_seconds_before: float = 0.0
    """When cores were last worked out; 0 for a process that has come since."""
    who: ProcessIdentity | None = None
    subject: Subject | None = None


class RisingTotal:
    """A sum that never falls: what vanishes from it is kept. With `from_now`, its first value counts as nothing."""

    def __init__(self, *, from_now: bool = False) -> None:
        self.total: float = 0
        self._kept: float = 0
        self._from_now = from_now

    def advance(self, sum: float) -> float:
        if self._from_now:
            self._from_now = False
            self._kept = -sum
        self._kept += max(0, self.total - self._kept - sum)
        self.total = self._kept + sum
        return self.total


class Job:
    """The command that `watch` names, and all that descends from it. What once belongs to it stays, as daemons do.

    A process that is waited for leaves its CPU time and I/O to its parent; what the others leave is kept here.
    """

    name = "job"
    period = 2.0

    def __init__(
        self,
        reader: ProcessReader | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        from_now: bool = False,
    ) -> None:
        """With `from_now`, the CPU time and I/O of a process that has run before count from the first reading."""
        self._clock = clock
        self._reader = reader or process_reader()
        self._directory = ProcessDirectory()
        self._root: int | None = None
        self._collect: Callable[[], int | None] | None = None
        self._members: dict[int, JobProcess] = {}
        self._pids: set[int] = set()
        self._cpu_seconds, self._read_bytes, self._written_bytes = (RisingTotal(from_now=from_now) for _ in range(3))
        self._counts_io = False
        self._cores_at: float | None = None
        self._cpu_seconds_before = 0.0

    def watch(self, pid: int) -> None:
        """The command has started; until then there is nothing to read."""
        self._root = pid

    def end(self, collect: Callable[[], int | None]) -> None:
        """The command has ended. `collect` is called once its counters are read, and gives its memory peak in bytes."""
        self._collect = collect

    def read(self) -> Iterator[Sample]:
        if self._root is None:
            return
        collect, self._collect = self._collect, None  # before the look: what has ended by now is looked at whole
        now = self._clock()
        for _ in range(_ATTEMPTS):
            if self._survey(self._root):
                break
        first = self._cores_at is None
        seconds = now - (self._cores_at or now)
        values = self._together(seconds)
        if collect and (peak := collect()) is not None:
            values["job_memory_peak_bytes"] = peak
        yield Sample(HOST, values)
        for member in self._busiest():
            yield Sample(self._subject(member), self._alone(member, seconds))
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
        members: dict[int, JobProcess] = {}  # parents before children
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
                member = JobProcess(pid, stats.pop(pid))
                if self._look(member):
                    members[pid] = member
        self._members = members
        return complete

    def _look(self, member: JobProcess) -> bool:
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

    def _busiest(self) -> list[JobProcess]:
        running = [member for member in self._members.values() if not member.stat.ended]
        running.sort(key=lambda m: (m.stat.cpu_seconds - m.cpu_seconds_before, m.stat.memory_bytes), reverse=True)
        return running[:MOST_LINES]

    def _subject(self, member: JobProcess) -> Subject:
        who = self._directory.who(member.pid, member.stat.started)
        if member.subject is None or who != member.who:
            member.who = who
            member.subject = catalog.subject("process", {"pid": member.pid, **who._asdict()})
        return member.subject

    def _alone(self, member: JobProcess, seconds: float) -> dict[str, Value]:
        stat = member.stat
        values: dict[str, Value] = {
            "cpu_seconds": round(stat.cpu_seconds, 2),
            "memory_bytes": stat.memory_bytes,
            "threads": stat.threads,
            "start_time_seconds": round(self._reader.start_time(stat), 1),
        }
        if seconds >= SHORTEST_SECONDS:
            values["cpu_cores"] = round((stat.cpu_seconds - member.cpu_seconds_before) / seconds, 4)
        if member.io:
            values["read_bytes"], values["written_bytes"] = member.io
        return values

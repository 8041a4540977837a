"""Keeps what a training process reports, at next to no cost to it, in a file of its own.

A report is appended to memory. A background thread turns batches into JSON lines and writes them, twice a second.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

FLUSH_SECONDS = 0.5
MOST_REPORTS = 50_000
"""Held in memory when the disk does not follow; beyond that, old detail is thinned."""
BATCH_REPORTS = 4096
SEGMENT_BYTES = 64 * 2**20

CORE_FIELDS = (
    "step",
    "epoch",
    "loss",
    "learning_rate",
    "gradient_norm",
    "throughput_samples_per_sec",
    "memory_allocated_mb",
    "memory_reserved_mb",
)
"""Stand in every line about a step, null where nothing is known, so that scripts for the older tools keep working."""

_PLAIN = frozenset({float, int})
_INFINITY = float("inf")
_EXACT = 1e12
_SPELLING = {_INFINITY: "inf", -_INFINITY: "-inf"}

Report = tuple[float, dict[str, Any]]


class Pending:
    """A value that is not known yet, such as one on its way from a GPU."""

    def ready(self) -> bool:
        raise NotImplementedError

    def value(self) -> Any:
        """The number; only asked when ready, or at the very end, when waiting is allowed."""
        raise NotImplementedError


class Recorder:
    """Takes reports from any thread; writes them to `training_metrics_<stamp>[.rankN][.pidP].jsonl` in a folder."""

    def __init__(
        self, folder: str, stamp: str, started: float, rank: int = 0, about: Mapping[str, Any] | None = None
    ) -> None:
        self._folder = folder
        self._stamp = stamp
        self._started = started
        """On the monotonic clock, the same for all processes of this machine."""
        self._rank = rank
        self._about = dict(about or {})
        self._warned: set[str] = set()
        self._closed = False
        self._begin()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        self.reports: deque[Report] = deque()
        self._pid = os.getpid()
        self._dropped = 0
        self._awaits = False
        """Whether any value was ever on its way when it was reported."""
        self._encoder = _Encoder(self._started, self._rank)
        self._file: _File | None = None
        self._continues = ""
        self._thread: threading.Thread | None = None
        self._flushing = threading.Lock()
        self._starting = threading.Lock()
        self._wake = threading.Event()

    def add(self, fields: dict[str, Any], now: Callable[[], float] = time.monotonic) -> None:
        """Take a report; the dictionary is ours from here on. Costs about a microsecond and never raises."""
        if not _PLAIN.issuperset(map(type, fields.values())):
            fields = self._settled(fields)
        reports = self.reports
        reports.append((now(), fields))
        if self._thread is None or len(reports) > MOST_REPORTS:
            self._start_thread()
            self._thin()

    def note(self, event: str, message: str, severity: str = "info", **details: Any) -> None:
        """Something worth telling beside the figures; it becomes an event of the run."""
        self.add({"event": event, "severity": severity, "message": message, **details})

    def note_once(self, event: str, message: str, severity: str = "info") -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.note(event, message, severity)

    def flush(self, *, wait: bool = False) -> None:
        """Write what there is; `wait` also for values that are still on their way."""
        with self._flushing:
            while self._flush_batch(wait):
                pass

    def close(self) -> None:
        """Write everything, and take nothing more."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)
        self.flush(wait=True)
        if self._file is not None:
            self._file.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def _settled(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The same with plain numbers, or with values that are on their way. What is None or no number is left out."""
        if "event" in fields:
            return fields
        settled: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None:
                continue
            if type(value) in _PLAIN or (type(value) is str and name in _TEXT_FIELDS):
                settled[name] = value
                continue
            try:
                settled[name] = settled_value = number(value)
                self._awaits |= isinstance(settled_value, Pending)
            except Exception as error:  # the value's own code runs here, and nothing of it may reach the training loop
                self._complain(name, value, error)
        return settled

    def _complain(self, name: str, value: Any, error: Exception) -> None:
        if name not in self._warned:
            self._warned.add(name)
            what = "%s.%s" % (type(value).__module__, type(value).__qualname__)
            warnings.warn(
                "pulsetrain: %r is not a number but %s (%s); it is not recorded." % (name, what, error), stacklevel=4
            )

    def _start_thread(self) -> None:
        with self._starting:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="pulsetrain-recorder", daemon=True)
                self._thread = thread
                thread.start()

    def _run(self) -> None:
        pid = self._pid
        while not self._closed and pid == self._pid:
            self._wake.wait(FLUSH_SECONDS)
            try:
                self.flush()
            except Exception as error:  # a fault of ours must not print tracebacks into the training's output
                self._complain("recorder", self, error)

    def _thin(self) -> None:
        """Forget every second of the older half, when there are too many."""
        if len(self.reports) <= MOST_REPORTS:
            return
        with self._flushing:
            older = [self.reports.popleft() for _ in range(len(self.reports) // 2)]
            kept = [report for number, report in enumerate(older) if number % 2 or "event" in report[1]]
            self._dropped += len(older) - len(kept)
            self.reports.extendleft(reversed(kept))

    def _flush_batch(self, wait: bool) -> bool:
        """Write a batch of reports; True when there may be more to write."""
        taken = self._take(wait)
        dropped, self._dropped = self._dropped, 0
        if dropped:
            taken.append((time.monotonic(), _dropped_note(dropped)))
        if not taken:
            return False
        try:
            self._write(self._encoder.lines(taken))
        except OSError:  # the disk is full or away: keep them for the next time
            self._dropped += dropped
            self.reports.extendleft(reversed(taken[:-1] if dropped else taken))
            return False
        return len(taken) >= BATCH_REPORTS

    def _take(self, wait: bool) -> list[Report]:
        """The reports up to the first that holds a value still on its way."""
        taken: list[Report] = []
        reports = self.reports
        for _ in range(min(len(reports), BATCH_REPORTS)):
            fields = reports[0][1]
            if self._awaits and not _PLAIN.issuperset(map(type, fields.values())):
                pending = {name: value for name, value in fields.items() if isinstance(value, Pending)}
                if not wait and not all(value.ready() for value in pending.values()):
                    break
                fields.update((name, value.value()) for name, value in pending.items())
            taken.append(reports.popleft())
        return taken

    def _write(self, data: bytes) -> None:
        if self._file is not None and self._file.size >= SEGMENT_BYTES:
            self._file.close()
            self._continues, self._file = self._file.name, None
            self._stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime())
        if self._file is None:
            self._file = _File(self._folder, self._stamp, self._rank)
        if self._file.size == 0:
            data = self._encoder.lines([(time.monotonic(), self._head())]) + data
        self._file.write(data)

    def _head(self) -> dict[str, Any]:
        """The first line of a file: who writes it, and which one it continues. That one may be sealed."""
        head = {"event": "training_process", "severity": "info", "message": "records", "pid": self._pid, **self._about}
        return {**head, "continues": self._continues} if self._continues else head

    def _after_fork(self) -> None:
        # A child has its own file and thread, made when it first reports: most children never do.
        self._begin()


def _dropped_note(count: int) -> dict[str, Any]:
    message = "%d reports were dropped: the disk did not follow" % count
    return {"event": "reports_dropped", "severity": "warning", "message": message, "dropped_reports": count}


_TEXT_FIELDS = frozenset({"phase", "training"})


def number(value: Any) -> Any:
    """A plain number, or a Pending, from what frameworks call a scalar. Raises for everything else."""
    if isinstance(value, Pending):
        return value
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "torch" or hasattr(value, "is_cuda"):
        return _torch_number(value)
    if module in ("jaxlib", "jax", "tensorflow"):
        return _Immutable(value)  # asking now would wait for the device
    if kind is str or isinstance(value, (str, bytes)):
        raise TypeError("text")
    plain = value.item() if hasattr(value, "item") else value
    return int(plain) if isinstance(plain, (bool, int)) else float(plain)


def _torch_number(value: Any) -> Any:
    if value.numel() != 1:
        raise TypeError("%d values" % value.numel())
    if value.device.type == "cpu":
        plain = value.item()
        return int(plain) if isinstance(plain, bool) else plain
    return _OnGpu(value.detach())


class _Immutable(Pending):
    """An array of a framework whose arrays never change: asked by the background thread."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def ready(self) -> bool:
        is_ready = getattr(self._array, "is_ready", None)
        return bool(is_ready()) if callable(is_ready) else True

    def value(self) -> Any:
        return float(self._array)


class _OnGpu(Pending):
    """A tensor on a GPU: copied to pinned memory without waiting, read when the copy is done."""

    def __init__(self, tensor: Any) -> None:
        torch = sys.modules["torch"]
        self._copy = torch.empty((), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._copy.copy_(tensor.reshape(()), non_blocking=True)
        self._event = torch.cuda.Event() if tensor.is_cuda else None
        if self._event is not None:
            self._event.record()

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def value(self) -> Any:
        if self._event is not None:
            self._event.synchronize()
        return self._copy.item()


class _Encoder:
    """JSON lines, by a template for each set of fields: several times faster than `json` for short lines of numbers."""

    def __init__(self, started: float, rank: int) -> None:
        self._started = started
        self._rank = rank
        self._templates: dict[tuple[str, ...], tuple[str, str]] = {}
        self._second = -1
        self._second_text = ""

    def lines(self, reports: list[Report]) -> bytes:
        to_wall_clock = time.time() - time.monotonic()
        return "".join([self._line(at, fields, at + to_wall_clock) for at, fields in reports]).encode()

    def _line(self, at: float, fields: dict[str, Any], wall: float) -> str:
        second = int(wall)
        if second != self._second:
            self._second, self._second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        names = tuple(fields)
        quick, careful = self._templates.get(names) or self._template(names)
        head = (self._second_text, (wall - second) * 1000, at - self._started)
        try:
            # Of numbers only, all finite, and so small that twelve digits hold the whole ones.
            if -_EXACT < sum(fields.values()) < _EXACT:
                return quick % (*head, *fields.values())
        except TypeError:
            pass  # text among them
        line = careful % (*head, *map(_json, fields.values()))
        odd = {name: _SPELLING.get(v, "nan") for name, v in fields.items() if type(v) is float and v - v != 0.0}
        # JSON has no NaN: the field is null, and what it was stands beside it.
        return '%s,"nonfinite":%s}\n' % (line[:-2], json.dumps(odd)) if odd else line

    def _template(self, names: tuple[str, ...]) -> tuple[str, str]:
        if len(self._templates) > 1000:  # names made up on the fly must not fill the memory
            self._templates.clear()
        head = '{"timestamp":"%%s.%%03dZ","elapsed_seconds":%%.6f,"rank":%d' % self._rank
        absent = [name for name in CORE_FIELDS if name not in names] if "step" in names else []
        tail = "".join(',"%s":null' % name for name in absent) + "}\n"
        quoted = [json.dumps(name).replace("%", "%%") for name in names]
        quick = "".join(",%s:%%.12g" % name for name in quoted)
        careful = "".join(",%s:%%s" % name for name in quoted)
        self._templates[names] = head + quick + tail, head + careful + tail
        return self._templates[names]


def _json(value: Any) -> str:
    if type(value) is float and value - value != 0.0:
        return "null"
    return json.dumps(value, default=str)


class _File:
    """One file of lines, whole ones only: what a failed write leaves is cut off."""

    def __init__(self, folder: str, stamp: str, rank: int) -> None:
        self.name, self._descriptor = self._open(folder, stamp, rank)
        self.size = 0

    @staticmethod
    def _open(folder: str, stamp: str, rank: int) -> tuple[str, int]:
        os.makedirs(folder, exist_ok=True)
        stem = "training_metrics_%s%s" % (stamp, ".rank%d" % rank if rank else "")
        names = itertools.chain(
            ["", ".pid%d" % os.getpid()], (".pid%d_%d" % (os.getpid(), n) for n in itertools.count(2))
        )
        for name in names:
            path = os.path.join(folder, stem + name)
            try:
                descriptor = os.open(path + ".jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue
            if not os.path.exists(path + ".parquet"):
                return stem + name + ".jsonl", descriptor
            os.close(descriptor)  # the name is that of a sealed segment
            os.unlink(path + ".jsonl")
        raise AssertionError("unreachable")

    def write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            self.size += written
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

"""Runs in a process of its own on the simulated NVML: executes a test's snippet, and prints its `answer` as JSON.

The snippet comes on standard input and finds all the names of this file. Its argument is the second of the scenario
at which time is held: it passes only where the snippet says so, or sleeps. Without one, it passes as it does.
"""

import ctypes
import json
import os  # noqa: F401 - for snippets
import sys
import time
from typing import Any

import pynvml
from tests.nvml.clock import Clock

from pulsetrain import catalog
from pulsetrain.errors import PulsetrainError
from pulsetrain.snapshot import Event
from pulsetrain.sources import Options, Source
from pulsetrain.sources.nvidia import open_sources

Reading = dict[str, list[dict[str, Any]]]

if len(sys.argv) > 1:
    clock = Clock(float(sys.argv[1]))
    epoch, until = clock.epoch, clock.until


def opened(gpus: str | None = None) -> dict[str, Source]:
    """The NVIDIA sources by name."""
    return {source.name: source for source in open_sources(Options(gpus=gpus))}


def refusal(gpus: str | None = None) -> dict[str, str | None]:
    """What a user reads when the sources cannot be opened."""
    try:
        opened(gpus)
    except PulsetrainError as error:
        return {"error": type(error).__name__, "message": error.message, "still": error.still, "hint": error.hint}
    raise AssertionError("the sources were opened")


def read(source: Source) -> Reading:
    """One reading: its lines and its events, each with its labels or details beside its values."""
    found: Reading = {"lines": [], "events": []}
    for item in source.read():
        if isinstance(item, Event):
            found["events"].append({"kind": item.kind, "message": item.message, **item.details})
        else:
            assert list(catalog.undeclared(item)) == []
            found["lines"].append({**item.subject.labels, **item.values})
    return found


def lines(source: Source) -> list[dict[str, Any]]:
    return read(source)["lines"]


def events(source: Source) -> list[dict[str, Any]]:
    return read(source)["events"]


def merged(sources: dict[str, Source], table: str = "gpu") -> list[dict[str, Any]]:
    """What two readings of all sources tell of each subject of a table, put together as the sampler does."""
    found: dict[str, dict[str, Any]] = {}
    for source in [*sources.values()] * 2:
        time.sleep(0.01)
        for item in source.read():
            if not isinstance(item, Event) and item.subject.table == table:
                found.setdefault(item.subject.key, {**item.subject.labels}).update(item.values)
    return [*found.values()]


def calls(function: str) -> int:
    """How often this process has called an NVML function."""
    count = pynvml.nvmlLib.pulsetrain_test_calls
    count.restype = ctypes.c_ulonglong
    return int(count(function.encode()))


def watch(second: float, *sources: Source) -> list[list[Reading]]:
    """Read sources in turn until a second of the scenario; for each of them, its readings."""
    readings: list[list[Reading]] = [[] for _ in sources]
    while clock.second < second:
        for number, source in enumerate(sources):
            readings[number].append(read(source))
        time.sleep(0.1)
    return readings


if __name__ == "__main__":
    exec(compile(sys.stdin.read(), "snippet", "exec"))
    json.dump(globals()["answer"], sys.stdout)

"""A week in which everything fails now and then: what is not bad is all there, and the counts are right."""

import json
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_SECONDS

from pulsetrain.live import Live
from pulsetrain.runs.writer import Writer
from pulsetrain.sampler import Consumer, Sampler, SamplerClock
from pulsetrain.snapshot import Event, Sample, Snapshot, Subject, Value
from pulsetrain.supervise import Supervisor

TICKS = 1000
INTERVAL_SECONDS = 600.0
GPUS = [Subject("gpu", f"GPU-{n}", {"gpu_index": n, "uuid": f"GPU-{n}", "name": "L4"}) for n in range(4)]
BAD: list[Value] = [object(), 3j, "\udce9"]  # type: ignore[list-item]


class Hurried(SamplerClock):
    """Time that passes only when the sampler waits, and then at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return 1.8e9 + self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return stop.is_set()


class Machine:
    """Every reading of a GPU has a number of its own; some cannot be written."""

    name, period = "machine", None

    def __init__(self, dice: random.Random) -> None:
        self.good: set[float] = set()
        self.bad: set[float] = set()
        self._dice = dice

    def read(self) -> Iterator[Sample]:
        for gpu in GPUS:
            number = float(len(self.good) + len(self.bad))
            is_bad = self._dice.random() < 0.05
            (self.bad if is_bad else self.good).add(number)
            broken: dict[str, Value] = {"performance_state": self._dice.choice(BAD)} if is_bad else {}
            yield Sample(gpu, {"up": 1, "power_draw_watts": number, **broken})

    def close(self) -> None:
        pass


class Flaky:
    """A source that fails now and then."""

    name, period = "flaky", None

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def read(self) -> Iterator[Event]:
        if self._dice.random() < 0.2:
            raise OSError("it fails")
        yield Event("flaky", "it works")

    def close(self) -> None:
        pass


class Failing:
    """A consumer that raises on some snapshots, and hands on the others."""

    def __init__(self, name: str, consumer: Consumer, dice: random.Random) -> None:
        self.__qualname__ = name
        self.missed: list[Snapshot] = []
        self._consumer = consumer
        self._dice = dice

    def __call__(self, snapshot: Snapshot) -> None:
        if self._dice.random() < 0.1:
            self.missed.append(snapshot)
            raise ValueError(f"{self.__qualname__} fails")
        self._consumer(snapshot)


def numbers(snapshots: list[Snapshot]) -> set[float]:
    found = (sample.values["power_draw_watts"] for s in snapshots for sample in s.samples if sample.subject in GPUS)
    return {number for number in found if isinstance(number, float)}


@pytest.mark.parametrize("seed", range(3))
def test_what_fails_now_and_then_costs_itself_alone_and_is_counted(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    supervisor = Supervisor()
    machine = Machine(dice)
    writer = Writer(tmp_path, datetime.now(UTC), supervisor=supervisor)
    live, seen, all_seen = Live(), list[Snapshot](), list[Snapshot]()
    failing = [Failing("record", writer, dice), Failing("view", live, dice), Failing("list", seen.append, dice)]
    sampler = Sampler(
        [machine, Flaky(random.Random(seed))],
        INTERVAL_SECONDS,
        [*failing, all_seen.append],
        Hurried(),
        supervisor=supervisor,
    )
    sampler.run(TICKS)
    assert writer.close(timeout_seconds=PATIENCE_SECONDS)
    sampler.stop()
    record, view, listed = failing

    everything = machine.good | machine.bad
    assert len(everything) == len(GPUS) * TICKS
    assert numbers(all_seen) == everything
    assert len(seen) + len(listed.missed) == len(all_seen)

    lines = [json.loads(line) for file in tmp_path.glob("gpu_*") for line in file.read_text().splitlines()]
    written = [line["power_draw_watts"] for line in lines]
    never_came = numbers(record.missed)
    assert sorted(written) == sorted(machine.good - never_came)
    assert writer.lost_samples == len(machine.bad - never_came)

    skipped = {part.name: part.skipped_items for part in supervisor.health()}
    assert skipped["writer"] == writer.lost_samples > 0
    assert {consumer.__qualname__: skipped[consumer.__qualname__] for consumer in failing} == {
        consumer.__qualname__: len(consumer.missed) for consumer in failing
    }
    assert skipped["sampler"] == skipped["append"] == 0
    assert view.missed and len(list(live.table("gpu"))) == len(GPUS)

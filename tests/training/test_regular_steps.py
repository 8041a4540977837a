"""Steps that are handled all at once make the lines that they make event by event."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsetrain.training.amounts import Amounts
from pulsetrain.training.batches import DataPass
from pulsetrain.training.encoder import LineEncoder, Report
from pulsetrain.training.loop import Loop
from pulsetrain.training.recorder import Recorder
from pulsetrain.training.step_lines import ExpectedFlops

Line = dict[str, Any]
Event = tuple[Any, ...]


class KeptReports(Recorder):
    """Keeps reports instead of writing them."""

    def __init__(self) -> None:
        super().__init__("nowhere", "0", 0.0)
        self.kept: list[Report] = []

    def add(self, fields: dict[str, Any], now: Callable[[], float] = lambda: 0.0) -> None:
        self.kept.append((0.0, self._settled(fields)))

    def add_text(self, at: float, text: str) -> None:
        self.kept.append((0.0, text))

    def take_lines(self) -> list[Line]:
        """Those of the reports so far, without what a line says of itself."""
        kept, self.kept = self.kept, []
        text = LineEncoder(0.0, 0).lines(kept, lambda what, why: pytest.fail(why)).decode()
        itself = ("timestamp", "elapsed_seconds", "rank")
        return [{k: v for k, v in json.loads(line).items() if k not in itself} for line in text.splitlines()]

    @property
    def texts(self) -> int:
        return sum(isinstance(fields, str) for _, fields in self.kept)


KEPT = KeptReports()


class Training:
    """Makes the events that hooks note, on a clock of its own."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.time = 1000.0
        self.data_pass = DataPass(20)
        self.sizes: Amounts = (8, None, None)

    def at(self, seconds: float) -> float:
        self.time += seconds
        return self.time

    def batch(self, tick: float) -> Iterator[Event]:
        requested = self.at(tick)
        yield self.loop.batch_ready, self.at(tick), self.sizes, self.data_pass, requested

    def backward(self, tick: float, loss: Any = 0.5) -> Iterator[Event]:
        yield self.loop.backward_begin, self.at(tick), loss, 1.0
        yield self.loop.backward_end, self.at(2 * tick)

    def update(self, tick: float, key: int = 1, rate: Any = 0.1) -> Iterator[Event]:
        yield self.loop.optimizer_begin, self.at(tick), key
        yield self.loop.optimizer_end, self.at(tick), key, rate

    def norm(self, key: int | None = None, value: Any = 1.25) -> Iterator[Event]:
        yield self.loop.add_gradient_norm, 0.0, value, key

    def events(self, what: str, tick: float) -> Iterator[Event]:
        """Of a step that is not like the others, or of something between two steps."""
        if what != "without a batch":
            yield from self.batch(tick)
        if what == "a second batch":
            yield from self.batch(tick)
        yield from self.backward(tick, {"NaN": math.nan, "no loss": None, "a whole number": 1}.get(what, tick))
        if what == "a second pass":
            yield from self.backward(tick)
        if what in ("clipped", "clipped to infinity"):
            yield from self.norm(value=math.inf if "infinity" in what else 1.25)
        if what == "collected":
            yield self.loop.spans.part, self.at(tick), "gc", self.time - tick / 2
        if what == "skipped":
            yield self.loop.updates.update_skipped, self.at(tick), 1
            return
        begin, end = self.update(tick, key=2 if what == "another optimizer" else 1, rate=None if "no" in what else 0.1)
        yield begin
        if what == "measured":
            yield from self.norm(key=1)
        yield end
        if what == "two optimizers":
            yield from self.update(tick, key=2)
        yield from self.between(what, tick)

    def between(self, what: str, tick: float) -> Iterator[Event]:
        if what == "a new pass":
            yield self.loop.evaluations.batches_ended, self.at(tick), self.data_pass
            self.data_pass = DataPass(None if tick > 1 else 20)
        if what == "tokens":
            self.sizes = (8, 100, 3)
        if what == "validated":
            yield self.loop.evaluations.switched, self.at(tick), 7, False
            yield self.loop.evaluations.switched, self.at(tick), 7, True
        if what == "in a phase":
            yield self.loop.spans.phase, self.at(tick), "checkpoint", self.time - tick / 2


KINDS = (
    *("regular", "without a batch", "a second batch", "NaN", "no loss", "a whole number", "a second pass", "clipped"),
    *("clipped to infinity", "collected", "skipped", "another optimizer", "measured", "two optimizers", "a new pass"),
    *("tokens", "validated", "in a phase"),
)
TICKS = st.sampled_from([0.0, 0.001, 0.25, 3.0])
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), TICKS, st.integers(1, 3)), max_size=12)


def events_of(loop: Loop, steps: list[tuple[str, float, int]]) -> list[Event]:
    training = Training(loop)
    return [event for what, tick, times in steps for _ in range(times) for event in training.events(what, tick)]


def lines_of(steps: list[tuple[str, float, int]], *, flops: bool, at_once: bool) -> list[Line]:
    loop = Loop(KEPT)
    if flops:
        loop.handle(loop.lines.expect_flops, ExpectedFlops(1e9, per_sample=1e3))
    for event in events_of(loop, steps):
        loop.note(event)
        if not at_once:
            loop.catch_up()
    loop.finish()
    return KEPT.take_lines()


@settings(deadline=None)
@given(STEPS, st.booleans())
def test_events_make_the_same_lines_all_at_once_and_one_by_one(
    steps: list[tuple[str, float, int]], flops: bool
) -> None:
    at_once = lines_of(steps, flops=flops, at_once=True)
    one_by_one = lines_of(steps, flops=flops, at_once=False)
    assert at_once == one_by_one


@pytest.mark.parametrize("what", ["regular", "clipped", "no loss", "tokens"])
def test_steps_like_the_one_before_are_handled_all_at_once(what: str) -> None:
    KEPT.take_lines()
    loop = Loop(KEPT)
    for event in events_of(loop, [("regular", 0.001, 3), (what, 0.001, 50)]):
        loop.note(event)
    loop.catch_up()
    assert KEPT.texts == 51  # it takes two steps to know what a step is
    assert [line["step"] for line in KEPT.take_lines()] == [*range(1, 54)]

"""The training loop of this process: where hooks and callbacks report what happens in it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from functools import partial
from typing import Any, Callable

from pulsetrain.training import process
from pulsetrain.training.batches import BatchTracker
from pulsetrain.training.ending import before_end
from pulsetrain.training.evaluation import EvaluationTracker
from pulsetrain.training.phases import PhaseTracker
from pulsetrain.training.recorder import Recorder
from pulsetrain.training.regular_steps import RegularSteps
from pulsetrain.training.span_tracker import SpanTracker
from pulsetrain.training.step_lines import StepLines
from pulsetrain.training.threads import start_thread
from pulsetrain.training.timing import StepTiming
from pulsetrain.training.updates import UpdateGrouping
from pulsetrain.training.values import ValueReader

TYPE_CHECKING = False  # as type checkers know it; these names are newer than Python 3.9
if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, Protocol, TypeVarTuple, Unpack

    P = ParamSpec("P")
    Ts = TypeVarTuple("Ts")

    class Note(Protocol):
        """Takes a handler, and all that it is to be called with."""

        def __call__(self, event: tuple[Callable[[float, Unpack[Ts]], None], float, Unpack[Ts]], /) -> None: ...


CATCH_UP_SECONDS = 0.25
MOST_EVENTS = 50_000


class Loop:
    """Takes events from any thread and has its parts handle them in order.

    The handler of an event is a method of one of its parts that takes its time first. Where
    every microsecond counts, events are only noted: `loop.note((loop.backward_end, now))`. Between two operations of
    a training no cache holds our code, and handling events there costs ten times what it costs to handle many at
    once: a thread catches up.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.perf_counter) -> None:
        self.recorder = recorder
        timing = StepTiming()
        self.batches = BatchTracker(timing)
        self.lines = StepLines(recorder, clock, timing, self.batches)
        self.phases = PhaseTracker(timing, self.batches, self.lines)
        self.evaluations = EvaluationTracker(self.batches, self.phases)
        self.updates = UpdateGrouping(timing, self.batches, self.lines, self.evaluations)
        self.spans = SpanTracker(timing, self.lines)
        self.values = ValueReader(clock)
        self._regular = regular = RegularSteps(clock, timing, self.batches, self.lines, self.evaluations, self.updates)
        # The handlers of every step, bound once: that costs more than to note an event.
        self.batch_ready, self.add_gradient_norm = regular.batch_ready, regular.add_gradient_norm
        self.backward_begin, self.backward_end = regular.backward_begin, regular.backward_end
        self.optimizer_begin, self.optimizer_end = regular.optimizer_begin, regular.optimizer_end
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS)
        self.note: Note = self._noted.append

    @property
    def step(self) -> int:
        """Number of the last step that was recorded."""
        return self.lines.step

    @property
    def measures_steps(self) -> bool:
        """Whether hooks or callbacks have reported a step, or are about to."""
        return self.lines.recorded or self.updates.in_step

    def catch_up(self) -> None:
        """Handle what was only noted."""
        with self._lock:
            self._catch_up()

    def _catch_up(self) -> None:
        noted = self._noted
        if len(noted) == MOST_EVENTS:
            self.recorder.skip("events", "Training loop events were lost: there were too many at once.")
        take = noted.popleft
        events = [take() for _ in range(len(noted))]
        place = 0
        while place < len(events):
            event = events[place]
            try:
                after = self._regular.handle(events, place)
                if after == place:
                    after = place + 1
                    event[0](*event[1:])
            except Exception as error:
                after = place + 1
                self._skip(event[0], error)
            place = after

    def _skip(self, handler: Callable[..., None], error: Exception) -> None:
        """One bad event does not stop the others."""
        name = getattr(handler, "__qualname__", repr(handler))
        message = "A training loop event was dropped: %s: %s: %s" % (name, type(error).__name__, error)
        self.recorder.skip(name, message)

    def handle(self, event: Callable[Concatenate[float, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Handle an event of this moment, after those that were only noted."""
        now = self._clock()
        with self._lock:
            self._catch_up()
            try:
                event(now, *args, **kwargs)
            except Exception as error:
                self._skip(event, error)

    def finish(self) -> None:
        """Record a step that is still open; what comes later is another training."""
        self.handle(self.updates.finish)


_loop: Loop | None = None
early: list[tuple[float, str, float]] = []
"""Phases before anything else of a training was seen: when each ended, its name, when it began."""


def current() -> Loop | None:
    """The training loop of this process; None when nobody records."""
    return _loop if _loop is not None else _make()


def existing() -> Loop | None:
    """The same, where something has been reported to it; it is not made."""
    return _loop


def finish() -> None:
    """Record what is open, and let the next use start over with the recorder of that time."""
    global _loop
    loop, _loop = _loop, None
    if loop is not None:
        loop.finish()


def _make() -> Loop | None:
    global _loop
    recorder = process.current()
    if recorder is not None and not recorder.closed:
        _loop = Loop(recorder)
        for phase in early:
            _loop.note((_loop.spans.phase, *phase))
        early.clear()
        before_end(finish)  # called before the recorder's own end, which was registered earlier
        if start_thread(partial(_keep_up, _loop), "pulsetrain-loop") is None:
            recorder.note_once("no_thread", "Cannot start a thread: the last steps are recorded at the end.")
    return _loop


def _keep_up(loop: Loop) -> None:
    while loop is _loop:
        time.sleep(CATCH_UP_SECONDS)
        loop.catch_up()
        loop.recorder.hurry()
        if loop.recorder.closed and loop is _loop:  # another may have begun meanwhile
            finish()


def _after_fork() -> None:
    global _loop
    _loop = None
    early.clear()


os.register_at_fork(after_in_child=_after_fork)

"""The training loop of this process: where hooks and callbacks tell what happens in it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Any, Callable

from pulsetrain.training import process
from pulsetrain.training import recorder as recorders
from pulsetrain.training.guard import guarded
from pulsetrain.training.recorder import Recorder
from pulsetrain.training.steps import Computed, Steps

DEVICE_READ_SECONDS = 0.1
"""Values that sit on a device are fetched from it this often, and not at every step."""
CATCH_UP_SECONDS = 0.25
MOST_EVENTS = 50_000


class Loop:
    """Takes events of any thread and hands them to `Steps` in their order.

    Where every microsecond counts, events are only noted, with `note((name of the event, its time, ...))`. Between two
    operations of a training no cache holds our code, and handling events there costs ten times what it costs to handle
    many at once: a thread catches up.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.perf_counter) -> None:
        self.recorder = recorder
        self.steps = Steps(recorder, clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS)
        self.note = self._noted.append
        self._read_at: dict[str, float] = {}

    @property
    def step(self) -> int:
        """Number of the last step that was recorded."""
        return self.steps.step

    def catch_up(self) -> None:
        """Handle what was only noted."""
        with self._lock:
            self._catch_up()

    def _catch_up(self) -> None:
        noted, steps = self._noted, self.steps
        while noted:
            event = noted.popleft()
            getattr(steps, event[0])(*event[1:])

    def _tell(self, event: Callable[..., None], *args: Any) -> None:
        now = self._clock()
        with self._lock:
            self._catch_up()
            event(now, *args)

    def batch_requested(self) -> None:
        """The program asks for the next batch."""
        self._tell(self.steps.batch_requested)

    def batch_ready(self, samples: int | None = None, tokens: int | None = None, source: Hashable = None) -> None:
        """It has the batch. `source` tells iterators apart: one that runs ahead is not taken for a validation."""
        self._tell(self.steps.batch_ready, samples, tokens, source)

    def batches_ended(self, source: Hashable = None) -> None:
        """There is no further batch."""
        self._tell(self.steps.batches_ended, source)

    def backward_begin(self) -> None:
        self._tell(self.steps.backward_begin)

    def backward_end(self) -> None:
        self._tell(self.steps.backward_end)

    def report_loss(self, value: Any, scale: float = 1.0, divided_by: float = 1.0) -> None:
        """The loss of a micro batch, a number or a tensor, is value x scale.

        `divided_by` is what the program seems to have divided it by. When that is the number of backward passes of
        the step, it was done for the accumulation and is taken back; otherwise it is part of the loss.
        """
        number = self.readable("loss", value)
        if number is not None:
            if scale != 1.0:
                number = (
                    Computed(lambda v: v * scale, number) if isinstance(number, recorders.Pending) else number * scale
                )
            self._tell(self.steps.report_loss, number, divided_by)

    def report_gradient_norm(self, value: Any) -> None:
        self._tell(self.steps.set_gradient_norm, self.readable("gradient_norm", value))

    def add_gradient_norm(self, value: Any) -> None:
        """The norm of some of the gradients, others of which may come."""
        self._tell(self.steps.add_gradient_norm, self.readable("gradient_norm", value))

    def report(self, **fields: Any) -> None:
        """Further fields for the line of this step."""
        numbers = {name: value if _plain(value) else recorders.number(value) for name, value in fields.items()}
        self._tell(self.steps.report, numbers)

    def optimizer_begin(self, key: Hashable) -> None:
        """An optimizer, told from others by `key`, begins its update."""
        self._tell(self.steps.optimizer_begin, key)

    def optimizer_end(self, key: Hashable, learning_rate: Any = None) -> None:
        self._tell(self.steps.optimizer_end, key, self.readable("learning_rate", learning_rate))

    def update_skipped(self, key: Hashable = None) -> None:
        """An update that was due did not happen, because gradients were infinite: still a step."""
        self._tell(self.steps.update_skipped, key)

    def set_epoch(self, epoch: float | None) -> None:
        self._tell(self.steps.set_epoch, epoch)

    def set_total_steps(self, count: int | None) -> None:
        self._tell(self.steps.set_total_steps, count)

    def at_step(self, number: int) -> None:
        """The step that is now done has this number."""
        self._tell(self.steps.at_step, number)

    def steps_are_told(self) -> None:
        """Until `finish` steps end with `step_done` and not with updates. The first `step_done` says this too."""
        self._tell(self.steps.steps_are_told)

    def step_done(self, **fields: Any) -> None:
        """A step ends here. `step` may be among the fields."""
        number = fields.pop("step", None)
        self._tell(self.steps.step_done, number, fields)

    def begin_phase(self, name: str) -> None:
        """Until `end_phase` the program does something of its own, such as a validation. Steps in it carry its name."""
        self._tell(self.steps.begin_phase, name)

    def end_phase(self) -> None:
        self._tell(self.steps.end_phase)

    def expect_flops(
        self,
        peak_flops_per_sec: float,
        per_token: float | None = None,
        per_sample: float | None = None,
        per_step: float | None = None,
    ) -> None:
        """What a step computes, by one of three measures, and what the device could: gives the share that is used."""
        self._tell(self.steps.expect_flops, peak_flops_per_sec, per_token, per_sample, per_step)

    def finish(self) -> None:
        """Record a step that is still open; what comes later is a training of its own."""
        self._tell(self.steps.finish)

    def readable(self, what: str, value: Any) -> Any:
        """A number, one on its way from a device, or None: when it is too early to fetch the next of its kind."""
        value = without_waiting(value)
        if _plain(value):
            return value
        now = self._clock()
        if now - self._read_at.get(what, float("-inf")) < DEVICE_READ_SECONDS or captured(value):
            return None
        self._read_at[what] = now
        return recorders.number(value)


def captured(value: Any) -> bool:
    """Whether what is done with it now becomes part of a CUDA graph."""
    on_cuda = getattr(value, "is_cuda", False)
    return bool(on_cuda) and bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def _plain(value: Any) -> bool:
    return value is None or type(value) is float or type(value) is int


_WITH_DEVICES = frozenset({"jax", "jaxlib", "tensorflow"})


def without_waiting(value: Any) -> Any:
    """A plain number where no device has to be waited for, else the value as it is; None if it is not one number."""
    if _plain(value):
        return value
    on_cpu = getattr(value, "is_cpu", None)
    if on_cpu is None:  # not torch's
        return value if type(value).__module__.partition(".")[0] in _WITH_DEVICES else float(value)
    if value.is_meta or value.numel() != 1:
        return None
    return value.item() if on_cpu else value.detach()


_loop: Loop | None = None


def current() -> Loop | None:
    """The training loop of this process; None when nobody records."""
    return _loop if _loop is not None else _make()


def finish() -> None:
    """Record what is open, and let the next use begin anew with the recorder of that time."""
    global _loop
    loop, _loop = _loop, None
    if loop is not None:
        loop.finish()


def _make() -> Loop | None:
    global _loop
    recorder = process.current()
    if recorder is not None and not recorder.closed:
        _loop = Loop(recorder)
        atexit.register(finish)  # runs before the recorder's own end, which was registered earlier
        util = sys.modules.get("multiprocessing.util")
        if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
            util.Finalize(None, _end_child, (recorder,), exitpriority=0)  # such a child may end without the others
        threading.Thread(target=_keep_up, args=(_loop,), name="pulsetrain-loop", daemon=True).start()
    return _loop


def _end_child(recorder: Recorder) -> None:
    finish()
    recorder.close()


def _keep_up(loop: Loop) -> None:
    catch_up = guarded(loop.catch_up)
    while loop is _loop:
        time.sleep(CATCH_UP_SECONDS)
        catch_up()
        if loop.recorder.closed:
            finish()


def _after_fork() -> None:
    global _loop
    _loop = None


os.register_at_fork(after_in_child=_after_fork)

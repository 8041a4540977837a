"""What a step of a training is, and where its time went: from events in the order of their times.

Each event cuts the time of a step into parts that never overlap, so they add up to the step.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from typing import Any, Callable, Optional

from pulsetrain.training.recorder import Pending, Recorder

MOST_BATCHES_AHEAD = 256
MOST_KINDS = 64

Batch = tuple[Hashable, float, Optional[int], Optional[int]]
"""Where it came from, the seconds it was waited for, samples, tokens."""


class Steps:
    """Groups what happens in a training loop into steps, and records a line for each.

    A step ends with an optimizer's update. Updates of different optimizers belong to one step until one of them
    comes again; once the same set as in the step before has come, the step is over at once.
    Every event begins with its time, on the clock that is given here.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self.step = 0
        """Number of the last step that was recorded."""
        self._total_steps: int | None = None
        self._epoch: float | None = None
        self._phases: list[tuple[str, float, int, int]] = []
        self._flops: _Flops | None = None
        self._forget()

    def _forget(self) -> None:
        self._part = _Part()
        """What happened since the last update."""
        self._group: _Group | None = None
        """The updates that make up the step so far, with all that led to them."""
        self._explicit = False
        """Whether somebody tells us when a step is done; then updates do not end it."""
        self._since: float | None = None
        """When the step began, which is when the one before ended."""
        self._mark = 0.0
        """When the last event was: what lies between it and a backward pass is the forward pass."""
        self._last_updates: set[Hashable] | None = None
        self._kinds: set[frozenset[Hashable]] = set()
        """Sets of optimizers that have made up a step."""
        self._last_had_backward = False
        self._requested: float | None = None
        self._batches: list[Batch] = []
        """Those that no backward pass has used yet. Only the next one tells whether they were for training."""
        self._new_batches = 0
        """How many of them, at the end, came since the last backward pass."""
        self._ahead: int | None = None
        """How many of them there were at the end of the last step: how far the program's loader runs ahead."""
        self._saw_batches = False
        self._sources: Iterable[Hashable] = ()
        """Where the batches of the last backward pass came from."""
        self._last_batch: tuple[int | None, int | None] | None = None
        """Samples and tokens, for a further step on the same batch."""
        self._backward_depth = 0
        """How many backward passes are running, one inside the other."""
        self._backward_since = 0.0
        self._running: list[Hashable] = []
        """Optimizers inside their update; those after the first are run by the first."""
        self._batch_while_running = False
        self._updated_in_backward: set[Hashable] = set()

    def _begin(self, now: float) -> None:
        if self._since is None:
            self._since = self._mark = now

    def _cut(self, now: float) -> None:
        """Count what is going on up to now."""
        self._begin(now)
        self._mark = now
        if self._backward_depth:
            self._part.backward += now - self._backward_since
            self._backward_since = now

    # Batches

    def batch_requested(self, now: float) -> None:
        self._begin(now)
        self._requested = now

    def batch_ready(
        self, now: float, samples: int | None, tokens: int | None, source: Hashable, requested: float | None = None
    ) -> None:
        """A batch is there, asked for with `batch_requested` or at the time `requested`."""
        if self._backward_depth:
            return
        if requested is None:
            requested, self._requested = self._requested, None
        waited_since = now if requested is None else requested
        self._begin(waited_since)
        waited_since = max(waited_since, self._mark)  # an event in between has its own part of the time
        if source is None or len(self._batches) >= MOST_BATCHES_AHEAD:
            self._batches.clear()
            self._new_batches = 0
        if source not in self._sources:
            self._ahead = None  # a new pass over the data gets ahead anew
        self._batches.append((source, now - waited_since, samples, tokens))
        self._new_batches += 1
        self._batch_while_running = bool(self._running)
        self._mark = now

    def batches_ended(self, now: float, source: Hashable) -> None:
        """There is no further batch. Those that nobody trained on were not for training."""
        if self._backward_depth:
            return
        self._begin(now)
        self._mark = now
        self._requested = None
        self._last_batch = None
        self._forget_waits()
        if source not in self._sources:
            self._batches = [batch for batch in self._batches if batch[0] != source]

    def _forget_waits(self) -> None:
        self._batches = [(source, 0.0, samples, tokens) for source, _, samples, tokens in self._batches]
        self._new_batches = 0

    def _use_batches(self, part: _Part) -> None:
        """Count what the backward pass that begins was computed from."""
        batches = self._batches
        if len(batches) == 1 == self._new_batches:  # as it mostly is
            source, seconds, samples, tokens = batches.pop()
            self._sources = (source,)
            self._new_batches = 0
            part.data_wait += seconds
            self._use_batch(part, samples, tokens)
            return
        if self._new_batches:
            # Several batches in a row from an iterator that is not the last one asked were a validation. One was not:
            # trainings on two data sets take one from each.
            sources = [batch[0] for batch in batches[-self._new_batches :]]
            last = sources[-1]
            self._sources = {source for source in sources if source == last or sources.count(source) == 1}
            self._new_batches = 0
        unused = set(self._sources)
        self._batches = []
        for source, seconds, samples, tokens in batches:
            if source in self._sources:
                part.data_wait += seconds
                if source in unused:
                    unused.remove(source)
                    self._use_batch(part, samples, tokens)
                else:
                    self._batches.append((source, 0.0, samples, tokens))

    def _use_batch(self, part: _Part, samples: int | None, tokens: int | None) -> None:
        self._saw_batches = True
        self._last_batch = samples, tokens
        part.add_batch(samples, tokens)

    def _use_more_batches(self, part: _Part) -> None:
        """A loader that gets further and further ahead does not: its batches are put together before they are used."""
        if self._ahead is not None:
            while len(self._batches) > self._ahead:
                part.add_batch(*self._batches.pop(0)[2:])
        self._ahead = len(self._batches)

    # Backward passes and what they tell

    def backward_begin(self, now: float, loss: Any = None, divided_by: float = 1.0) -> None:
        self._backward_depth += 1
        if self._backward_depth > 1:  # checkpointed blocks run backward passes of their own
            return
        self._begin(now)
        part = self._part
        part.backwards += 1
        part.forward += now - self._mark
        self._mark = self._backward_since = now
        if self._batches:
            self._use_batches(part)
        if loss is not None:
            self.report_loss(now, loss, divided_by)

    def backward_end(self, now: float) -> None:
        if not self._backward_depth:
            return
        self._backward_depth -= 1
        if self._backward_depth:
            return
        self._mark = now
        self._part.backward += now - self._backward_since
        if self._updated_in_backward:
            updated, self._updated_in_backward = self._updated_in_backward, set()
            self._updated(now, updated)

    def report_loss(self, now: float, value: Any, divided_by: float) -> None:
        """The loss of a micro batch; of those on their way from a device only the last one of a step counts."""
        part = self._part
        on_its_way = part.losses == 0 or isinstance(value, Pending)
        part.loss = value if on_its_way else part.loss + value
        part.losses = 1 if on_its_way else part.losses + 1
        part.divided_by = divided_by

    def set_gradient_norm(self, now: float, value: Any) -> None:
        self._part.gradient_norm = value

    def add_gradient_norm(self, now: float, value: Any, key: Hashable = None) -> None:
        """The norm of some gradients; with a `key`, of those of one optimizer, and worth nothing without the others."""
        self._part.add_gradient_norm(value)
        if key is not None:
            self._part.normed = self._part.normed | {key}

    def report(self, now: float, fields: dict[str, Any]) -> None:
        """Further fields for the line of this step."""
        self._part.extra = {**self._part.extra, **fields}

    # Updates

    def optimizer_begin(self, now: float, key: Hashable) -> None:
        self._begin(now)
        if self._running:
            if key not in self._running and not self._batch_while_running:
                self._running.append(key)
                return
            self._running.clear()  # an update that raised has no end
        self._running.append(key)
        if self._backward_depth:
            self._part.backward += now - self._backward_since
            self._backward_since = now
        else:
            self._mark = now

    def optimizer_end(self, now: float, key: Hashable, learning_rate: Any) -> None:
        running = self._running
        if key not in running:
            return
        if running[0] != key:
            del running[running.index(key) :]
            return
        running.clear()
        part = self._part
        part.updates += 1
        if learning_rate is not None:
            part.learning_rate = learning_rate
        if self._backward_depth:
            part.optimizer += now - self._backward_since
            self._backward_since = now
            self._updated_in_backward.add(key)
        else:
            part.optimizer += now - self._mark  # an update that ran a backward pass of its own began after it
            self._mark = now
            self._updated(now, {key})

    def update_skipped(self, now: float, key: Hashable) -> None:
        """An update that was due did not happen, because gradients were infinite: still a step."""
        self._cut(now)
        self._part.skipped = 1
        self._updated(now, {key} if key is not None else set(self._last_updates or {None}))

    def _updated(self, now: float, keys: set[Hashable]) -> None:
        part, group = self._part, self._group
        if group is not None and not self._explicit and not keys.isdisjoint(group.updates):
            self._record(group)
            group = None
        if group is None:
            if self._last_had_backward and not (part.backwards or part.batches or part.skipped or self._explicit):
                # One more update from the gradients of the step before. Its time counts, but it is no step of its own.
                part.updates = 0
                return
            group = _Group(keys, part, now)
        else:
            group.updates |= keys
            group.part.absorb(part)
            group.end = now
        self._group = group
        self._part = _Part()
        if part.batches:
            self._use_more_batches(group.part)
        if self._new_batches:
            self._forget_waits()  # they were before the end of this step and cannot be part of the next
        if group.updates == self._last_updates and not self._explicit:
            self._record(group)

    # What a framework or the user knows

    def set_epoch(self, now: float, epoch: float | None) -> None:
        self._epoch = epoch

    def set_total_steps(self, now: float, count: int | None) -> None:
        self._total_steps = count

    def at_step(self, now: float, number: int) -> None:
        if self._group is not None:
            self._record(self._group, number)
        self.step = number

    def steps_are_told(self, now: float) -> None:
        self._explicit = True

    def step_done(self, now: float, number: int | None, fields: dict[str, Any]) -> None:
        self._cut(now)
        self._explicit = True
        part, self._part = self._part, _Part()
        self._forget_waits()
        group = self._group
        if group is None:
            group = _Group(set(), part, now)
        else:
            group.part.absorb(part)
            group.end = now
        group.part.extra = {**group.part.extra, **fields}
        self._record(group, number)

    def begin_phase(self, now: float, name: str) -> None:
        self._begin(now)
        self._mark = now
        self._phases.append((name, now, len(self._batches), self._new_batches))

    def end_phase(self, now: float) -> None:
        if not self._phases:
            return
        name, began, batches, new_batches = self._phases.pop()
        self._begin(now)
        self._mark = now
        self._requested = None
        # What was fetched in it is no training batch; what was fetched ahead before it still is.
        del self._batches[batches:]
        self._new_batches = min(self._new_batches, new_batches)
        self._add(now, {"step": self.step, "phase": name, "phase_seconds": now - began})

    def expect_flops(
        self, now: float, peak_per_sec: float, per_token: float | None, per_sample: float | None, per_step: float | None
    ) -> None:
        self._flops = _Flops(peak_per_sec, per_token, per_sample, per_step)

    def finish(self, now: float) -> None:
        group = self._group
        if group is not None and (group.updates in self._kinds or not any(map(group.updates.issubset, self._kinds))):
            self._record(group)  # unless it is the beginning of a step that others of its optimizers would have ended
        if self._part.backwards and not self._kinds and not self._explicit:
            message = "Steps are not counted: there were backward passes, but no update of an optimizer of PyTorch."
            self._recorder.note_once("not_seen", message)
        self._forget()

    # Lines

    def _add(self, at: float, fields: dict[str, Any]) -> None:
        """Record a line of the time `at`, which may be a little ago."""
        self._recorder.add(fields, lambda: time.monotonic() - (self._clock() - at))

    def _record(self, group: _Group, number: int | None = None) -> None:
        part, end = group.part, group.end
        self._group = None
        if group.updates != self._last_updates and len(self._kinds) < MOST_KINDS:
            self._kinds.add(frozenset(group.updates))
        self._last_updates = group.updates
        self._last_had_backward = part.backwards > 0
        seconds = end - (end if self._since is None else self._since)
        self._since = end
        self.step = number = self.step + 1 if number is None else number
        fields: dict[str, Any] = {"step": number, "step_seconds": seconds}
        other = seconds
        if self._saw_batches:
            fields["data_wait_seconds"] = part.data_wait
            other -= part.data_wait
        if part.backwards:
            fields["forward_seconds"] = part.forward
            fields["backward_seconds"] = part.backward
            fields["accumulation"] = part.backwards
            other -= part.forward + part.backward
        if part.updates:
            fields["optimizer_seconds"] = part.optimizer
            fields["optimizers"] = part.updates
            other -= part.optimizer
        fields["other_seconds"] = other if other > 0.0 else 0.0  # below 0 only by the rounding of sums
        self._add_amounts(fields, part, seconds)
        self._add_values(fields, part)
        if part.extra:
            fields.update(part.extra)
        if self._phases:
            fields["phase"] = self._phases[-1][0]
        self._add(end, fields)

    def _add_amounts(self, fields: dict[str, Any], part: _Part, seconds: float) -> None:
        samples, tokens = part.samples, part.tokens
        if not part.batches and self._last_batch is not None:
            samples, tokens = self._last_batch  # one more step on the batch of the step before
        if seconds <= 0.0:
            return
        if samples is not None:
            fields["samples"] = samples
            fields["throughput_samples_per_sec"] = samples / seconds
        if tokens is not None:
            fields["tokens"] = tokens
            fields["throughput_tokens_per_sec"] = tokens / seconds
        if self._flops is not None:
            flops = self._flops.of_step(samples, tokens)
            if flops is not None:
                fields["flops"] = flops
                fields["mfu_ratio"] = flops / seconds / self._flops.peak_per_sec

    def _add_values(self, fields: dict[str, Any], part: _Part) -> None:
        if part.losses:
            fields["loss"] = part.mean_loss()
        if part.learning_rate is not None:
            fields["learning_rate"] = part.learning_rate
        if part.gradient_norm is not None and part.normed in (frozenset(), self._last_updates):
            fields["gradient_norm"] = part.gradient_norm
        if self._epoch is not None:
            fields["epoch"] = self._epoch
        if self._total_steps is not None:
            fields["total_steps"] = self._total_steps
        if part.skipped:
            fields["skipped"] = part.skipped


class _Part:
    """Sums over a stretch of a training."""

    # Defaults of the class, so that making one costs next to nothing.
    data_wait = forward = backward = optimizer = 0.0
    backwards = updates = batches = losses = skipped = 0
    samples: int | None = None
    tokens: int | None = None
    loss: Any = None
    divided_by = 1.0
    """What the program seems to have divided its loss by."""
    learning_rate: Any = None
    gradient_norm: Any = None
    normed: frozenset[Hashable] = frozenset()
    """The optimizers whose gradients it is of, where we computed it."""
    extra: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def add_batch(self, samples: int | None, tokens: int | None) -> None:
        self.batches += 1
        self.samples = _sum(self.samples, samples)
        self.tokens = _sum(self.tokens, tokens)

    def mean_loss(self) -> Any:
        """Of the micro batches. Where each was divided by their number, as for an accumulation, that is taken back."""
        shares = self.backwards if self.divided_by == self.backwards else 1
        if isinstance(self.loss, Pending):
            return Computed(lambda loss: loss * shares, self.loss) if shares > 1 else self.loss
        return self.loss * shares / self.losses

    def add_gradient_norm(self, value: Any) -> None:
        """The norm of some of the gradients, beside those known."""
        known = self.gradient_norm
        if known is None or value is None:
            self.gradient_norm = value if known is None else known
        elif isinstance(known, Pending) or isinstance(value, Pending):
            self.gradient_norm = Computed(_hypotenuse, known, value)
        else:
            self.gradient_norm = _hypotenuse(known, value)

    def absorb(self, later: _Part) -> None:
        for name in ("data_wait", "forward", "backward", "optimizer", "backwards", "updates", "batches"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.samples = _sum(self.samples, later.samples)
        self.tokens = _sum(self.tokens, later.tokens)
        self.skipped = self.skipped or later.skipped
        if later.losses:
            replaces = self.losses == 0 or isinstance(self.loss, Pending) or isinstance(later.loss, Pending)
            self.loss = later.loss if replaces else self.loss + later.loss
            self.losses = later.losses if replaces else self.losses + later.losses
            self.divided_by = later.divided_by
        if later.learning_rate is not None:
            self.learning_rate = later.learning_rate
        self.add_gradient_norm(later.gradient_norm)
        self.normed |= later.normed
        self.extra = {**self.extra, **later.extra}


class _Group:
    """Updates that make up one step."""

    __slots__ = ("end", "part", "updates")

    def __init__(self, updates: set[Hashable], part: _Part, end: float) -> None:
        self.updates = updates
        self.part = part
        self.end = end


class _Flops:
    def __init__(
        self, peak_per_sec: float, per_token: float | None, per_sample: float | None, per_step: float | None
    ) -> None:
        self.peak_per_sec = peak_per_sec
        self._per_token, self._per_sample, self._per_step = per_token, per_sample, per_step

    def of_step(self, samples: int | None, tokens: int | None) -> float | None:
        if self._per_token is not None:
            return None if tokens is None else self._per_token * tokens
        if self._per_sample is not None:
            return None if samples is None else self._per_sample * samples
        return self._per_step


class Computed(Pending):
    """A number from others of which some are on their way."""

    def __init__(self, function: Callable[..., float], *values: Any) -> None:
        self._function = function
        self._values = values

    def ready(self) -> bool:
        return all(value.ready() for value in self._values if isinstance(value, Pending))

    def value(self) -> float:
        return self._function(*(value.value() if isinstance(value, Pending) else value for value in self._values))


def _hypotenuse(one: float, other: float) -> float:
    return float((one * one + other * other) ** 0.5)


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other

"""Steps that are like the one before: a fast training has hardly any others."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any, Callable

from pulsetrain.training.amounts import UNKNOWN
from pulsetrain.training.batches import BatchTracker
from pulsetrain.training.evaluation import EvaluationTracker
from pulsetrain.training.step_lines import StepLines
from pulsetrain.training.timing import StepTiming
from pulsetrain.training.updates import UpdateGrouping

Event = tuple[Any, ...]
"""A handler, and what it is to be called with: the time first."""


class RegularSteps:
    """Handles all events of such a step at once, in a fraction of the time that their handlers take one by one.

    It is a batch of the same pass over the data (or none, where none ever came), one backward pass, perhaps the norm of
    its gradients, and an update by the optimizer of the step before: nothing else, and no value still on its way.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        timing: StepTiming,
        batches: BatchTracker,
        lines: StepLines,
        evaluations: EvaluationTracker,
        updates: UpdateGrouping,
    ) -> None:
        self._clock = clock
        self._timing = timing
        self._batches = batches
        self._lines = lines
        self._evaluations = evaluations
        self._updates = updates
        # Bound once: events of these steps are known by the identity of their handlers.
        self.batch_ready = batches.ready
        self.backward_begin, self.backward_end = updates.backward_begin, updates.backward_end
        self.optimizer_begin, self.optimizer_end = updates.optimizer_begin, updates.optimizer_end
        self.add_gradient_norm = lines.add_gradient_norm

    def handle(self, events: list[Event], place: int) -> int:
        """Handle those that begin at this place; the place of the first event that is left."""
        handler = events[place][0]
        if handler is not self.batch_ready and handler is not self.backward_begin:
            return place
        optimizer = self._updates.sole_optimizer
        between_steps = self._timing.is_between_steps and self._evaluations.since is None
        if optimizer is None or not (between_steps and self._batches.is_regular and self._lines.is_regular):
            return place
        return self._handle(events, place, optimizer)

    def _handle(self, events: list[Event], place: int, optimizer: Hashable) -> int:
        """The one loop of ours that runs for every step of a fast training: all that it needs is at hand."""
        record, epoch_of, add_gradient_norm = self._lines.record_regular, self._batches.epoch_of, self.add_gradient_norm
        batch_ready, backward_begin, backward_end = self.batch_ready, self.backward_begin, self.backward_end
        optimizer_begin, optimizer_end = self.optimizer_begin, self.optimizer_end
        data_pass = self._batches.data_pass
        batch_events, used, data_wait = (0, 0, None) if data_pass is None else (1, data_pass.used, 0.0)
        to_monotonic = time.monotonic() - self._clock()
        last_end = last_backward = self._timing.last_event
        last_amounts, last_rate = UNKNOWN, None
        count = 0
        while len(events) - place >= batch_events + 4:
            after = place + batch_events + 4
            begin, end, update, updated = events[after - 4 : after]
            norm = None
            if update[0] is add_gradient_norm and after < len(events) and update[3] is None:
                norm, update, updated = update[2], updated, events[after]
                after += 1
            is_step = begin[0] is backward_begin and end[0] is backward_end and update[0] is optimizer_begin
            if not is_step or updated[0] is not optimizer_end or update[2] != optimizer or updated[2] != optimizer:
                break
            forward_begins, amounts = last_end, UNKNOWN
            if data_pass is not None:
                batch = events[place]
                if batch[0] is not batch_ready or batch[3] is not data_pass:
                    break
                forward_begins, amounts, requested = batch[1], batch[2], batch[4]
                data_wait = forward_begins - (requested if requested > last_end else last_end)
            backward_begins, loss, backward_ends, update_begins = begin[1], begin[2], end[1], update[1]
            step_ends, rate = updated[1], updated[3]
            if not last_end <= forward_begins <= backward_begins <= backward_ends <= update_begins <= step_ends:
                break
            if step_ends == last_end or not (_is_known(loss) and (norm is None or _is_known(norm))):
                break
            if rate is not last_rate:  # nearly always the same object
                if not _is_known(rate):
                    break
                last_rate = rate
            count += 1
            forward, backward = backward_begins - forward_begins, backward_ends - backward_begins
            epoch = epoch_of(used + count) if batch_events else None
            parts = (step_ends - last_end, data_wait, forward, backward, step_ends - update_begins)
            record(step_ends + to_monotonic, parts, amounts, epoch, rate, norm, loss)
            last_end, last_backward, last_amounts, place = step_ends, backward_begins, amounts, after
        if count:
            self._timing.pass_regular(last_backward, last_end)
            self._batches.pass_regular(last_amounts, count)
        return place


def _is_known(value: Any) -> bool:
    """Whether it is a finite number, or absent: not one on its way, and nothing that JSON lacks."""
    return value is None or (type(value) is float and value - value == 0.0)

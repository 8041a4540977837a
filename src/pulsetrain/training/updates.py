"""What a step of a training is: updates of the weights, with all that led to them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from pulsetrain.training.batches import BatchTracker
from pulsetrain.training.evaluation import EvaluationTracker
from pulsetrain.training.step_lines import StepLines
from pulsetrain.training.tally import StepTally
from pulsetrain.training.timing import StepTiming

MOST_KINDS = 64


class UpdateGrouping:
    """Groups updates of optimizers into steps, and has each recorded.

    A step ends with an optimizer's update. Updates of different optimizers belong to one step until one of them
    comes again; once the same set as in the step before has come, the step is over at once.

    Where a program has no optimizer and updates its weights itself, each backward pass makes a step.
    """

    def __init__(
        self, timing: StepTiming, batches: BatchTracker, lines: StepLines, evaluations: EvaluationTracker
    ) -> None:
        self._timing = timing
        self._batches = batches
        self._lines = lines
        self._evaluations = evaluations
        evaluations.before_each = self._end_open
        self._running = RunningUpdates()
        self.restart()

    def restart(self) -> None:
        """Forget everything; the next update is the first of a training."""
        self._open: _UpdateGroup | None = None
        """The updates that make up the step so far."""
        self._explicit = False
        """Whether `step_done` ends steps; then updates do not."""
        self._last_updates: set[Hashable] | None = None
        self._kinds: set[frozenset[Hashable]] = set()
        """Sets of optimizers that have made up a step."""
        self._last_had_backward = False
        self._updated_in_backward: set[Hashable] = set()
        self._seen: dict[Hashable, None] = {}
        """Optimizers in the order in which they came."""
        self._order: list[Hashable] = []
        """Those that take turns, in that order."""
        self._by_hand = False
        """Whether the backward pass that runs, or came last, belongs to a program without an optimizer."""
        self._by_hand_end: float | None = None
        """When such a one ended, of which no step was made yet."""
        self._by_hand_asides: dict[str, float] = {}
        """What was set aside until then."""
        self._running.clear()

    # Backward passes

    def backward_begin(self, now: float, loss: Any = None, divided_by: float = 1.0) -> None:
        if self._by_hand_end is not None:
            self._end_by_hand()
        if self._evaluations.since is not None:
            self._evaluations.conclude()
        if self._timing.backward_begin(now):
            tally = self._timing.tally
            self._batches.use(tally)
            if loss is None:
                return
            if not self._running:
                tally.add_loss(loss, divided_by)
            elif tally.closure_loss is None:
                tally.closure_loss = loss

    def backward_end(self, now: float) -> None:
        if not self._timing.backward_end(now):
            return
        if self._updated_in_backward:
            updated, self._updated_in_backward = self._updated_in_backward, set()
            self._updated(now, updated)
        elif self._by_hand:
            self._by_hand_end, self._by_hand_asides = now, self._timing.tally.asides

    def by_hand_begin(self, now: float, loss: Any = None, divided_by: float = 1.0) -> None:
        """A backward pass begins in a program that has no optimizer."""
        self.backward_begin(now, loss, divided_by)
        self._by_hand = not self._explicit

    def _end_by_hand(self) -> None:
        """What came since the last such step makes one, unless an update by an optimizer made one of it."""
        end, self._by_hand_end, self._by_hand = self._by_hand_end, None, False
        if end is None or not self._timing.tally.backwards or self._explicit:
            return
        message = (
            "Steps are counted by backward passes: the program updates its weights without a PyTorch optimizer. "
            "Several backward passes for one update count as several steps; `for batch in pulsetrain.steps(loader):` "
            "counts batches instead."
        )
        self._lines.recorder.note_once("not_seen", message)
        tally = self._timing.take_tally()
        asides, tally.asides = tally.asides, self._by_hand_asides
        for name, seconds in asides.items():  # those since its end are the next step's
            if seconds > tally.asides.get(name, 0.0):
                self._timing.tally.add_aside(name, seconds - tally.asides.get(name, 0.0))
        self._batches.end_update(tally, tally.batches > 0)
        self._end_step(_UpdateGroup(set(), tally, end))

    # Updates

    def optimizer_begin(self, now: float, key: Hashable) -> None:
        """An optimizer, told from others by `key`, begins its update."""
        self._timing.begin(now)
        if self._evaluations.since is not None:
            self._evaluations.conclude()
        if self._running.begin(key, self._batches.count):
            self._timing.update_begin(now)

    def optimizer_end(self, now: float, key: Hashable, learning_rate: Any = None) -> None:
        if not self._running.end(key):
            return
        timing = self._timing
        timing.update_end(now)
        if learning_rate is not None:
            timing.tally.learning_rate = learning_rate
        if timing.backward_depth:
            self._updated_in_backward.add(key)
        else:
            self._updated(now, {key})

    def update_skipped(self, now: float, key: Hashable = None) -> None:
        """An update that was due did not happen, because gradients were infinite: still a step."""
        self._timing.cut(now)
        self._timing.tally.skipped = 1
        self._updated(now, {key} if key is not None else set(self._last_updates or {None}))

    def _updated(self, now: float, keys: set[Hashable]) -> None:
        tally, group = self._timing.tally, self._open
        if group is not None and not self._explicit and not keys.isdisjoint(group.updates):
            self._end_step(group)
            group = None
        if group is None:
            if self._last_had_backward and not (tally.backwards or tally.batches or tally.skipped or self._explicit):
                # One more update from the gradients of the step before. Its time counts, but it is not a step.
                tally.updates = 0
                return
            group = _UpdateGroup(keys, tally, now)
        else:
            group.add(keys, tally, now)
        self._open = group
        self._timing.tally = StepTally()
        self._batches.end_update(group.tally, tally.batches > 0)
        if group.updates == self._last_updates and not self._explicit:
            self._end_step(group)

    # Steps

    @property
    def in_step(self) -> bool:
        """Whether there is something that a step will be made of, or a framework that says when one is done."""
        return self._explicit or self._open is not None or self._timing.tally.backwards > 0

    @property
    def sole_optimizer(self) -> Hashable:
        """The one that made the last step, if a backward pass and an update by it make the next; else None."""
        unusual = self._explicit or self._order or self._by_hand or self._by_hand_end is not None
        if unusual or self._open is not None or self._running or self._updated_in_backward:
            return None
        if self._last_updates is None or len(self._last_updates) != 1 or not self._last_had_backward:
            return None
        return next(iter(self._last_updates))

    def expect_step_done(self, now: float) -> None:
        """Until the end of this training steps end with `step_done`; the first `step_done` implies this."""
        self._explicit = True
        self._evaluations.listens = False

    def step_done(self, now: float, number: int | None, fields: dict[str, Any]) -> None:
        """A step ends here, and these are further fields of its line."""
        self._timing.cut(now)
        self.expect_step_done(now)
        tally = self._timing.take_tally()
        self._batches.forget_waits()
        group = self._open
        if group is None:
            group = _UpdateGroup(set(), tally, now)
        else:
            group.add(set(), tally, now)
        group.tally.add_fields(fields)
        self._end_step(group, number)

    def batch_done(self, now: float) -> None:
        """A step ends here, and was computed from what came since the last, also where no backward pass showed it."""
        if self._open is None and not self._timing.tally.backwards:
            self._batches.use(self._timing.tally)
        self.step_done(now, None, {})

    def at_step(self, now: float, number: int) -> None:
        """The step that is now done has this number."""
        if self._open is not None:
            self._end_step(self._open, number)
        self._lines.step = number

    def finish(self, now: float) -> None:
        """Record a step that is still open; what comes later is another training."""
        self._evaluations.conclude()
        self._end_open()
        if self._timing.tally.backwards and not self._kinds and not self._explicit:
            message = (
                "Steps are not counted: there were backward passes, but no update by a PyTorch optimizer. "
                "`for batch in pulsetrain.steps(loader):` counts them."
            )
            self._lines.recorder.note_once("not_seen", message)
        self._timing.restart()
        self._batches.restart()
        self._evaluations.restart()
        self.restart()

    def _end_open(self) -> None:
        """End the step that is open, unless it is the beginning of one that others of its optimizers will end."""
        self._end_by_hand()
        group = self._open
        if group is not None and (group.updates in self._kinds or not any(map(group.updates.issubset, self._kinds))):
            self._end_step(group)

    def _losses(self, group: _UpdateGroup) -> dict[str, Any]:
        """The fields of a step's losses. Of optimizers that take turns, each keeps its name."""
        if group.updates == self._last_updates and len(group.losses) == 1 and not self._order:  # as it mostly is
            return {"loss": next(iter(group.losses.values()))}
        if len(self._seen) > MOST_KINDS:
            self._seen.clear()
        self._seen.update(dict.fromkeys(group.losses))
        if len(group.losses) > 1:
            self._order = [key for key in self._seen if key in group.losses]
        places = {key: self._order.index(key) if key in self._order else 0 for key in group.losses}
        return {"loss/%d" % (places[key] + 1) if places[key] else "loss": loss for key, loss in group.losses.items()}

    def _end_step(self, group: _UpdateGroup, number: int | None = None) -> None:
        self._open = None
        if group.updates != self._last_updates and len(self._kinds) < MOST_KINDS:
            self._kinds.add(frozenset(group.updates))
        losses = self._losses(group)
        self._last_updates = group.updates
        self._last_had_backward = group.tally.backwards > 0
        self._lines.record(group.tally, group.updates, losses, group.end, number)


class RunningUpdates:
    """Optimizers inside their update; those after the first are run by the first."""

    def __init__(self) -> None:
        self._keys: list[Hashable] = []
        self._batches = 0

    def __bool__(self) -> bool:
        return bool(self._keys)

    def clear(self) -> None:
        self._keys.clear()

    def begin(self, key: Hashable, batches: int) -> bool:
        """Whether this is an update of its own; `batches` is how many came so far."""
        if self._keys:
            if key not in self._keys and batches == self._batches:
                self._keys.append(key)
                return False
            self._keys.clear()  # an update that raised has no end
        self._keys.append(key)
        self._batches = batches
        return True

    def end(self, key: Hashable) -> bool:
        """Whether an update of its own ends."""
        keys = self._keys
        if key not in keys:
            return False
        if keys[0] != key:
            del keys[keys.index(key) :]
            return False
        keys.clear()
        return True


class _UpdateGroup:
    """Updates that make up one step."""

    __slots__ = ("end", "losses", "tally", "updates")

    def __init__(self, updates: set[Hashable], tally: StepTally, end: float) -> None:
        self.updates = updates
        self.losses: dict[Hashable, Any] = {}
        """By one optimizer of each update; those of several that update together are one loss."""
        self._add_loss(updates, tally)
        self.tally = tally
        self.end = end

    def add(self, updates: set[Hashable], tally: StepTally, end: float) -> None:
        self._add_loss(updates or self.updates, tally)
        self.updates |= updates
        self.tally.absorb(tally)
        self.end = end

    def _add_loss(self, updates: set[Hashable], tally: StepTally) -> None:
        loss = tally.loss_of_update()
        if loss is not None:
            self.losses[next(iter(updates), None)] = loss

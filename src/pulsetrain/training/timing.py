"""Where the time of a step goes: each event cuts it into parts that never overlap, so they add up to the step."""

from __future__ import annotations

from pulsetrain.training.tally import StepTally

MOST_ASIDE = 64
"""Spans that are remembered. Between two events there are a few."""


class StepTiming:
    """Measures forward passes, backward passes and updates, and adds them to the tally of the step so far."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything; the next event is the first of a training."""
        self.tally = StepTally()
        """What happened since the last update."""
        self.since: float | None = None
        """When the step began, which is when the one before ended."""
        self.last_event = 0.0
        """What lies between it and a backward pass is the forward pass."""
        self.backward_depth = 0
        """How many backward passes are running, one inside the other."""
        self._backward_since = 0.0
        self._aside: list[tuple[float, float]] = []
        """Spans since the last event that are no part of what is being measured, in order, each begin and end."""

    def take_tally(self) -> StepTally:
        tally, self.tally = self.tally, StepTally()
        return tally

    def begin(self, now: float) -> None:
        """The first step of a training begins with its first event."""
        if self.since is None:
            self.since = self.last_event = now

    @property
    def is_between_steps(self) -> bool:
        """Whether the last step has just ended: nothing has come since."""
        return self.since == self.last_event and not (self.backward_depth or self._aside or vars(self.tally))

    def pass_regular(self, backward_began: float, ended: float) -> None:
        """Steps were measured elsewhere, the last of which ended then."""
        self._backward_since = backward_began
        self.since = self.last_event = ended

    def set_aside(self, began: float, now: float) -> float:
        """A span is over; what is measured around it goes without it. The seconds that were not set aside before."""
        began = max(began, self.last_event, self._backward_since)  # what came before an event is measured already
        aside, before = self._aside, 0.0
        while aside and aside[-1][0] >= began:
            begin, end = aside.pop()
            before += end - begin
        if aside:
            began = max(began, aside[-1][1])
        if len(aside) == MOST_ASIDE:
            del aside[0]
        aside.append((began, now))
        return max(0.0, now - began - before)

    def spent(self, since: float, now: float) -> float:
        """The seconds between two moments that were not set aside."""
        seconds = now - since
        for begin, end in self._aside:
            if end > since:
                seconds -= end - max(begin, since)
        return max(0.0, seconds)

    def skip_to(self, now: float) -> None:
        """What came before is not part of a forward pass."""
        self.begin(now)
        self.last_event = now
        if not self.backward_depth:
            self._aside.clear()

    def cut(self, now: float) -> None:
        """End here what is being measured."""
        self.skip_to(now)
        if self.backward_depth:
            self.tally.backward += self.spent(self._backward_since, now)
            self._backward_since = now

    def backward_begin(self, now: float) -> bool:
        """Whether it is an outer one: checkpointed blocks run backward passes of their own inside another."""
        self.backward_depth += 1
        if self.backward_depth > 1:
            return False
        self.begin(now)
        self.tally.backwards += 1
        self.tally.forward += self.spent(self.last_event, now)
        self.last_event = self._backward_since = now
        self._aside.clear()
        return True

    def backward_end(self, now: float) -> bool:
        """Whether no backward pass is running any more."""
        if not self.backward_depth:
            return False
        self.backward_depth -= 1
        if self.backward_depth:
            return False
        self.last_event = now
        self.tally.backward += self.spent(self._backward_since, now)
        self._aside.clear()
        return True

    def update_begin(self, now: float) -> None:
        if self.backward_depth:
            self.tally.backward += self.spent(self._backward_since, now)
            self._backward_since = now
        else:
            self.last_event = now

    def update_end(self, now: float) -> None:
        self.tally.updates += 1
        if self.backward_depth:
            self.tally.optimizer += self.spent(self._backward_since, now)
            self._backward_since = now
        else:
            # An update that ran a backward pass began after it.
            self.tally.optimizer += self.spent(self.last_event, now)
            self.last_event = now
            self._aside.clear()

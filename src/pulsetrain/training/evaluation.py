"""Validations in loops that say nothing of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Callable

from pulsetrain.training.amounts import Amounts
from pulsetrain.training.batches import BatchTracker
from pulsetrain.training.phases import PhaseTracker

NAME = "validation"


class EvaluationTracker:
    """Records them as phases. Three things show one, as long as no backward pass comes in between:

    - a model is put into evaluation mode, and back;
    - several batches are fetched while gradients are off;
    - a pass over data ends, which nobody learned from, in a program that has learned from other data.
    """

    def __init__(self, batches: BatchTracker, phases: PhaseTracker) -> None:
        self._batches = batches
        self._phases = phases
        self.before_each: Callable[[], None] = lambda: None
        """Called before one is recorded."""
        self.restart()

    def restart(self) -> None:
        """Forget everything; what comes is another training."""
        self.listens = True
        """A framework that says what it does is believed instead."""
        self._forget()

    def _forget(self) -> None:
        self.since: float | None = None
        """When something began that may be a validation."""
        self._until: float | None = None
        """Up to when it surely was one; None as long as it may be something else."""
        self._first = self._last = 0
        """The numbers of the last batch before it, and of the last one in it."""
        self._phases_before = 0
        self._switched: set[Hashable] = set()
        """Models in evaluation mode."""
        self._source: Hashable = None
        """Of the last batch that came while gradients were off."""

    # Events

    def switched(self, now: float, model: Hashable, to_training: bool) -> None:
        """A model, without those that are part of it, changes its mode."""
        if not to_training:
            self._begin(now)
            self._switched.add(model)
        elif self.since is not None and model in self._switched:
            self._switched.discard(model)
            self._is_sure(now)
            if not self._switched:
                self.conclude()

    def batch_ready(self, now: float, amounts: Amounts, source: Hashable, requested: float) -> None:
        """A batch came while gradients were off."""
        self._begin(requested)
        self._batches.ready(now, amounts, source, requested)
        if source == self._source:
            self._is_sure(now)  # one alone may be fetched ahead for training
        self._source = source

    def batches_ended(self, now: float, source: Hashable) -> None:
        """There is no further batch."""
        began = self._batches.not_learned_since(source)
        self._batches.ended(now, source)
        if began is None:
            return
        if self._batches.used:
            self._begin(began)
        if self.since is not None:
            self._is_sure(now)
            if not self._switched:
                self.conclude()

    # What it was

    def _begin(self, now: float) -> None:
        if self.since is None and self.listens and not self._phases.is_open:
            self._forget()
            self.since = now
            self._first = self._batches.count
            self._phases_before = self._phases.begun

    def _is_sure(self, now: float) -> None:
        self._until = now
        self._last = self._batches.count

    def conclude(self) -> None:
        """Record what is open, if it was a validation: the training goes on, or ends."""
        since, until = self.since, self._until
        if since is not None and until is not None and self._phases.begun == self._phases_before:
            self.before_each()
            self._phases.record(NAME, since, until)
            self._batches.forget(self._first, self._last)
        self._forget()

"""Which batches a training step was computed from, and how long it waited for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from pulsetrain.training.amounts import Amounts
from pulsetrain.training.tally import StepTally
from pulsetrain.training.timing import StepTiming

MOST_BATCHES_AHEAD = 256
MOST_DOUBTFUL = 16

Batch = tuple[Hashable, float, Amounts, int]
"""Where it came from, the seconds it was waited for, what is in it, and its number."""


class DataPass:
    """One pass over data, as the source of its batches. An iterator's id would not do: the next may get the same."""

    __slots__ = ("length", "used")

    def __init__(self, length: int | None) -> None:
        self.length = length
        """How many batches it has."""
        self.used = 0
        """How many were trained on; more than it has where an iterator serves several passes."""


class BatchTracker:
    """Keeps batches until a backward pass uses them: only that shows whether they were for training."""

    def __init__(self, timing: StepTiming) -> None:
        self._timing = timing
        self.restart()

    def restart(self) -> None:
        """Forget everything; the next batch is the first of a training."""
        self.count = 0
        """How many came, which is the number of the last one."""
        self.used = False
        """Whether a training step used any."""
        self.last_amounts: Amounts | None = None
        """Of the last batch used, for a further step on it."""
        self.epoch: float | None = None
        """Passes over the training data, where their length is known."""
        self._data_pass: DataPass | None = None
        """The one that is trained on."""
        self._epochs_before: float | None = 0.0
        """When it began."""
        self._requested: float | None = None
        self._shown: int | None = None
        self._unused: list[Batch] = []
        self._old = 0
        """The last batch that came before the last backward pass."""
        self._ahead: int | None = None
        """How many were unused at the end of the last step: how far the program's loader runs ahead."""
        self._sources: Iterable[Hashable] = ()
        """Where the batches of the last backward pass came from."""
        self._one_ended = False
        """Whether one of them has ended since."""
        self._doubtful: deque[Hashable] = deque(maxlen=MOST_DOUBTFUL)
        """Sources that have given one batch beside those of a training."""
        self._pass: tuple[Hashable, float] = (None, 0.0)
        """The source of the last batch, and when the first of those in a row from it was asked for."""

    # Events

    def requested(self, now: float) -> None:
        """The program asks for the next batch."""
        self._timing.begin(now)
        self._requested = now

    def ready(self, now: float, amounts: Amounts, source: Hashable, requested: float | None = None) -> None:
        """The program has its batch, asked for with `requested` or at the time `requested`.

        `source` tells iterators apart: one that runs ahead is not taken for a validation.
        """
        timing = self._timing
        if timing.backward_depth:
            return
        if requested is None:
            requested, self._requested = self._requested, None
        waited_since = now if requested is None else requested
        timing.begin(waited_since)
        if source != self._pass[0]:
            self._pass = source, waited_since
        waited_since = max(waited_since, timing.last_event)  # an event in between has its own part of the time
        if source is None or len(self._unused) >= MOST_BATCHES_AHEAD:
            self._unused.clear()
        if source not in self._sources:
            self._ahead = None  # a new pass over the data gets ahead anew
        self.count += 1
        self._unused.append((source, timing.spent(waited_since, now), amounts, self.count))
        timing.last_event = now

    def ended(self, now: float, source: Hashable) -> None:
        """There is no further batch. Those that nobody trained on were not for training."""
        if self._timing.backward_depth:
            return
        self._timing.skip_to(now)
        self._requested = None
        self.last_amounts = None
        self.forget_waits()
        if source in self._sources:
            self._one_ended = True
        else:
            self._unused = [batch for batch in self._unused if batch[0] != source]

    def shown(self, now: float, tokens: int) -> None:
        """So many tokens went into the backward pass that comes next, by its loss; what loaders say counts more."""
        if not self.used:
            self._shown = tokens

    def optimizer_made(self, now: float) -> None:
        """A batch that came before there was an optimizer was looked at, and not trained on."""
        if not self.used:
            self._unused.clear()

    # What they were for

    def use(self, tally: StepTally) -> None:
        """Count what the backward pass that begins was computed from."""
        unused = self._unused
        if not unused:
            if self._shown is not None:
                tally.add_batch((None, self._shown, None))
                self._shown = None
            return
        new = unused[-1][3] > self._old
        if new and len(unused) == 1:  # as it mostly is
            source, seconds, amounts, self._old = unused.pop()
            self._sources = (source,)
            self._one_ended = False
            tally.data_wait += seconds
            self._use_one(tally, source, amounts)
            return
        if new:
            self._sources = self._training_sources([batch[0] for batch in unused if batch[3] > self._old])
            self._old = self.count
            self._one_ended = False
        due = set(self._sources)
        self._unused = []
        for source, seconds, amounts, number in unused:
            if source in self._sources:
                tally.data_wait += seconds
                if source in due:
                    due.remove(source)
                    self._use_one(tally, source, amounts)
                else:
                    self._unused.append((source, 0.0, amounts, number))

    def _training_sources(self, sources: list[Hashable]) -> set[Hashable]:
        """Which of those that gave the new batches, in this order, are for training.

        Several batches in a row from an iterator that is not the last one asked were a validation. A single one may
        be for training, on two data sets: but not the first of its iterator beside those of a training that goes on.
        """
        found = {source for source in sources if source == sources[-1] or sources.count(source) == 1}
        known = found.intersection(self._sources)
        if not known or self._one_ended:
            return found
        fresh = found - known - set(self._doubtful)
        self._doubtful.extend(fresh)
        return found - fresh

    def _use_one(self, tally: StepTally, source: Hashable, amounts: Amounts) -> None:
        self.used = True
        self.last_amounts = amounts
        tally.add_batch(amounts)
        if isinstance(source, DataPass):
            if source is not self._data_pass:
                if self._data_pass is not None:
                    self._epochs_before = self.epoch
                self._data_pass = source
            source.used += 1
            tally.epoch = self.epoch = self.epoch_of(source.used)

    def epoch_of(self, used: int) -> float | None:
        """Passes over the training data, once so many batches of this one are used."""
        length, before = self._data_pass and self._data_pass.length, self._epochs_before
        return before + used / length if length and before is not None else None

    def end_update(self, tally: StepTally, used: bool) -> None:
        """An update ends, the first one after batches were `used`, or a further one."""
        if used:
            # Batches that pile up are not fetched ahead, but put together before they are used.
            if self._ahead is not None:
                while len(self._unused) > self._ahead:
                    tally.add_batch(self._unused.pop(0)[2])
            self._ahead = len(self._unused)
        if self._unused and self._unused[-1][3] > self._old:
            self.forget_waits()  # they came before the end of this step and cannot be part of the next

    def forget_waits(self) -> None:
        self._unused = [(source, 0.0, amounts, number) for source, _, amounts, number in self._unused]
        self._old = self.count

    # Regular steps

    @property
    def data_pass(self) -> DataPass | None:
        """The pass that is trained on."""
        return self._data_pass

    @property
    def is_regular(self) -> bool:
        """Whether every step used the next batch of the same pass, or no batch was ever seen."""
        if self._unused or self._shown is not None:
            return False
        if self._data_pass is None:
            return not self.used
        return self._sources == (self._data_pass,) and self._pass[0] is self._data_pass

    def pass_regular(self, amounts: Amounts, count: int) -> None:
        """So many steps each used the next batch of the pass, and these were in the last one."""
        if self._data_pass is not None:
            self._old = self.count = self.count + count
            self._one_ended, self._ahead = False, 0
            self.last_amounts = amounts
            self._data_pass.used += count
            self.epoch = self.epoch_of(self._data_pass.used)

    # Phases

    def not_learned_since(self, source: Hashable) -> float | None:
        """When the batches in a row began that came last, if they are from here and nobody trained on them."""
        if source in self._sources or source != self._pass[0] or self._timing.backward_depth:
            return None
        return self._pass[1]

    def forget(self, first: int, last: int | None = None) -> None:
        """Batches after the number `first`, up to `last`, were not for training; those before it still are."""
        self._requested = None
        last = self.count if last is None else last
        self._unused = [batch for batch in self._unused if not first < batch[3] <= last]

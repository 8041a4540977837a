"""Hooks into PyTorch's data loaders."""

from __future__ import annotations

import functools
import time
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training import seen
from pulsetrain.training.amounts import Amounts, amounts
from pulsetrain.training.batches import DataPass
from pulsetrain.training.guard import Guard, guarded
from pulsetrain.training.hook_state import HookState, unseen_by_warnings


def watch_data(torch: Any, state: HookState) -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator.__next__
    clock, tensor, learns = time.perf_counter, torch.Tensor, torch.is_grad_enabled
    guard = Guard("The watch on data loaders")

    def pass_of(self: Any) -> DataPass:
        """Which pass over data an iterator is."""
        found: DataPass | None = getattr(self, "pulsetrain_pass", None)
        if found is None:
            found = self.pulsetrain_pass = DataPass(length_of(self))
            if learns():
                seen.note("batch_size", getattr(self._index_sampler, "batch_size", None))
        return found

    def length_of(self: Any) -> int | None:
        try:
            return len(self._index_sampler)
        except Exception:  # a sampler of the program's own, or one that does not know
            return None

    @guarded
    def ended(self: Any) -> None:
        loop = loops.current()
        if loop is not None:
            loop.note((loop.evaluations.batches_ended, clock(), pass_of(self)))

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        requested = clock()
        try:
            batch = original(self)
        except StopIteration:
            ended(self)
            raise
        if guard.works:
            try:
                now = clock()
                loop = loops._loop or loops.current()
                if loop is not None:
                    found: Amounts | None = None
                    if type(batch) is list and type(batch[0]) is tensor:
                        first = batch[0]  # most batches are like this
                        shape = first.shape
                        if shape and (len(shape) != 2 or first.is_floating_point()):  # others may be tokens
                            found = shape[0], None, None
                    if found is None:
                        found = amounts(batch, getattr(self._index_sampler, "batch_size", None))
                    state.loads = True
                    state.running = None  # one that is left there raised
                    if state.counts and found[0] is not None:
                        state.samples += found[0]
                        # Rows of whole numbers may be something else, such as categories: operations are counted then.
                        first = batch[0] if isinstance(batch, (list, tuple)) else batch
                        state.tokens = None if type(first) is tensor else found[1]
                    ready = loop.batch_ready if learns() else loop.evaluations.batch_ready
                    loop.note((ready, now, found, pass_of(self), requested))
            except Exception as error:
                guard.failed(error)
        return batch

    iterator.__next__ = unseen_by_warnings(__next__)

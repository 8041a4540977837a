"""Steps of a loop that no hook can see, such as one of JAX: the program says where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from pulsetrain.training import loop as loops
from pulsetrain.training.amounts import UNKNOWN, amounts
from pulsetrain.training.guard import guarded

Batch = TypeVar("Batch")

_amounts = guarded(amounts)


def steps(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches; what the program does with each is one step: `for batch in pulsetrain.steps(loader):`.

    Waiting for a batch counts as waiting for data. A step that is left with `break` is not counted.
    """
    loop = loops.current()
    if loop is None:
        yield from batches
        return
    source = object()
    iterator = iter(batches)
    loop.handle(loop.updates.expect_step_done)
    try:
        while True:
            loop.handle(loop.batches.requested)
            seen = loop.batches.count
            try:
                batch = next(iterator)
            except StopIteration:
                return
            loop.catch_up()
            if loop.batches.count == seen:  # otherwise a hook has seen it
                loop.handle(loop.batches.ready, _amounts(batch) or UNKNOWN, source)
            yield batch
            loop.handle(loop.updates.batch_done)
    finally:
        loop.finish()

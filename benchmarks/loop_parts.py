"""What our own code takes in a step whose own work is nothing: run by the interpreter that users train with.

Prints CPU time for a step in microseconds: of hooks on the training thread, with warm caches and with cold ones, and of
what our threads do later. Needs pulsetrain on its path, and the variables of a run to record into.
"""

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

STEPS, REPEATS = 50, 400
"""Few at once, so that some are not interrupted; the fastest count."""
CAUGHT_UP, CATCH_UPS = 250, 60
"""How many steps our threads find at once when steps take 1 ms, and how often that is repeated."""

COLD_STEPS, COLD_BYTES = 600, 8 * 2**20
"""How much is written before each hook, as a training does: more than a core's own caches hold."""

INPUTS = [torch.zeros(64, 8), torch.zeros(64)]


class Batches(dataloader._BaseDataLoaderIter):
    """A data loader's iterator that always has the same batch."""

    def __init__(self) -> None:
        self._index_sampler = range(1_000_000)


def without_work() -> None:
    """Take their work out of what the hooks wrap."""
    dataloader._BaseDataLoaderIter.__next__ = lambda self: INPUTS
    torch.autograd.backward = lambda *args, **kwargs: None


Part = Callable[[], object]


def step_parts() -> "tuple[Part, Part, Part]":
    """What a step consists of, in its order; only calls of hooks, where there are any."""
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    before, after = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
    optimizer, batches = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.01), Batches()
    loss = torch.tensor(2.3, requires_grad=True) * 1.0

    def update() -> None:
        for hook in before.values():
            hook(optimizer, (), {})
        for hook in after.values():
            hook(optimizer, (), {})

    return lambda: next(batches), lambda: torch.autograd.backward(loss), update


def training(parts: "tuple[Part, Part, Part]") -> "Callable[[int], None]":
    """Trains for so many steps."""
    load, backward, update = parts

    def train(steps: int) -> None:
        for _ in range(steps):
            load()
            backward()
            update()

    return train


def seconds_with_cold_caches(parts: "tuple[Part, Part, Part]") -> float:
    """Of a step: the median, as no other program makes caches colder than this does."""
    data = torch.zeros(COLD_BYTES // 4)
    found = []
    for _ in range(COLD_STEPS):
        spent = 0.0
        for part in parts:
            data += 1.0
            begin = time.perf_counter()
            part()
            spent += time.perf_counter() - begin
        found.append(spent)
    return statistics.median(found)


def seconds_of_hooks(train: "Callable[[int], None]") -> float:
    fastest = float("inf")
    for _ in range(REPEATS):
        begin = time.thread_time()
        train(STEPS)
        fastest = min(fastest, (time.thread_time() - begin) / STEPS)
    return fastest


def seconds_of_threads(train: "Callable[[int], None]") -> float:
    """Their work is done here, but for what they come to do themselves in the meantime."""
    from pulsetrain.training import loop as loops

    loop = loops.current()
    assert loop is not None
    fastest = float("inf")
    for _ in range(CATCH_UPS):
        before = cpu_of_threads()
        train(CAUGHT_UP)
        begin = time.thread_time()
        loop.catch_up()
        loop.recorder.flush()
        spent = time.thread_time() - begin + cpu_of_threads() - before
        fastest = min(fastest, spent / CAUGHT_UP)
    return fastest


def cpu_of_threads() -> float:
    """Seconds that threads of pulsetrain's have worked in this process."""
    ours = [thread.ident for thread in threading.enumerate() if thread.name.startswith("pulsetrain-")]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in ours if ident is not None)


def main() -> None:
    torch.set_num_threads(1)
    without_work()
    parts = step_parts()
    plain, plain_cold = seconds_of_hooks(training(parts)), seconds_with_cold_caches(parts)
    from pulsetrain.training.hooks import patch_torch

    patch_torch(torch)
    parts = step_parts()
    watched = training(parts)
    hooks, threads = seconds_of_hooks(watched) - plain, seconds_of_threads(watched)
    cold = seconds_with_cold_caches(parts) - plain_cold
    print(json.dumps({"hooks_us": 1e6 * hooks, "cold_hooks_us": 1e6 * cold, "threads_us": 1e6 * threads}))


if __name__ == "__main__":
    main()

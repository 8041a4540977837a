"""What watching adds to a step, with the hooks switched on and off again and again within one process.

Run by the interpreter that users train with: loop_switched.py PAIRS STEPS. Two processes differ by more than what is
measured here, because of where their memory lies and what else the machine does meanwhile; two neighboring blocks of
steps of one process do not. Needs pulsetrain on its path, and the variables of a run to record into.

Prints the mean of a step in microseconds for each block, unwatched and watched.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from loop_script import mlp
from torch import nn
from torch.utils.data import DataLoader, dataloader


def hooked() -> "list[tuple[Any, str]]":
    """What a plain step calls that pulsetrain replaces."""
    return [(dataloader._BaseDataLoaderIter, "__next__"), (torch.autograd, "backward")]


def tables() -> "list[Any]":
    """What the global hooks of optimizers are kept in."""
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    return [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]


def state() -> "tuple[list[Any], list[dict[int, Any]], list[Any]]":
    return [getattr(owner, name) for owner, name in hooked()], [dict(table) for table in tables()], list(gc.callbacks)


def switch(to: "tuple[list[Any], list[dict[int, Any]], list[Any]]") -> None:
    functions, hooks, callbacks = to
    for (owner, name), function in zip(hooked(), functions, strict=True):
        setattr(owner, name, function)
    for table, kept in zip(tables(), hooks, strict=True):
        table.clear()
        table.update(kept)
    gc.callbacks[:] = callbacks


def training() -> "Callable[[int], None]":
    """Trains for so many steps of about 1 ms."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, data, batch = mlp(128)
    optimizer, loss_of = torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()

    def batches() -> "Iterator[Any]":
        while True:
            yield from DataLoader(data, batch_size=batch, shuffle=False)

    endless = batches()

    def train(steps: int) -> None:
        for _ in range(steps):
            inputs, targets = next(endless)
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()

    return train


def main(pairs: int, steps: int) -> None:
    from pulsetrain.training.hooks import patch_torch

    off = state()
    patch_torch(torch)
    on = state()
    train = training()  # as under `pulsetrain run`, which is there before any optimizer
    found: dict[str, list[float]] = {"unwatched_us": [], "watched_us": []}
    for pair in range(pairs + 1):  # the first warms up
        order = (("unwatched_us", off), ("watched_us", on))
        for name, hooks in order if pair % 2 else reversed(order):
            switch(hooks)
            train(steps)  # our threads finish the block before, and come to their usual pace
            begin = time.perf_counter()
            train(steps)
            if pair:
                found[name].append(1e6 * (time.perf_counter() - begin) / steps)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

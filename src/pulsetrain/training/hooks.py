"""Hooks into PyTorch, for a training that knows nothing of us.

Each patch leaves type, signature, result and exceptions of what it wraps as they are. Its own part is guarded, and
steps aside while torch.compile traces through it.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training.checkpoints import watch_checkpoints
from pulsetrain.training.collectives import watch_collectives
from pulsetrain.training.collector import watch_collector
from pulsetrain.training.guard import guarded
from pulsetrain.training.hook_state import HookState, untraced
from pulsetrain.training.hooked_backward import watch_backward, watch_gradients, watch_scalers
from pulsetrain.training.hooked_data import watch_data
from pulsetrain.training.hooked_updates import watch_clipping, watch_new_optimizers, watch_optimizers
from pulsetrain.training.ranks import of_group
from pulsetrain.training.seen import watch_autocast, watch_seeds


def patch_torch(torch: Any) -> None:
    """Watch optimizers, data loaders, backward passes, modes of models, scalers and clipping in this process."""
    if getattr(torch, "_pulsetrain_watches", False):
        return
    torch._pulsetrain_watches = True
    state = HookState(torch)
    guarded(watch_collector)()
    guarded(watch_checkpoints)(torch)
    guarded(watch_collectives)(torch)
    guarded(watch_seeds)()
    guarded(watch_autocast)(torch, state.optimizers)
    untraced(torch, guarded(patch_torch))  # and with it all that are guarded: they share their code
    for watch in (
        *(watch_backward, watch_gradients, watch_scalers, watch_data, _watch_modes, watch_clipping),
        *(watch_optimizers, watch_new_optimizers, _watch_groups),
    ):
        guarded(watch)(torch, state)


def _watch_modes(torch: Any, state: HookState) -> None:
    """Note when a model changes between training and evaluation; its parts follow it."""
    original = torch.nn.Module.train
    compiling, clock = state.compiling, time.perf_counter
    outermost = True

    @guarded
    def switched(model: Any, mode: bool) -> None:
        loop = loops.current()
        if loop is not None:
            loop.note((loop.evaluations.switched, clock(), id(model), mode))

    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:
        nonlocal outermost
        if compiling() or not outermost:
            return original(self, mode)
        before, outermost = getattr(self, "training", mode), False
        try:
            if before and not mode:
                switched(self, mode)
            return original(self, mode)
        finally:
            outermost = True
            if mode and not before:
                switched(self, mode)

    torch.nn.Module.train = train


def _watch_groups(torch: Any, state: HookState) -> None:
    """Ask a process group for this process's rank as soon as there is one: a short program has left it soon."""
    if not torch.distributed.is_available():
        return
    module = torch.distributed.distributed_c10d
    original = module.init_process_group
    ask = guarded(of_group)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        ask()
        return result

    module.init_process_group = torch.distributed.init_process_group = init_process_group

"""Hooks into PyTorch's optimizers, and into what clips gradients before them."""

from __future__ import annotations

import functools
import gc
import time
from importlib import import_module
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training.flops import FlopCount
from pulsetrain.training.gradient_norm import GradientNorm
from pulsetrain.training.guard import Guard, guarded
from pulsetrain.training.hook_state import HookState, unseen_by_warnings, untraced


def watch_clipping(torch: Any, state: HookState) -> None:
    module = torch.nn.utils.clip_grad
    original, original_value = module.clip_grad_norm_, module.clip_grad_value_
    compiling = state.compiling

    @guarded
    def clipped(norm: Any) -> None:
        loop = loops.current()
        if loop is not None:
            state.clipped = True
            _note_norm(torch, loop, norm)

    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        if float(kwargs.get("norm_type", args[2] if len(args) > 2 else 2.0)) == 2.0:
            if compiling():
                state.compiled_norm = norm
            else:
                clipped(norm)
        return norm

    @functools.wraps(original_value)
    def clip_grad_value_(*args: Any, **kwargs: Any) -> None:
        state.clipped = True
        original_value(*args, **kwargs)

    module.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = unseen_by_warnings(clip_grad_norm_)
    module.clip_grad_value_ = torch.nn.utils.clip_grad_value_ = clip_grad_value_
    original_with = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
    if original_with is None:  # before PyTorch 2.6
        return

    @functools.wraps(original_with)
    def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any) -> None:
        original_with(parameters, max_norm, total_norm, *args, **kwargs)
        if compiling():
            state.compiled_norm = total_norm
        else:
            clipped(total_norm)

    torch.nn.utils.clip_grads_with_norm_ = clip_grads_with_norm_


def _note_norm(torch: Any, loop: loops.Loop, norm: Any) -> None:
    if type(norm) is torch.Tensor:
        value = norm.item() if norm.is_cpu else loop.values.read("gradient_norm", norm)
        loop.note((loop.add_gradient_norm, 0.0, value, None))


def watch_optimizers(torch: Any, state: HookState) -> None:
    clock = time.perf_counter
    norm = GradientNorm(torch)
    flops = FlopCount(torch)
    measure = guarded(norm.measure)
    count = guarded(flops.after_update)
    guard = Guard("The watch on optimizers")

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        state.updates += 1
        if guard.works:
            try:
                loop = loops._loop or loops.current()
                if loop is not None:
                    key = id(optimizer)
                    if state.running is None:
                        state.running = key
                    loop.note((loop.optimizer_begin, clock(), key))
            except Exception as error:
                guard.failed(error)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if guard.works:
            try:
                loop = loops._loop or loops.current()
                if loop is not None:
                    key, now = id(optimizer), clock()
                    if state.running == key:
                        state.running = None
                        begins = state.begins_step(key, optimizer, now)
                        if state.compiled_norm is not None:
                            compiled_norm, state.compiled_norm = state.compiled_norm, None
                            state.clipped = True
                            _note_norm(torch, loop, compiled_norm)
                        if norm.runs or (begins and norm.next <= now):
                            measure(loop, optimizer, begins, state.clipped)
                            now = clock()
                        if state.counts:
                            count(loop, optimizer, begins, state.samples, state.tokens)
                            state.counts = not flops.done
                    state.passes, state.clipped, state.loads = 0, False, False
                    try:
                        rate = optimizer.param_groups[0]["lr"]
                        if type(rate) is not float:
                            rate = loop.values.read("learning_rate", rate)
                    except (AttributeError, LookupError, TypeError):  # an optimizer of the user's own making
                        rate = None
                    loop.note((loop.optimizer_end, now, key, rate))
            except Exception as error:
                guard.failed(error)

    module = import_module("torch.optim.optimizer")  # torch.optim hides it
    module.register_optimizer_step_pre_hook(untraced(torch, before_step))
    module.register_optimizer_step_post_hook(untraced(torch, after_step))


def watch_new_optimizers(torch: Any, state: HookState) -> None:
    kind = torch.optim.Optimizer
    original = kind._patch_step_function  # called by every constructor

    @guarded
    def made(self: Any) -> None:
        state.add_optimizer(self)
        loop = loops.existing()
        if loop is not None:
            loop.note((loop.batches.optimizer_made, time.perf_counter()))

    @functools.wraps(original)
    def _patch_step_function(self: Any) -> None:
        original(self)
        made(self)

    kind._patch_step_function = _patch_step_function
    if not getattr(torch.__spec__, "_initializing", False):  # PyTorch was there before us, and so may optimizers be
        for one in gc.get_objects():
            if issubclass(type(one), kind):
                state.add_optimizer(one)

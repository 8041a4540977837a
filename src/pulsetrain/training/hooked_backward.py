"""Hooks into PyTorch's backward passes, and into scalers of the losses that they begin with."""

from __future__ import annotations

import functools
import time
import weakref
from typing import Any

from pulsetrain.training import loop as loops
from pulsetrain.training.guard import Guard, guarded
from pulsetrain.training.hook_state import HookState, unseen_by_warnings, untraced
from pulsetrain.training.target_tokens import target_tokens

MEMORY_SECONDS = 1.0
MOST_LOSSES = 4
"""Of one update, that are read from a device."""


def watch_backward(torch: Any, state: HookState) -> None:
    original = torch.autograd.backward
    clock, tensor = time.perf_counter, torch.Tensor
    modes = torch._C._len_torch_dispatch_stack
    memory = CudaMemory(torch) if torch.backends.cuda.is_built() else None
    guard = Guard("The watch on backward passes")
    show_tokens, number, read_loss = guarded(_show_tokens), untraced(torch, _number), untraced(torch, _read_loss)

    def look(loop: loops.Loop, args: Any, loss: Any) -> tuple[Any, float]:
        """The number that a backward pass begins with, if it is to be read, and what it was divided by."""
        if type(loss) is not tensor or (len(args) > 1 and args[1] is not None) or modes():
            return None, 1.0  # not a loss; or a mode sees each operation, and may not want one more
        if not state.loads:
            show_tokens(loop, loss)
        if not state.wants_losses and state.scaled is None:
            return None, 1.0
        if state.passes == 1 and state.scaled is None and loss.is_cpu:
            return number(loss), 1.0
        found: tuple[Any, float] = read_loss(loop, state, loss)
        return found

    look = untraced(torch, look)

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        state.backward_depth += 1
        if guard.works:
            try:
                loop = loops._loop or loops.current()
                if loop is not None:
                    now, divided_by = clock(), 1.0
                    loss: Any = args[0] if args and state.backward_depth == 1 else None
                    if loss is not None:
                        state.passes += 1
                        if state.wants_losses or not state.loads or state.scaled is not None:
                            loss, divided_by = look(loop, args, loss)
                        else:
                            loss = None
                        if memory is not None:
                            memory.read(loop)
                    begin = loop.backward_begin if state.optimizers else state.begin_by_hand(loop)
                    loop.note((begin, now, loss, divided_by))
            except Exception as error:
                guard.failed(error)
        try:
            return original(*args, **kwargs)
        finally:
            state.backward_depth -= 1
            if guard.works and loop is not None:
                loop.note((loop.backward_end, clock()))

    # TorchScript knows functions by their identity.
    torch.jit._builtins._register_builtin(backward, "aten::backward")
    torch.autograd.backward = untraced(torch, unseen_by_warnings(backward), all_ours=False)


def watch_gradients(torch: Any, state: HookState) -> None:
    """`torch.autograd.grad` is the backward pass of a program that has no optimizer; otherwise part of its forward."""
    original = torch.autograd.grad
    compiling, clock = state.compiling, time.perf_counter

    @guarded
    def begun(outputs: Any) -> loops.Loop | None:
        loop = loops.current()
        if loop is not None:
            loss = outputs if isinstance(outputs, torch.Tensor) else None
            if loss is not None:
                loss = loop.values.read("loss", loss)
            loop.note((loop.updates.by_hand_begin, clock(), loss, 1.0))
        return loop

    @functools.wraps(original)
    def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        # With a graph of its own it is a part of something that follows, as in a penalty.
        if compiling() or state.optimizers or state.backward_depth or kwargs.get("create_graph"):
            return original(outputs, *args, **kwargs)
        loop = begun(outputs)
        try:
            return original(outputs, *args, **kwargs)
        finally:
            if loop is not None:
                loop.note((loop.backward_end, clock()))

    torch.autograd.grad = unseen_by_warnings(grad)


def _show_tokens(loop: loops.Loop, loss: Any) -> None:
    tokens = target_tokens(loss)
    if tokens is not None:
        loop.note((loop.batches.shown, time.perf_counter(), tokens))


def _number(loss: Any) -> float | None:
    try:
        return float(loss.item())
    except RuntimeError:  # it is not one number, of which the backward pass will complain
        return None


def _read_loss(loop: loops.Loop, state: HookState, loss: Any) -> tuple[Any, float]:
    """The loss that a backward pass begins with, and what it was divided by."""
    divided_by = 1.0
    if state.scaled is not None:
        matches = state.scaled() is loss
        loss, divided_by = state.loss, state.divided_by
        state.scaled = state.loss = None
        if not matches:
            loop.recorder.note_once("not_seen", "The loss is not recorded: it was combined after GradScaler.scale().")
            return None, 1.0
    elif state.passes > 1:
        divided_by = _divisor(loss)
    follows = state.reads_losses and 1 < state.passes <= MOST_LOSSES
    value = loop.values.read("loss", loss, now=follows)
    state.reads_losses = value is not None
    return value, divided_by


def _divisor(loss: Any) -> float:
    """What the loss was divided by in its last operation; 1 if it was not."""
    operation = loss.grad_fn
    kind = type(operation).__name__
    if kind not in ("DivBackward0", "MulBackward0"):
        return 1.0
    other = operation._saved_other
    if other is None or not other.is_cpu or other.numel() != 1:
        return 1.0
    number = float(other.item())
    if kind == "DivBackward0":
        return number
    return round(1.0 / number, 9) if number else 1.0


class CudaMemory:
    """The CUDA allocator's figures when a backward pass begins, which is when a step holds most; once a second."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self._next = 0.0

    def read(self, loop: loops.Loop) -> None:
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + MEMORY_SECONDS
        if self._cuda.is_initialized():
            allocated, reserved = self._cuda.memory_allocated() / 2**20, self._cuda.memory_reserved() / 2**20
            figures = {"memory_allocated_mb": allocated, "memory_reserved_mb": reserved}
            loop.note((loop.lines.report, now, figures))


def watch_scalers(torch: Any, state: HookState) -> None:
    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # before PyTorch 2.3 there was no other
    original_step = scaler.step
    compiling = state.compiling

    @guarded
    def scaled(outputs: Any, result: Any) -> None:
        if result is outputs:  # it is not enabled
            return
        state.scaled = lambda: None  # something is, but not known what
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            state.scaled = weakref.ref(result)
            state.loss = outputs.detach()
            state.divided_by = _divisor(outputs) if state.passes else 1.0

    def wrap(kind: Any) -> None:
        original = kind.scale

        @functools.wraps(original)
        def scale(self: Any, outputs: Any) -> Any:
            result = original(self, outputs)
            if not compiling():
                scaled(outputs, result)
            return result

        kind.scale = scale

    @guarded
    def wrap_all(kind: Any) -> None:
        """Also those kinds of scalers that scale in their own way."""
        if "scale" in vars(kind):
            wrap(kind)
        for further in kind.__subclasses__():
            wrap_all(further)

    def __init_subclass__(kind: Any, /, **kwargs: Any) -> None:
        super(scaler, kind).__init_subclass__(**kwargs)
        wrap_all(kind)

    @guarded
    def stepped(self: Any, optimizer: Any, updates_before: int) -> None:
        loop = loops.current()
        if loop is not None and state.updates == updates_before and self.is_enabled():
            state.passes = 0
            loop.note((loop.updates.update_skipped, time.perf_counter(), id(optimizer)))

    @functools.wraps(original_step)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        updates_before = state.updates
        result = original_step(self, optimizer, *args, **kwargs)
        stepped(self, optimizer, updates_before)
        return result

    wrap_all(scaler)
    scaler.__init_subclass__ = classmethod(__init_subclass__)
    scaler.step = unseen_by_warnings(step)

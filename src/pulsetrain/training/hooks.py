"""What PyTorch is asked to tell about a training that knows nothing of us.

Each patch leaves type, signature, result and exceptions of what it wraps as they are. Its own part is guarded, and
steps aside while torch.compile traces through it.
"""

from __future__ import annotations

import functools
import itertools
import time
import weakref
from collections.abc import Hashable
from importlib import import_module
from typing import Any, Callable

from pulsetrain.training import loop as loops
from pulsetrain.training.batches import amounts
from pulsetrain.training.flops import FlopCount
from pulsetrain.training.gradient_norm import GradientNorm
from pulsetrain.training.guard import Guard, guarded

MEMORY_SECONDS = 1.0


def patch_torch(torch: Any) -> None:
    """Watch optimizers, data loaders, backward passes, gradient scalers and clipping of this process."""
    if getattr(torch, "_pulsetrain_watches", False):
        return
    torch._pulsetrain_watches = True
    training = _Training(torch)
    for watch in (_watch_backward, _watch_scalers, _watch_data, _watch_clipping, _watch_optimizers):
        guarded(watch)(torch, training)


class _Training:
    """What the patches tell each other."""

    def __init__(self, torch: Any) -> None:
        self.compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)
        """Whether torch.compile is tracing; it knows the answer without looking into the function."""
        self.backward_depth = 0
        self.passes = 0
        """Backward passes since the last update."""
        self.updates = 0
        self.running: Hashable = None
        """The optimizer inside its update, which may run others."""
        self.counts = True
        """Whether samples and tokens are still asked for."""
        self.samples = 0
        """Of all batches so far."""
        self.tokens: int | None = None
        """Of the last batch."""
        self.clipped = False
        """Whether the program computed the norm of its gradients since the last update."""
        self.scaled: Callable[[], Any] | None = None
        """Gives what a gradient scaler last made of a loss, while that lives."""
        self.loss: Any = None
        """What it made it of."""
        self.divided_by = 1.0
        self.only: Hashable = None
        """The optimizer that updated last, when it did so without others in between."""
        self._first: Any = None
        """A weak reference to the optimizer whose update begins a step: when it dies, its id may become another's."""
        self._first_key: Hashable = None
        self._others: set[Hashable] = set()
        """Those that updated since."""

    def begins_step(self, key: Hashable, optimizer: Any) -> bool:
        """Whether the update of this optimizer is the first of a step: since the last such came only others."""
        if key == self._first_key or key in self._others:
            self.only = None if self._others else key
            self._others.clear()
            if key != self._first_key:
                self._first_key, self._first = key, weakref.ref(optimizer, self._forget)
            return True
        self.only = None
        self._others.add(key)
        return False

    def _forget(self, first: Any) -> None:
        if first is self._first:
            self._first = self._first_key = self.only = None
            self._others.clear()


def _untraced(torch: Any, function: Any) -> Any:
    """Keep torch.compile from tracing a function: what it notes must be noted at every call, not once."""
    function._torchdynamo_disable = True
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):
        frames.skip_code(function.__code__)
    elif hasattr(frames, "set_code_exec_strategy"):  # from PyTorch 2.7 on
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, strategy)
    return function


def _watch_data(torch: Any, training: _Training) -> None:
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator.__next__
    clock, tensor = time.perf_counter, torch.Tensor
    guard = Guard("The watch on data loaders")
    passes = itertools.count(1)

    def pass_of(self: Any) -> int:
        """Which pass over data an iterator is. Not its id: the next one may get the same place in memory."""
        number: int | None = getattr(self, "pulsetrain_pass", None)
        if number is None:
            number = self.pulsetrain_pass = next(passes)
        return number

    @guarded
    def ended(self: Any) -> None:
        loop = loops.current()
        if loop is not None:
            loop.note(("batches_ended", clock(), pass_of(self)))

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
                    samples, tokens = None, None
                    if type(batch) is list and type(batch[0]) is tensor:
                        shape = batch[0].shape  # most batches are like this
                        samples = shape[0] if shape else None
                    if samples is None:
                        samples, tokens = amounts(batch, getattr(self._index_sampler, "batch_size", None))
                    training.running = None  # one that is left there raised
                    if training.counts and samples is not None:
                        training.samples += samples
                        training.tokens = tokens
                    loop.note(("batch_ready", now, samples, tokens, pass_of(self), requested))
            except Exception as error:
                guard.failed(error)
        return batch

    iterator.__next__ = __next__


def _watch_backward(torch: Any, training: _Training) -> None:
    original = torch.autograd.backward
    clock, tensor = time.perf_counter, torch.Tensor
    modes = torch._C._len_torch_dispatch_stack
    memory = _Memory(torch) if torch.backends.cuda.is_built() else None
    guard = Guard("The watch on backward passes")

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        training.backward_depth += 1
        if guard.works:
            try:
                loop = loops._loop or loops.current()
                if loop is not None:
                    now, divided_by = clock(), 1.0
                    loss: Any = args[0] if args and training.backward_depth == 1 else None
                    if loss is not None:
                        training.passes += 1
                        if type(loss) is not tensor or (len(args) > 1 and args[1] is not None) or modes():
                            loss = None  # not a loss; or a mode sees each operation, and may not want one more
                        elif loss.is_cpu and training.passes == 1 and training.scaled is None:
                            try:
                                loss = loss.item()
                            except RuntimeError:  # it is not one number, of which the backward pass will complain
                                loss = None
                        else:
                            loss, divided_by = _read_loss(loop, training, loss)
                        if memory is not None:
                            memory.read(loop)
                    loop.note(("backward_begin", now, loss, divided_by))
            except Exception as error:
                guard.failed(error)
        try:
            return original(*args, **kwargs)
        finally:
            training.backward_depth -= 1
            if guard.works and loop is not None:
                loop.note(("backward_end", clock()))

    # TorchScript knows functions by their identity.
    torch.jit._builtins._register_builtin(backward, "aten::backward")
    torch.autograd.backward = _untraced(torch, backward)


def _read_loss(loop: loops.Loop, training: _Training, loss: Any) -> tuple[Any, float]:
    """The loss that a backward pass begins with, and what it was divided by."""
    divided_by = 1.0
    if training.scaled is not None:
        matches = training.scaled() is loss
        loss, divided_by = training.loss, training.divided_by
        training.scaled = training.loss = None
        if not matches:
            loop.recorder.note_once("not_seen", "The loss is not recorded: it was combined after GradScaler.scale().")
            return None, 1.0
    elif training.passes > 1:
        divided_by = _divisor(loss)
    return loop.readable("loss", loss), divided_by


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


class _Memory:
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
            loop.note(("report", now, {"memory_allocated_mb": allocated, "memory_reserved_mb": reserved}))


def _watch_scalers(torch: Any, training: _Training) -> None:
    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # before PyTorch 2.3 there was no other
    original_init, original_step = scaler.__init__, scaler.step
    compiling = training.compiling

    @guarded
    def scaled(outputs: Any, result: Any) -> None:
        if result is outputs:  # it is not enabled
            return
        training.scaled = lambda: None  # something is, but not known what
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            training.scaled = weakref.ref(result)
            training.loss = outputs.detach()
            training.divided_by = _divisor(outputs) if training.passes else 1.0

    def wrap(kind: Any) -> None:
        original = kind.scale

        @functools.wraps(original)
        def scale(self: Any, outputs: Any) -> Any:
            result = original(self, outputs)
            if not compiling():
                scaled(outputs, result)
            return result

        scale.pulsetrain_watches = True  # type: ignore[attr-defined]
        kind.scale = scale

    @guarded
    def made(self: Any) -> None:
        if not hasattr(type(self).scale, "pulsetrain_watches"):  # a kind of scaler that scales in its own way
            wrap(type(self))

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        made(self)

    @guarded
    def stepped(self: Any, optimizer: Any, updates_before: int) -> None:
        loop = loops.current()
        if loop is not None and training.updates == updates_before and self.is_enabled():
            training.passes = 0
            loop.note(("update_skipped", time.perf_counter(), id(optimizer)))

    @functools.wraps(original_step)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        updates_before = training.updates
        result = original_step(self, optimizer, *args, **kwargs)
        stepped(self, optimizer, updates_before)
        return result

    wrap(scaler)
    scaler.__init__ = __init__
    scaler.step = step


def _watch_clipping(torch: Any, training: _Training) -> None:
    module = torch.nn.utils.clip_grad
    original = module.clip_grad_norm_
    compiling = training.compiling

    @guarded
    def clipped(norm: Any, args: Any, kwargs: Any) -> None:
        loop = loops.current()
        kind = kwargs.get("norm_type", args[2] if len(args) > 2 else 2.0)
        if loop is not None and type(norm) is torch.Tensor and float(kind) == 2.0:
            training.clipped = True
            value = norm.item() if norm.is_cpu else loop.readable("gradient_norm", norm)
            loop.note(("add_gradient_norm", 0.0, value))

    @functools.wraps(original)
    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        if not compiling():
            clipped(norm, args, kwargs)
        return norm

    module.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = clip_grad_norm_


def _watch_optimizers(torch: Any, training: _Training) -> None:
    clock = time.perf_counter
    norm = GradientNorm(torch)
    flops = FlopCount(torch)
    measure = guarded(norm.measure)
    count = guarded(flops.after_update)
    guard = Guard("The watch on optimizers")

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        training.updates += 1
        if guard.works:
            try:
                loop = loops._loop or loops.current()
                if loop is not None:
                    key = id(optimizer)
                    if training.running is None:
                        training.running = key
                    loop.note(("optimizer_begin", clock(), key))
            except Exception as error:
                guard.failed(error)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if guard.works:
            try:
                loop = loops._loop or loops.current()
                if loop is not None:
                    key, now = id(optimizer), clock()
                    if training.running == key:
                        training.running = None
                        begins = key == training.only or training.begins_step(key, optimizer)
                        if norm.runs or (begins and norm.next <= now):
                            measure(loop, optimizer, begins, training.clipped)
                            now = clock()
                        if training.counts:
                            count(loop, optimizer, begins, training.samples, training.tokens)
                            training.counts = not flops.done
                    training.passes, training.clipped = 0, False
                    try:
                        rate = optimizer.param_groups[0]["lr"]
                        if type(rate) is not float:
                            rate = loop.readable("learning_rate", rate)
                    except (AttributeError, LookupError, TypeError):  # an optimizer of the user's own making
                        rate = None
                    loop.note(("optimizer_end", now, key, rate))
            except Exception as error:
                guard.failed(error)

    module = import_module("torch.optim.optimizer")  # torch.optim hides it
    module.register_optimizer_step_pre_hook(_untraced(torch, before_step))
    module.register_optimizer_step_post_hook(_untraced(torch, after_step))

"""Keras 3 on any backend: its steps, epochs, validations and metrics.

Keras has optimizers of its own, which the torch hooks do not see, so its callbacks alone say when a step is done.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from pulsetrain.training import callbacks, config, seen
from pulsetrain.training import loop as loops
from pulsetrain.training.guard import guarded

SCHEDULE_SECONDS = 1.0
"""A learning rate that a schedule computes is asked for this often."""


_epochs_done: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Of each model, in all of its trainings."""


def install(module: Any) -> None:
    """Give every list of callbacks ours. `module` is `keras.src.callbacks.callback_list`."""
    kind = module.CallbackList
    original_init = kind.__init__
    original_end = kind.on_train_batch_end
    if hasattr(original_init, "pulsetrain_watches"):
        return

    @guarded
    def made(self: Any, iterator: Any) -> None:
        ours: Any = next((callback for callback in self.callbacks if isinstance(callback, KerasEvents)), None)
        if ours is None:
            ours = __getattr__("PulsetrainCallback")()
            ours.set_params(self.params)
            ours.set_model(getattr(self, "_model", None))
            self.callbacks.append(ours)
        ours.read_from(getattr(iterator, "data_adapter", None))
        self.pulsetrain_callback = ours

    @functools.wraps(original_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        # `fit` tells its callbacks nothing of the batches, but has them at hand where it makes this list.
        made(self, sys._getframe(1).f_locals.get("epoch_iterator"))

    @guarded
    def ended(self: Any, batch: int) -> None:
        ours = getattr(self, "pulsetrain_callback", None)
        if ours is not None:
            ours.batch_ended(batch)

    @functools.wraps(original_end)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        ended(self, batch)  # before Keras leaves the rest to another thread
        original_end(self, batch, logs)

    __init__.pulsetrain_watches = True  # type: ignore[attr-defined]
    kind.__init__ = __init__
    kind.on_train_batch_end = on_train_batch_end
    guarded(_watch_optimizers)()


def _watch_optimizers() -> None:
    """Listen to updates of the weights, where torch makes them."""
    kind = sys.modules["keras.src.optimizers.base_optimizer"].BaseOptimizer  # Keras imports it before its callbacks
    original = kind.apply

    def watched() -> bool:
        return _torch_hooks_report() and not sys.modules["torch"].compiler.is_compiling()

    @guarded
    def begin(self: Any) -> None:
        loop = loops.current()
        if loop is not None and watched():
            loop.handle(loop.updates.optimizer_begin, id(self))

    @guarded
    def end(self: Any) -> None:
        loop = loops.current()
        if loop is not None and watched():
            rate = loop.values.read("learning_rate", getattr(self._learning_rate, "value", None))
            loop.handle(loop.updates.optimizer_end, id(self), rate)

    @functools.wraps(original)
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin(self)
        result = original(self, *args, **kwargs)
        end(self)
        return result

    kind.apply = apply


@guarded
def _record_settings(model: Any, optimizer: Any, params: Any) -> None:
    """How the model was compiled and is fitted."""
    settings = {name: (params or {}).get(name) for name in ("epochs", "steps")}
    if optimizer is not None:
        settings["optimizer"] = optimizer.get_config()
    config.record({name: value for name, value in settings.items() if value is not None}, "Keras")
    seen.note("parameters", int(model.count_params()))
    seen.note("precision", str(getattr(getattr(model, "dtype_policy", None), "name", "") or "") or None)


class KerasEvents:
    """The callback without its base class, which is there only where Keras is."""

    async_safe = True
    """Keras need not wait for it: `on_train_batch_end` may run in another thread, later, and not in order."""
    _model: Any
    params: Any

    def __init__(self) -> None:
        super().__init__()
        module = sys.modules.get("keras.src.callbacks.callback_list")
        if module is not None:
            install(module)  # when somebody gives the callback to `fit`, without `pulsetrain run`
        self._phases = callbacks.OpenPhases()
        self._batch_size: int | None = None
        self._last_batch_size: int | None = None
        self._training = False
        self._lock = threading.Lock()
        self._end = self._batch_begin = time.perf_counter()
        self._epoch = 0
        self._epochs_before = 0
        """Epochs of earlier trainings of the model, where this one numbers its own from 0 again."""
        self._total_steps: int | None = None
        self._steps_before = 0
        """Steps before this epoch, counted over all trainings of the optimizer, as Keras does."""
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._done = 0
        self._lines: dict[int, list[dict[str, Any]]] = {}
        """The lines of steps whose loss is not known yet, by the number of the last batch in them."""
        self._means: dict[int, float | None] = {}
        """Mean losses since the begin of the epoch, by the same number, until it is their turn."""
        self._total, self._weight = 0.0, 0.0
        """The sum of all losses of the epoch so far, and how much they weigh."""
        self._learning_rate: Any = None
        self._schedule: Any = None
        self._schedule_read_at = float("-inf")

    def read_from(self, adapter: Any) -> None:
        """Where the batches come from: an adapter of Keras, which may know how large they are."""
        with suppress(NotImplementedError, AttributeError):
            self._batch_size = adapter.batch_size
            self._last_batch_size = adapter.partial_batch_size or self._batch_size

    @guarded
    def on_train_begin(self, logs: Any = None) -> None:
        self._training = True
        self._phases.end_all()
        optimizer = getattr(self._model, "optimizer", None)
        self._steps_before = int(optimizer.iterations.numpy()) if optimizer is not None else 0
        _record_settings(self._model, optimizer, self.params)
        self._total_steps = None
        callbacks.begin_training(self._steps_before, None)
        loop = loops.current()
        if loop is not None:
            loop.recorder.note_once("not_seen", "The gradient norm is not recorded: Keras does not show its gradients.")
        self._end = self._batch_begin = time.perf_counter()

    @guarded
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._steps_before += self._done
        self._begin_epoch()
        if epoch == 0:
            self._epochs_before = _epochs_done.get(self._model, 0)
        self._epoch = epoch
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        loop = loops.current()
        if steps and epochs and loop is not None:
            self._total_steps = self._steps_before + steps * (epochs - epoch)
            loop.handle(loop.lines.set_total_steps, self._total_steps)
        self._read_learning_rate()

    @guarded
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._batch_begin = time.perf_counter()

    def batch_ended(self, batch: int) -> None:
        """Called by the thread that trains, right after the batch that has this number in its epoch."""
        loop = loops.current()
        steps = self.params.get("steps")
        first, self._done = self._done + 1, min(batch + 1, steps) if steps else batch + 1
        last = self._steps_before + self._done
        if loop is None:
            return
        if _torch_hooks_report():
            self._ask_schedule(last)
            rate = {} if self._learning_rate is None else {"learning_rate": self._learning_rate}
            loop.handle(loop.updates.step_done, last, {"epoch": self._epoch_at(self._done), **rate})
            return
        loop.handle(loop.updates.at_step, last)
        lines = self._new_lines(range(first, self._done + 1))
        with self._lock:
            self._lines[batch] = lines

    def _new_lines(self, numbers: range) -> list[dict[str, Any]]:
        """A line for each of these steps of the epoch; several run in one go with `steps_per_execution`."""
        begin, self._end = self._end, time.perf_counter()
        seconds = (self._end - begin) / max(1, len(numbers))
        other_seconds = (self._batch_begin - begin) / max(1, len(numbers))
        lines = []
        for number in numbers:
            line: dict[str, Any] = {"step": self._steps_before + number}
            line.update(step_seconds=seconds, other_seconds=other_seconds)
            line.update(epoch=self._epoch_at(number), total_steps=self._total_steps)
            samples = self._last_batch_size if number == self.params.get("steps") else self._batch_size
            if samples:
                line.update(samples=samples, throughput_samples_per_sec=samples / seconds)
            lines.append(line)
        return lines

    def _epoch_at(self, number: int) -> float:
        steps = self.params.get("steps")
        return self._epochs_before + self._epoch + (number / steps if steps else 0)

    @guarded
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called by any thread, in any order."""
        if _torch_hooks_report():
            return
        with self._lock:
            self._means[batch] = (logs or {}).get("loss")
            self._record_known(keep=1)

    def _record_known(self, keep: int) -> None:
        """Record lines whose loss is known, in their order, but for the last ones."""
        while len(self._lines) > keep and next(iter(self._lines)) in self._means:
            first = next(iter(self._lines))
            self._record(self._lines.pop(first), self._means.pop(first))

    def _record_last(self) -> None:
        """Keras has waited for all steps. What was left of those that had only begun counts for the last."""
        with self._lock:
            if self._lines:
                lines = self._lines[next(reversed(self._lines))]
                begin, self._end = self._end, time.perf_counter()
                for line in lines:
                    line["step_seconds"] += (self._end - begin) / len(lines)
                    if "samples" in line:
                        line["throughput_samples_per_sec"] = line["samples"] / line["step_seconds"]
                self._record_known(keep=0)

    def _record(self, lines: list[dict[str, Any]], mean: float | None) -> None:
        loop = loops.current()
        if loop is None:
            return
        if lines:
            self._ask_schedule(lines[-1]["step"])
        loss = self._loss_of(lines, mean) if mean is not None else None
        for line in lines:
            line.update(loss=loss, learning_rate=self._learning_rate)
            loop.recorder.add(line)

    def _loss_of(self, lines: list[dict[str, Any]], mean: float) -> float:
        """The loss of these steps alone. Keras gives the mean over the epoch so far, weighted by samples."""
        weight = float(sum(line.get("samples", 1) for line in lines))
        if not _keeps_mean(self._model) or not weight:
            return mean
        before, self._weight = self._total, self._weight + weight
        self._total = mean * self._weight
        return (self._total - before) / weight

    def _read_learning_rate(self) -> None:
        rate: Any = getattr(getattr(self._model, "optimizer", None), "_learning_rate", None)
        if isinstance(rate, sys.modules["keras"].optimizers.schedules.LearningRateSchedule):
            self._schedule = rate
        elif hasattr(rate, "numpy"):
            self._learning_rate = float(rate.numpy())

    def _ask_schedule(self, step: int) -> None:
        """The learning rate of a step, now and then; the recorder fetches it from where it is computed."""
        if self._schedule is None:
            return
        now = time.perf_counter()
        self._learning_rate = None
        if now - self._schedule_read_at >= SCHEDULE_SECONDS:
            self._schedule_read_at = now
            self._learning_rate = self._schedule(step - 1)

    @guarded
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._record_last()
        done = self._epochs_before + epoch + 1
        _epochs_done[self._model] = done
        callbacks.record_metrics(self._steps_before + self._done, done, logs or {})

    @guarded
    def on_train_end(self, logs: Any = None) -> None:
        self._training = False
        callbacks.end_training()

    @guarded
    def on_test_begin(self, logs: Any = None) -> None:
        if self._training:
            self._record_last()
        self._phases.begin("validation" if self._training else "test")

    @guarded
    def on_test_end(self, logs: Any = None) -> None:
        self._phases.end()
        if not self._training:  # there, they are among those of the epoch
            metrics = {"test_" + name: value for name, value in (logs or {}).items()}
            callbacks.record_metrics(self._steps_before + self._done, None, metrics)

    @guarded
    def on_predict_begin(self, logs: Any = None) -> None:
        self._phases.begin("predict")

    @guarded
    def on_predict_end(self, logs: Any = None) -> None:
        self._phases.end()


def _torch_hooks_report() -> bool:
    """Whether batches, losses and backward passes come from the torch hooks."""
    return callbacks.torch_is_watched() and sys.modules["keras"].backend.backend() == "torch"


def _keeps_mean(model: Any) -> bool:
    """Whether the loss in the logs is Keras's own running mean: a train_step of the user's may give anything."""
    step = getattr(type(model), "train_step", None)
    return getattr(step, "__module__", "").startswith("keras.")


def __getattr__(name: str) -> Any:
    """`PulsetrainCallback`, made when it is first asked for, because its base class needs Keras."""
    if name != "PulsetrainCallback":
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    base = import_module("keras").callbacks.Callback
    made = type(name, (KerasEvents, base), {"__module__": __name__, "__doc__": "Records the training of a `fit`."})
    globals()[name] = made
    return made

"""Lightning, as `lightning` and as `pytorch_lightning`: its steps, epochs, validations, checkpoints and metrics."""

from __future__ import annotations

import functools
import math
from importlib import import_module
from typing import Any

from pulsetrain.training import callbacks, config, seen
from pulsetrain.training import loop as loops
from pulsetrain.training.amounts import amounts
from pulsetrain.training.guard import guarded

_BASES = {"PulsetrainCallback": "lightning.pytorch", "PytorchLightningCallback": "pytorch_lightning"}
"""Our callback for each of the two packages, which are the same code twice."""


def install(module: Any) -> None:
    """Give every Trainer our callback. `module` is `lightning.pytorch.trainer.trainer`, or its twin."""
    connector, trainer = module._CallbackConnector, module.Trainer
    original_init = connector.on_trainer_init
    original_save = trainer.save_checkpoint
    if hasattr(original_init, "pulsetrain_watches"):
        return
    name = next(name for name, package in _BASES.items() if module.__name__.startswith(package))

    @guarded
    def made(self: Any) -> None:
        if not any(isinstance(callback, LightningEvents) for callback in self.trainer.callbacks):
            ours = __getattr__(name)()
            self.trainer.callbacks = self._reorder_callbacks([*self.trainer.callbacks, ours])

    @functools.wraps(original_init)
    def on_trainer_init(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original_init(self, *args, **kwargs)
        made(self)
        return result

    @functools.wraps(original_save)
    def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        phases = callbacks.OpenPhases()
        guarded(phases.begin)("checkpoint")
        try:
            return original_save(self, *args, **kwargs)
        finally:
            guarded(phases.end)()

    on_trainer_init.pulsetrain_watches = True  # type: ignore[attr-defined]
    connector.on_trainer_init = on_trainer_init
    trainer.save_checkpoint = save_checkpoint


@guarded
def _record_settings(trainer: Any, pl_module: Any) -> None:
    for owner in (pl_module, getattr(trainer, "datamodule", None)):
        config.record(dict(getattr(owner, "hparams", None) or {}), "Lightning hparams")
    seen.note("precision", str(trainer.precision))


class LightningEvents:
    """The callback without its base class, which is there only where Lightning is."""

    def __init__(self) -> None:
        self._phases = callbacks.OpenPhases()
        self._losses = callbacks.StepLoss()
        self._step = 0
        self._updates = 0
        """Lightning's count, in which a step with two optimizers counts twice."""
        self._epoch: float | None = None
        """After the last batch, which may have been in the middle of one."""

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _record_settings(trainer, pl_module)
        self._losses = callbacks.StepLoss()
        self._updates = trainer.global_step
        self._step = trainer.global_step
        if not pl_module.automatic_optimization:
            self._step = trainer.fit_loop.epoch_loop._batches_that_stepped
        callbacks.begin_training(self._step, _total_steps(trainer))

    @guarded
    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        # With a gradient scaler the loss is already scaled here; the torch hooks know what it was.
        if trainer.accumulate_grad_batches > 1 and getattr(trainer.precision_plugin, "scaler", None) is None:
            self._losses.add(loss.detach() * trainer.accumulate_grad_batches)

    @guarded
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._losses.end_of_step()

    @guarded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loop = loops.current()
        batches = trainer.num_training_batches
        known = math.isfinite(batches)
        self._epoch = trainer.current_epoch + (batch_idx + 1) / batches if known else None
        if trainer.global_step == self._updates or loop is None:
            return
        self._updates = trainer.global_step
        self._step = self._step + 1 if not pl_module.automatic_optimization else trainer.global_step
        fields: dict[str, Any] = {"epoch": self._epoch if known else trainer.current_epoch}
        if not callbacks.torch_is_watched():
            fields.update(_unwatched(trainer, outputs, batch))
        loop.handle(loop.updates.step_done, self._step, fields)

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        epoch = self._epoch if self._epoch is not None else trainer.current_epoch + 1
        callbacks.record_metrics(self._step, epoch, trainer.callback_metrics)

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        callbacks.end_training()

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._phases.end_all()
        callbacks.end_training()

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("validation")

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end()
        at_end_of_epoch = trainer.state.fn == "fit" and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if not trainer.sanity_checking and not at_end_of_epoch:  # there, the metrics of the epoch follow
            callbacks.record_metrics(self._step, None, trainer.callback_metrics)

    @guarded
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("test")

    @guarded
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end()
        callbacks.record_metrics(self._step, None, trainer.callback_metrics)

    @guarded
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("predict")

    @guarded
    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end()


@guarded
def _total_steps(trainer: Any) -> int | None:
    count = trainer.estimated_stepping_batches
    return int(count) if math.isfinite(count) and count > 0 else None


def _unwatched(trainer: Any, outputs: Any, batch: Any) -> dict[str, Any]:
    """What the torch hooks would have reported. Of an accumulated step, the callback does not know the samples."""
    loss: Any = outputs.get("loss") if isinstance(outputs, dict) else outputs
    fields: dict[str, Any] = {"learning_rate": trainer.optimizers[0].param_groups[0].get("lr")}
    if trainer.accumulate_grad_batches == 1:
        samples, tokens, padding = amounts(batch)
        fields.update(samples=samples, tokens=tokens, padding_tokens=padding)
        fields.update(loss=loss.detach() if hasattr(loss, "detach") else None)
    return fields


def __getattr__(name: str) -> Any:
    """Our callbacks, made when they are first asked for, because their base classes need Lightning."""
    if name not in _BASES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    base = import_module(_BASES[name]).Callback
    made = type(name, (LightningEvents, base), {"__module__": __name__, "__doc__": "Records a Trainer's training."})
    globals()[name] = made
    return made

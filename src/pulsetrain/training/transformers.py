"""The Hugging Face Trainer, versions 4 and 5: its steps, epochs, evaluations, checkpoints and logs."""

from __future__ import annotations

import dataclasses
import functools
from importlib import import_module
from typing import Any

from pulsetrain.training import callbacks, config, process, seen
from pulsetrain.training import loop as loops
from pulsetrain.training.guard import guarded


def install(module: Any) -> None:
    """Give every Trainer our callback. `module` is `transformers.trainer`."""
    ours = __getattr__("InstalledCallback")
    if ours in module.DEFAULT_CALLBACKS:
        return
    module.DEFAULT_CALLBACKS.append(ours)
    trainer = module.Trainer
    original_train, original_predict = trainer.train, trainer.predict
    original_create = trainer.create_accelerator_and_postprocess

    @functools.wraps(original_train)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        guarded(_note_kubeflow)(self)
        try:
            return original_train(self, *args, **kwargs)
        finally:
            guarded(callbacks.end_training)()  # also after an error, of which callbacks hear nothing

    @functools.wraps(original_predict)
    def predict(self: Any, *args: Any, **kwargs: Any) -> Any:
        phases = callbacks.OpenPhases()
        guarded(phases.begin)("predict")
        try:
            return original_predict(self, *args, **kwargs)
        finally:
            guarded(phases.end)()

    @guarded
    def created(self: Any) -> None:
        self.accelerator.pulsetrain_losses_are_shares = True

    @functools.wraps(original_create)
    def create_accelerator_and_postprocess(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original_create(self, *args, **kwargs)
        created(self)
        return result

    trainer.train = train
    trainer.predict = predict
    trainer.create_accelerator_and_postprocess = create_accelerator_and_postprocess


def _note_kubeflow(trainer: Any) -> None:
    """A Trainer that tells Kubeflow its progress: then nobody else has to."""
    recorder = process.current()
    callbacks_of = getattr(trainer.callback_handler, "callbacks", ())
    if recorder is not None and any(type(callback).__name__ == "KubeflowCallback" for callback in callbacks_of):
        recorder.note_once("kubeflow_progress", "Transformers reports progress to Kubeflow.")


_ALWAYS = ("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "seed")


@guarded
def _record_arguments(args: Any) -> None:
    """The arguments of the Trainer that are not the default, and those that everybody asks for."""
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    known = {name: value for name, value in vars(args).items() if name in defaults}
    chosen = {name: value for name, value in known.items() if name in _ALWAYS or value != defaults[name]}
    config.record(chosen, "TrainingArguments")
    seen.note("batch_size", getattr(args, "train_batch_size", None))
    seen.note("precision", next((kind for kind in ("bf16", "fp16") if getattr(args, kind, False)), None))


class TransformersEvents:
    """The callback without its base class, which is there only where transformers is."""

    _reporter: tuple[Any, Any] | None = None
    """The state of a trainer, and the callback that reports it: a trainer may have been given two of ours."""

    def __init__(self) -> None:
        self._phases = callbacks.OpenPhases()
        self._micro_batches = 0
        self._learning_rate: float | None = None

    def _reports(self, state: Any) -> bool:
        if TransformersEvents._reporter is None or TransformersEvents._reporter[0] is not state:
            TransformersEvents._reporter = state, self
        return TransformersEvents._reporter[1] is self

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._reports(state):
            return
        self._phases.end_all()
        self._micro_batches = 0
        callbacks.begin_training(state.global_step, state.max_steps if state.max_steps > 0 else None)
        _record_arguments(args)

    @guarded
    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._micro_batches += 1

    @guarded
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        groups = getattr(kwargs.get("optimizer"), "param_groups", None)
        self._learning_rate = groups[0].get("lr") if groups else None

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        loop = loops.current()
        micro_batches, self._micro_batches = self._micro_batches + 1, 0
        if loop is None or not self._reports(state):
            return
        fields: dict[str, Any] = {"epoch": state.epoch}
        if not callbacks.torch_is_watched():
            fields.update(samples=args.train_batch_size * micro_batches, learning_rate=self._learning_rate)
        loop.handle(loop.updates.step_done, state.global_step, fields)
        self._begin_due_phase(control)

    @guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reports(state):
            self._begin_due_phase(control)

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not self._reports(state):
            return
        metrics = dict(logs or {})
        metrics.pop("learning_rate", None)  # is in the line of the step
        if "grad_norm" in metrics:
            metrics["gradient_norm"] = metrics.pop("grad_norm")
        loop = loops.current()
        if "loss" in metrics and loop is not None and not callbacks.torch_is_watched():
            loop.recorder.add({"step": state.global_step, "epoch": state.epoch, "loss": metrics.pop("loss")})
        callbacks.record_metrics(state.global_step, state.epoch, metrics)

    @guarded
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        loop = loops.current()
        if loop is not None and self._reports(state) and not self._phases and not loop.phases.is_open:
            self._phases.begin("validation")

    @guarded
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._phases.end()
        if self._reports(state) and control.should_save:
            self._phases.begin("checkpoint")

    @guarded
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self._phases.end()
        if self._reports(state):
            callbacks.record_metrics(state.global_step, None, metrics or {})

    @guarded
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._phases.end()

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._reports(state):
            self._phases.end_all()
            callbacks.end_training()

    def _begin_due_phase(self, control: Any) -> None:
        """The trainer logs, evaluates and saves next, in this order; the callbacks hear only of the ends."""
        if not self._phases and (control.should_evaluate or control.should_save):
            self._phases.begin("validation" if control.should_evaluate else "checkpoint")


def __getattr__(name: str) -> Any:
    """Our callbacks, made when they are first asked for, because their base class needs transformers.

    What every Trainer gets differs from what users give it: the Trainer warns of two callbacks of one class.
    """
    if name not in ("PulsetrainCallback", "InstalledCallback"):
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    base = import_module("transformers.trainer_callback").TrainerCallback
    made = type(name, (TransformersEvents, base), {"__module__": __name__, "__doc__": "Records a Trainer's training."})
    globals()[name] = made
    return made

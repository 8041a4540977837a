"""What happens inside a PyTorch model, layer by layer, every few steps: `watch(model)`.

In the steps between, nothing of it is attached to the model.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable

from pulsetrain.training import callbacks, process
from pulsetrain.training import loop as loops
from pulsetrain.training.guard import guarded
from pulsetrain.training.warn import warn

MOST_LAYERS = 64
ATTENTION_ATTRIBUTES = ("attention_weights", "attn_weights", "attention_probs", "attn_probs")


def watch(model: Any, optimizer: Any = None, every: int = 100, name: str = "") -> Watch:
    """Record figures of each layer of the model at its next step, and then at every so many.

    Of gradients the norm, mean, standard deviation and largest size; of weights the norm; of outputs the mean, standard
    deviation and share of zeros; of attention weights, where modules return or keep them, the entropy in nats.
    Steps are those of `optimizer`; without one, of any that updates parameters of the model. A `name` tells two models
    apart: `gradient_norm/<name>.<layer>`.
    """
    return Watch(model, optimizer, every, name)


class Watch:
    """Watches until `unwatch`, or the end of a with statement."""

    def __init__(self, model: Any, optimizer: Any, every: int, name: str) -> None:
        self._prefix = name + "." if name else ""
        self._steps = 0
        self._last_step = 0
        """The number of the step that was recorded last."""
        self._steps_before = 0
        """How many the loop had counted before the update that we look at."""
        self._layers: dict[str, list[Any]] = {}
        """Parameters by layer."""
        self._outputs: dict[str, Any] = {}
        """Modules by layer."""
        self._attention: dict[str, Any] = {}
        self._seen: dict[str, Any] = {}
        """What the forward passes of this step showed: tensors, not waited for."""
        self._looks = False
        """Whether this step is one of those to record."""
        self._is_mine: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        """By optimizer."""
        self._hooks: list[Any] = []
        """On modules and optimizers, in a step to record."""
        self._step_hook: Any = None
        if hasattr(model, "named_modules"):
            guarded(self._begin)(model, optimizer, every)
        else:
            warn("pulsetrain.torch.watch: %r is not a PyTorch model; it is not watched." % (model,), stacklevel=3)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.unwatch()

    def unwatch(self) -> None:
        """Leave everything as it was before."""
        if self._step_hook is not None:
            self._step_hook.remove()
            self._step_hook = None
        self._end_look()

    def _begin(self, model: Any, optimizer: Any, every: int) -> None:
        torch = sys.modules["torch"]
        self._every = max(1, every)
        if optimizer is not None:
            optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate's optimizer holds the real one
            self._is_mine[optimizer] = True
        self._parameters = {id(parameter) for parameter in model.parameters()} if optimizer is None else set()
        self._compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._choose(model)
        stepped = guarded(self._stepped)

        def after_step(stepping: Any, args: Any, kwargs: Any) -> None:
            if not self._compiling():
                stepped(stepping)

        self._optimizers = sys.modules["torch.optim.optimizer"]
        self._step_hook = self._optimizers.register_optimizer_step_post_hook(after_step)
        self._begin_look()

    def _choose(self, model: Any) -> None:
        """The layers to watch, spread over the whole depth of the model if there are too many."""
        compiled = False
        for path, module in model.named_modules():
            # As the layer is called in the model itself, not in what wraps it.
            words = [word for word in path.split(".") if word not in ("module", "_orig_mod", "_fsdp_wrapped_module")]
            layer = self._prefix + (".".join(words) or type(module).__name__)
            own = list(module.parameters(recurse=False))
            if own:
                self._layers[layer] = own
            if own or next(module.children(), None) is None:
                self._outputs[layer] = module
            if "attention" in type(module).__name__.lower():
                self._attention[layer] = module
            compiled |= hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for layers in (self._layers, self._outputs, self._attention):
            _thin(layers, type(model).__name__)
        if compiled:
            self._outputs, self._attention = {}, {}
            _note("torch.compile does not run layer hooks: gradients and weights are recorded, outputs are not.")

    def _stepped(self, optimizer: Any) -> None:
        mine = self._is_mine.get(optimizer)
        if mine is None:
            parameters = (id(parameter) for group in optimizer.param_groups for parameter in group["params"])
            mine = self._is_mine[optimizer] = not self._parameters.isdisjoint(parameters)
        if not mine:
            return
        self._steps += 1
        if self._looks:
            self._record()
            self._end_look()
        if self._steps % self._every == 0:
            self._begin_look()

    def _begin_look(self) -> None:
        if process.active is None and process.current() is None:
            return
        self._looks = True
        self._hooks.append(self._optimizers.register_optimizer_step_pre_hook(guarded(self._stepping)))
        saw_output, saw_attention = guarded(self._saw_output), guarded(self._saw_attention)
        for layer, module in self._outputs.items():
            self._hooks.append(module.register_forward_hook(self._hook(saw_output, layer)))
        for layer, module in self._attention.items():
            self._hooks.append(module.register_forward_hook(self._hook(saw_attention, layer)))

    def _end_look(self) -> None:
        self._looks = False
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._seen.clear()

    def _stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        loop = loops.current()
        if loop is not None:
            loop.catch_up()
            self._steps_before = loop.step

    def _number(self) -> int:
        """Of this step: as the loop counts if it does; in the second step of a training it may be one behind."""
        if not self._steps_before and not callbacks.torch_is_watched():
            return self._steps
        number = self._steps_before + 1
        return number if number != self._last_step else number + 1

    def _hook(self, saw: Callable[..., Any], layer: str) -> Callable[[Any, Any, Any], None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            if module.training and not self._compiling():
                saw(layer, module, output)

        return hook

    def _saw_output(self, layer: str, module: Any, output: Any) -> None:
        torch = sys.modules["torch"]
        tensor = next(_tensors(output), None)
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return
        with torch.no_grad():
            mean = tensor.mean(dtype=torch.float32)
            self._seen["activation_mean/" + layer] = mean
            self._seen["activation_std/" + layer] = _deviation(_square(tensor), mean, tensor.numel())
            self._seen["activation_zero_ratio/" + layer] = 1.0 - torch.count_nonzero(tensor) / tensor.numel()

    def _saw_attention(self, layer: str, module: Any, output: Any) -> None:
        torch = sys.modules["torch"]
        kept = (getattr(module, attribute, None) for attribute in ATTENTION_ATTRIBUTES)
        candidates = [*list(_tensors(output))[1:], *_tensors(list(kept))]
        weights = next((tensor for tensor in candidates if tensor.dim() in (3, 4) and tensor.is_floating_point()), None)
        if weights is None:
            return
        with torch.no_grad():
            # Dropout may have changed the sums of the rows, which are 1.
            share = weights.float() / weights.float().sum(-1, keepdim=True)
            entropy = torch.special.entr(share).sum(-1).mean()
        self._seen["attention_entropy/" + layer] = entropy

    def _record(self) -> None:
        recorder = process.current()
        if recorder is None:
            return
        torch = sys.modules["torch"]
        self._last_step = self._number()
        with torch.no_grad():
            for layer, parameters in self._layers.items():
                self._seen.update(_figures(torch, layer, parameters))
            fields: dict[str, Any] = {"step": self._last_step}
            for device in {value.device for value in self._seen.values()}:
                names = [name for name, value in self._seen.items() if value.device == device]
                figures = torch.stack([self._seen[name].reshape(()).float() for name in names])
                # On the CPU they are there; from elsewhere the recorder fetches them when they are.
                fields.update(zip(names, figures.tolist() if device.type == "cpu" else figures.unbind()))
        recorder.add(fields)


def _figures(torch: Any, layer: str, parameters: list[Any]) -> dict[str, Any]:
    figures = {}
    weights = [_here(parameter.detach()) for parameter in parameters]
    gradients = [_here(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if any(map(torch.Tensor.numel, weights)):
        figures["weight_norm/" + layer] = sum(map(_square, weights)).sqrt()
    count = sum(map(torch.Tensor.numel, gradients))
    if count:
        square = sum(map(_square, gradients))
        mean = sum(gradient.sum(dtype=torch.float32) for gradient in gradients) / count
        extremes = [extreme for gradient in gradients if gradient.numel() for extreme in torch.aminmax(gradient)]
        figures["gradient_norm/" + layer] = square.sqrt()
        figures["gradient_mean/" + layer] = mean
        figures["gradient_std/" + layer] = _deviation(square, mean, count)
        figures["gradient_max/" + layer] = torch.stack(extremes).abs().max()
    return figures


def _deviation(square: Any, mean: Any, count: int) -> Any:
    """From the sum of squares: `torch.std` takes ten times as long on a CPU, or a copy of what may be large."""
    return (square / count - mean * mean).clamp(min=0.0).sqrt()


def _square(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.linalg.vector_norm(tensor, dtype=torch.float32) ** 2


def _here(tensor: Any) -> Any:
    """The values themselves: of a sharded tensor this rank's, of a sparse one those that are there."""
    if hasattr(tensor, "to_local"):
        _note("The model is sharded: layer figures are those of each rank's shard.")
        tensor = tensor.to_local()
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def _tensors(output: Any) -> Any:
    if isinstance(output, sys.modules["torch"].Tensor):
        yield output
    elif isinstance(output, dict):  # the outputs of transformers are, too
        yield from _tensors(list(output.values()))
    elif isinstance(output, (tuple, list)):
        for item in output:
            yield from _tensors(item)


def _thin(layers: dict[str, Any], model: str) -> None:
    if len(layers) > MOST_LAYERS:
        _note("%s has %d layers; %d of them are watched." % (model, len(layers), MOST_LAYERS))
        names = list(layers)
        kept = {names[place * (len(names) - 1) // (MOST_LAYERS - 1)] for place in range(MOST_LAYERS)}
        for name in names:
            if name not in kept:
                del layers[name]


def _note(message: str) -> None:
    recorder = process.current()
    if recorder is not None:
        recorder.note_once("not_seen", message)

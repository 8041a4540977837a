"""What is seen of a training beside its steps: precision, seeds, batch size, parameters of the model, ranks."""

from __future__ import annotations

import functools
import random
import sys
from contextlib import suppress
from typing import Any

from pulsetrain.training import provenance

DEFAULT_TORCH_SEED = 67280421310721
"""Of a generator that nobody gave a seed."""

_facts: dict[str, Any] = {}
_seeds: dict[str, int] = {}
_optimizers: Any = None


def facts() -> dict[str, Any]:
    """As it is now; asked in the background, once steps are reported."""
    from pulsetrain.training.ranks import launched, of_group

    found = dict(_facts)
    rank = of_group() or launched()
    found["world_size"] = rank.world_size
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        with suppress(Exception):
            found.update(_of_torch(torch))
    if _seeds:
        found["seeds"] = dict(_seeds)
    return found


def note(name: str, value: Any) -> None:
    """Something that a framework knows of its training. Recorded by itself: `facts` may have been asked before."""
    if value is not None and _facts.get(name) != value:
        _facts[name] = value
        provenance.note("training", "training process", {name: value})


def watch_seeds() -> None:
    """Of Python's generator and NumPy's. PyTorch remembers its own."""
    _watch_seed(random, "python")
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        _watch_seed(numpy.random, "numpy")


def watch_autocast(torch: Any, optimizers: Any) -> None:
    """Note the first precision that is chosen for operations; after that, nothing is in the way any more."""
    global _optimizers
    _optimizers = optimizers
    kind = torch.amp.autocast_mode.autocast
    original = kind.__enter__

    @functools.wraps(original)
    def __enter__(self: Any) -> Any:
        with suppress(Exception):
            if self._enabled:
                _facts.setdefault("autocast", _dtype(self.fast_dtype))
                kind.__enter__ = original
        return original(self)

    kind.__enter__ = __enter__


def _watch_seed(owner: Any, name: str) -> None:
    original = owner.seed
    if hasattr(original, "pulsetrain_watches"):
        return

    @functools.wraps(original)
    def seed(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(given, int):
            _seeds[name] = given
        return original(*args, **kwargs)

    seed.pulsetrain_watches = True  # type: ignore[attr-defined]
    owner.seed = seed


def _of_torch(torch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"float32_matmul": torch.get_float32_matmul_precision()}
    seed = torch.initial_seed()
    if seed != DEFAULT_TORCH_SEED:
        _seeds["torch"] = seed
    parameters = _parameters()
    if parameters:
        found["parameters"] = sum(parameter.numel() for parameter in parameters)
        dtypes = {_dtype(parameter.dtype) for parameter in parameters}
        found["parameter_dtype"] = ", ".join(sorted(dtypes))
    return found


def _parameters() -> list[Any]:
    """Those that are trained; none where each rank has but a part of them."""
    found: dict[int, Any] = {}
    for reference in list(_optimizers or ()):
        optimizer = reference()
        for group in getattr(optimizer, "param_groups", ()):
            for parameter in group["params"]:
                if type(parameter).__name__ == "FlatParameter":
                    return []
                found[id(parameter)] = parameter
    return list(found.values())


def _dtype(value: Any) -> str:
    return str(value).rpartition(".")[2]

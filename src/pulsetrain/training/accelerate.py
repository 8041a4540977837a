"""Accelerate: the loss before it is divided for gradient accumulation. The torch hooks see all the rest."""

from __future__ import annotations

import functools
from typing import Any

from pulsetrain.training.callbacks import StepLoss
from pulsetrain.training.guard import guarded


def install(module: Any) -> None:
    """Listen to `Accelerator.backward`. `module` is `accelerate.accelerator`."""
    accelerator = module.Accelerator
    original = accelerator.backward
    if hasattr(original, "pulsetrain_watches"):
        return
    losses = StepLoss()

    @guarded
    def tell(self: Any, loss: Any) -> None:
        # The Trainer of transformers accumulates by itself, and divides before it comes here.
        shares = getattr(self, "pulsetrain_losses_are_shares", False)
        if shares or self.gradient_accumulation_steps > 1:
            losses.add(loss)
            if self.sync_gradients:
                losses.end_of_step(shares=shares)

    @functools.wraps(original)
    def backward(self: Any, loss: Any, **kwargs: Any) -> Any:
        tell(self, loss)
        return original(self, loss, **kwargs)

    backward.pulsetrain_watches = True  # type: ignore[attr-defined]
    accelerator.backward = backward

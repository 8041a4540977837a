"""The norm of all gradients, now and then, for programs that do not compute it themselves."""

from __future__ import annotations

import sys
import time
from typing import Any

from pulsetrain.training.loop import Loop
from pulsetrain.training.values import captured

LEAST_SECONDS = 1.0
"""Between two of them."""
SHARE = 300
"""They take at most 1/300 of the time."""
BYTES_PER_SECOND = 5e11
"""What a device reads at least, to guess what a norm costs it: on a device only the launch can be timed."""


class GradientNorm:
    """Takes the optimizers of a step one after the other, right after their updates."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.next = 0.0
        """When the next may be computed."""
        self.runs = False
        """Whether it is being computed."""
        self._seconds = 0.0

    def measure(self, loop: Loop, optimizer: Any, begins_step: bool, known: bool) -> None:
        """Called after an update while it is being computed, or may be. `known` if the program computed it itself."""
        now = time.perf_counter()
        if begins_step:
            self._begin_or_end(now, known)
        if not self.runs:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        reason = self._hindrance(optimizer, gradients)
        if reason:
            self.runs, self.next = False, now + LEAST_SECONDS
            loop.recorder.note_once("not_seen", "The gradient norm is not recorded: %s." % reason)
        elif gradients:
            value = loop.values.read("gradient_norm", self._total(gradients))
            loop.note((loop.lines.add_gradient_norm, now, value, id(optimizer)))
            self._seconds += time.perf_counter() - now
            if not gradients[0].is_cpu:
                self._seconds += sum(g.numel() * g.element_size() for g in gradients) / BYTES_PER_SECOND

    def _begin_or_end(self, now: float, known: bool) -> None:
        if self.runs or known:
            self.runs = False
            self.next = now + max(LEAST_SECONDS, SHARE * self._seconds)
        elif self.next <= now:
            self.runs, self._seconds = True, 0.0

    def _hindrance(self, optimizer: Any, gradients: list[Any]) -> str:
        """Why the norm cannot be computed here, or would be that of a part only."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        plain, strided = self._torch.Tensor, self._torch.strided
        reasons = {
            "DeepSpeed splits gradients across ranks": "deepspeed" in sys.modules,
            "FSDP splits gradients across ranks": any(hasattr(p, "_fsdp_flattened") for p in parameters),
            "the optimizer takes scaled gradients": getattr(optimizer, "grad_scale", None) is not None,
            "the step is a CUDA graph": any(map(captured, gradients[:1])),
            "gradients are not plain tensors": any(type(g) is not plain for g in gradients),
            "gradients are sparse": any(g.layout is not strided for g in gradients),
            "gradients are on several devices": any(g.device != gradients[0].device for g in gradients),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _total(self, gradients: list[Any]) -> Any:
        torch = self._torch
        with torch.no_grad():
            if hasattr(torch.nn.utils, "get_total_norm"):
                return torch.nn.utils.get_total_norm(gradients)
            norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
            return torch.linalg.vector_norm(torch.stack(norms))

"""How much of what the device could compute a training uses: an estimate, where the device's peak is known.

The peak is that of dense 16-bit matrix products, whatever precision a training uses.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from pulsetrain.training.loop import Loop
from pulsetrain.training.step_lines import ExpectedFlops
from pulsetrain.training.values import captured

PEAK = "PULSETRAIN_PEAK_TFLOPS"
WARM_UP_STEPS = 3

PEAK_TFLOPS = {
    "B200": 2250.0,
    "GH200": 989.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "A100": 312.0,
    "A10G": 70.0,
    "A10": 125.0,
    "L40S": 362.0,
    "L40": 181.0,
    "L4": 121.0,
    "V100": 125.0,
    "T4": 65.0,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
    "MI300X": 1307.4,
}
"""By words of the device's name, the first that fits. From data sheets: 16-bit inputs, 32-bit sums, no sparsity."""


def peak_flops_per_sec(torch: Any, device: Any) -> float | None:
    """From the environment, else from the table; None when neither knows."""
    given = os.environ.get(PEAK)
    if given:
        return float(given) * 1e12
    return named_peak_flops_per_sec(torch.cuda.get_device_name(device)) if device.type == "cuda" else None


def named_peak_flops_per_sec(name: str) -> float | None:
    words = " %s " % name.replace("-", " ")
    if " Laptop " in words:  # a slower device of the same name
        return None
    return next((tflops * 1e12 for known, tflops in PEAK_TFLOPS.items() if " %s " % known in words), None)


class FlopCount:
    """Finds out once what a step computes, and tells the loop."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.done = False
        self._peak: float | None = None
        self._steps = 0
        self._parameters: dict[int, int] = {}
        """How many each optimizer has."""
        self._mode: Any = None
        self._samples_before = 0

    def after_update(self, loop: Loop, optimizer: Any, begins_step: bool, samples: int, tokens: int | None) -> None:
        """Called after every update until done. `samples` are those of all batches so far, `tokens` of the last."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self._peak is None:
            self._peak = peak_flops_per_sec(self._torch, parameters[0].device)
            self.done = self._peak is None
        self._parameters[id(optimizer)] = sum(p.numel() for p in parameters)
        self._steps += begins_step
        if self._peak is None or not begins_step or self._steps < WARM_UP_STEPS:
            return
        if self._mode is None:
            self._begin(loop, self._peak, parameters, samples, tokens)
        else:
            self._finish(loop, self._peak, samples)

    def _begin(self, loop: Loop, peak: float, parameters: list[Any], samples: int, tokens: int | None) -> None:
        self.done = True
        if any(type(p) is not self._torch.nn.Parameter or hasattr(p, "_fsdp_flattened") for p in parameters):
            _note_not_counted(loop, "parameters are split across ranks")
        elif tokens is not None and "peft" not in sys.modules:
            # Each parameter takes part in two operations per token forward, and in four backward.
            _expect(loop, ExpectedFlops(peak, per_token=6.0 * sum(self._parameters.values())))
        elif _compiled() or captured(parameters[0]):
            _note_not_counted(loop, "the model is compiled")
        else:
            self.done = False
            self._samples_before = samples
            self._mode = _counting_mode()
            self._mode.__enter__()

    def _finish(self, loop: Loop, peak: float, samples: int) -> None:
        mode = self._mode
        if mode.counts:
            mode.counts = False
            counted = samples - self._samples_before
            if mode.error is not None:
                _note_not_counted(loop, "%s: %s" % (type(mode.error).__name__, mode.error))
            elif counted:
                _expect(loop, ExpectedFlops(peak, per_sample=mode.flops / counted))
            else:
                _expect(loop, ExpectedFlops(peak, per_step=mode.flops))
        if import_module("torch.utils._python_dispatch")._get_current_dispatch_mode() is mode:
            # Not while the program is inside a mode of its own that it entered after ours.
            mode.__exit__(None, None, None)
            self.done = True


def _expect(loop: Loop, flops: ExpectedFlops) -> None:
    loop.handle(loop.lines.expect_flops, flops)


def _note_not_counted(loop: Loop, reason: str) -> None:
    loop.recorder.note_once("not_seen", "FLOPs are not counted: %s." % reason)


def _compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def _counting_mode() -> Any:
    """Counts the operations of everything that runs inside it, by PyTorch's own formulas.

    FlopCounterMode also tells modules apart, for which it hooks all of them, and lets errors of the formulas out.
    """
    formulas = import_module("torch.utils.flop_counter").flop_registry
    base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Counting(base):  # type: ignore[misc] # what it inherits is only known here
        supports_higher_order_operators = True

        def __init__(self) -> None:
            super().__init__()
            self.flops = 0.0
            self.counts = True
            self.error: Exception | None = None

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            formula = formulas.get(getattr(func, "_overloadpacket", None))
            if formula is not None and self.counts and self.error is None:
                try:
                    self.flops += formula(*args, **(kwargs or {}), out_val=out)
                except Exception as error:
                    self.error = error
            return out

    return Counting()

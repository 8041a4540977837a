"""pulsetrain takes the pulse of a training run.

Importing this costs next to nothing: what is named here is loaded when it is first used. Python 3.9 and newer, since it
may be imported inside the user's own environment.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it, without the cost of importing typing
if TYPE_CHECKING:
    from pulsetrain.training import torch as torch
    from pulsetrain.training.api import finish, init, log, monitor, phase, set_training
    from pulsetrain.training.legacy import GPUMonitor, GPUMonitoringCallback, TrainingMonitorCallback

__version__ = "0.1.0"
__all__ = [
    "GPUMonitor",
    "GPUMonitoringCallback",
    "TrainingMonitorCallback",
    "__version__",
    "finish",
    "init",
    "log",
    "monitor",
    "phase",
    "set_training",
    "torch",
]

_HOMES = {
    **dict.fromkeys(("finish", "init", "log", "monitor", "phase", "set_training"), "pulsetrain.training.api"),
    **dict.fromkeys(("GPUMonitor", "GPUMonitoringCallback", "TrainingMonitorCallback"), "pulsetrain.training.legacy"),
}


def __getattr__(name: str) -> object:
    if name == "torch":
        value: object = import_module("pulsetrain.training.torch")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'pulsetrain' has no attribute {name!r}")
    globals()[name] = value  # found at once from now on
    return value

"""pulsetrain takes the pulse of a training run.

Importing this costs next to nothing: what is named here is loaded when it is first used. Python 3.9 and newer, since it
may be imported inside the user's own environment.
"""

from __future__ import annotations

from importlib import import_module
from time import monotonic

TYPE_CHECKING = False  # as type checkers know it, without the cost of importing typing
if TYPE_CHECKING:
    from pulsetrain import torch as torch
    from pulsetrain.loading import load
    from pulsetrain.training.api import config, finish, init, log, monitor, phase, set_training
    from pulsetrain.training.files import note_file
    from pulsetrain.training.legacy import GPUMonitor, GPUMonitoringCallback, TrainingMonitorCallback
    from pulsetrain.training.steps import steps
    from pulsetrain.views.notebook.magic import load_ipython_extension as load_ipython_extension
    from pulsetrain.views.notebook.show import show

__version__ = "0.1.0"
__all__ = [
    "GPUMonitor",
    "GPUMonitoringCallback",
    "TrainingMonitorCallback",
    "__version__",
    "config",
    "finish",
    "init",
    "load",
    "log",
    "monitor",
    "note_file",
    "phase",
    "set_training",
    "show",
    "steps",
    "torch",
]

imported_at = monotonic()
"""Where `init` is not called, the first step that the program logs begins here."""

_HOMES = {
    **dict.fromkeys(("config", "finish", "init", "log", "monitor", "phase", "set_training"), "pulsetrain.training.api"),
    "load": "pulsetrain.loading",
    "load_ipython_extension": "pulsetrain.views.notebook.magic",
    "show": "pulsetrain.views.notebook.show",
    "note_file": "pulsetrain.training.files",
    "steps": "pulsetrain.training.steps",
    **dict.fromkeys(("GPUMonitor", "GPUMonitoringCallback", "TrainingMonitorCallback"), "pulsetrain.training.legacy"),
}


def __getattr__(name: str) -> object:
    if name == "torch":
        value: object = import_module("pulsetrain.torch")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'pulsetrain' has no attribute {name!r}")
    globals()[name] = value  # found at once from now on
    return value

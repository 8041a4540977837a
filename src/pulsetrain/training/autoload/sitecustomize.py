"""Found by every Python that `pulsetrain run` starts, because its folder stands first in PYTHONPATH.

Runs a sitecustomize that it shadows, lets `import pulsetrain` find this package, and waits for a framework to be
imported. Costs a fraction of a millisecond in programs that import none, and never raises.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # as type checkers know it, without the cost of importing typing
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))

INSTALLERS = {
    "torch": "pulsetrain.training.hooks:patch_torch",
    "transformers.trainer": "pulsetrain.training.transformers:install",
    "lightning.pytorch.trainer.trainer": "pulsetrain.training.lightning:install",
    "pytorch_lightning.trainer.trainer": "pulsetrain.training.lightning:install",
    "keras.src.callbacks.callback_list": "pulsetrain.training.keras:install",
    "accelerate.accelerator": "pulsetrain.training.accelerate:install",
}
"""What to call with a module, right after the program has imported it."""


class _Finder:
    """Finds pulsetrain where it is not installed, and stands by when a framework is imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name == "pulsetrain":
            return PathFinder.find_spec(name, [os.path.dirname(PACKAGE)])
        if name in INSTALLERS:
            return _with_installer(name, path, target)
        return None


def _with_installer(name: str, path: Any, target: Any) -> Any:
    others = (finder for finder in sys.meta_path if finder is not _Finder and hasattr(finder, "find_spec"))
    spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
    loader: Any = spec and spec.loader
    if hasattr(loader, "exec_module") and hasattr(loader, "__dict__"):
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            _install(name, module)

        loader.exec_module = exec_module  # of this one module's loader, not of its class
    return spec


def _install(name: str, module: Any) -> None:
    try:
        place, _, function = INSTALLERS[name].partition(":")
        __import__(place)
        getattr(sys.modules[place], function)(module)
    except Exception as error:
        _tell(name, error)


def _tell(name: str, error: Exception) -> None:
    """Say in the run, not in the program's output, what could not be seen and why."""
    try:
        from pulsetrain.training import process

        recorder = process.current()
        if recorder is not None:
            message = "%s cannot be watched: %s: %s" % (name, type(error).__name__, error)
            recorder.note("instrumentation_error", message, "warning")
    except Exception:  # noqa: S110 - there is nowhere left to say it
        pass


def _run_shadowed() -> None:
    """The environment's own sitecustomize, which ours hides."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("PULSETRAIN_TRAINING_FOLDER"):
    sys.meta_path.insert(0, _Finder)
_run_shadowed()

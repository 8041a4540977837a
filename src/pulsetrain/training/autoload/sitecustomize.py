"""Found by every Python that `pulsetrain run` starts, because its folder comes first in PYTHONPATH.

Runs a sitecustomize that it shadows, lets `import pulsetrain` find this package, and waits for a framework to be
imported. Costs a fraction of a millisecond in programs that import none, and never raises. `pulsetrain.init` imports it
under its full name, and calls `watch_frameworks`.

Every Python reads this file, 2.7 too, so types are in comments. Before Python 3.9 it only runs the other sitecustomize.
"""

import os
import sys
import time

TYPE_CHECKING = False  # as type checkers know it, without the cost of importing typing
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - used in comments

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))

INSTALLERS = {
    "torch": "pulsetrain.training.hooks:patch_torch",
    "transformers.trainer": "pulsetrain.training.transformers:install",
    "lightning.pytorch.trainer.trainer": "pulsetrain.training.lightning:install",
    "pytorch_lightning.trainer.trainer": "pulsetrain.training.lightning:install",
    "keras.src.callbacks.callback_list": "pulsetrain.training.keras:install",
    "accelerate.accelerator": "pulsetrain.training.accelerate:install",
    "torch._dynamo.callback": "pulsetrain.training.compiling:install",
    "torch.distributed.checkpoint": "pulsetrain.training.checkpoints:install",
    "safetensors.torch": "pulsetrain.training.checkpoints:install",
    "keras.src.saving.saving_api": "pulsetrain.training.checkpoints:install",
    "wandb.sdk.wandb_run": "pulsetrain.training.trackers:install",
    "mlflow.tracking._tracking_service.client": "pulsetrain.training.trackers:install",
    "torch.utils.tensorboard.writer": "pulsetrain.training.trackers:install",
    "tensorboardX.writer": "pulsetrain.training.trackers:install",
    "trackio.run": "pulsetrain.training.trackers:install",
    "argparse": "pulsetrain.training.parsers:install",
    "hydra.core.utils": "pulsetrain.training.parsers:install",
}
"""What to call with a module, right after the program has imported it."""


class _Finder:
    """Finds pulsetrain where it is not installed, and instruments each framework when it is imported."""

    program_began = None  # type: Any
    """When the interpreter was ready, on the monotonic clock; None where this file was imported later."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name == "pulsetrain":
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, [os.path.dirname(PACKAGE)])
        if name in INSTALLERS:
            return _with_installer(name, path, target)
        return None


def watch_frameworks():
    # type: () -> None
    """Instrument the frameworks that are imported already, and those that will be."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    for name in INSTALLERS:
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _install(name, module)


def _with_installer(name, path, target):
    # type: (str, Any, Any) -> Any
    others = (finder for finder in sys.meta_path if finder is not _Finder and hasattr(finder, "find_spec"))
    spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
    loader = spec and spec.loader  # type: Any
    if hasattr(loader, "exec_module") and hasattr(loader, "__dict__"):
        run = loader.exec_module

        def exec_module(module):
            # type: (Any) -> None
            began = time.monotonic()
            run(module)
            if name != "argparse":  # which takes no time, and is no sign of a training
                _note_import(began)
            _install(name, module)

        loader.exec_module = exec_module  # of this one module's loader, not of its class
    return spec


def _note_import(began):
    # type: (float) -> None
    """How long the program imported a framework is part of its start-up."""
    try:
        from pulsetrain.training import lifetime

        lifetime.note_import(began, _Finder.program_began)
    except Exception:  # noqa: S110 - a figure less; what else is wrong is reported by what comes next
        pass


def _install(name, module):
    # type: (str, Any) -> None
    try:
        place, _, function = INSTALLERS[name].partition(":")
        __import__(place)
        getattr(sys.modules[place], function)(module)
    except Exception as error:
        _tell(name, error)


def _tell(name, error):
    # type: (str, Exception) -> None
    """Say in the run, not in the program's output, what could not be seen and why."""
    try:
        from pulsetrain.training import process

        recorder = process.current()
        if recorder is not None:
            message = "%s cannot be watched: %s: %s" % (name, type(error).__name__, error)
            recorder.note("instrumentation_error", message, "warning")
    except Exception:  # noqa: S110 - there is nowhere left to say it
        pass


def _run_shadowed():
    # type: () -> None
    """The environment's own sitecustomize, which ours hides."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    if sys.version_info < (3,):  # noqa: UP036
        _run_in_python_2(others)
        return
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _run_in_python_2(path):
    # type: (list[str]) -> None
    imp = __import__("imp")
    try:
        found = imp.find_module("sitecustomize", path)
    except ImportError:
        return
    imp.load_module("sitecustomize", *found)


if __name__ == "sitecustomize":
    if sys.version_info >= (3, 9) and os.environ.get("PULSETRAIN_TRAINING_FOLDER"):
        _Finder.program_began = time.monotonic()
        sys.meta_path.insert(0, _Finder)
    _run_shadowed()

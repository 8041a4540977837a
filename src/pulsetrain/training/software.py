"""Versions of what a training runs on, and what is installed in its environment. Asked in the background, once."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from typing import Any

FRAMEWORKS = (
    *(
        "torch",
        "torchvision",
        "lightning",
        "pytorch_lightning",
        "transformers",
        "accelerate",
        "peft",
        "trl",
        "datasets",
    ),
    *("deepspeed", "bitsandbytes", "xformers", "keras", "tensorflow", "jax", "jaxlib", "flax", "optax", "numpy"),
    *("xgboost", "lightgbm", "sklearn", "ray", "hydra", "triton"),
)
"""Named where the program has imported them."""
MOST_PACKAGES = 3000


def versions() -> dict[str, str]:
    """Of Python, of frameworks that are imported, and of the libraries that PyTorch was built with."""
    found = {"python": platform.python_version()}
    for name in FRAMEWORKS:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if isinstance(version, str):
            found[name] = version
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        with suppress(Exception):
            found.update(_of_torch(torch))
    return found


def packages() -> dict[str, str]:
    """All that are installed, by name.

    Their folders are named after name and version: reading each package's metadata would hold up the training's own
    thread for a tenth of a second.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError):  # not there, or an archive
            for entry in os.listdir(folder or os.curdir):
                if entry.endswith((".dist-info", ".egg-info")):
                    with suppress(Exception):  # a package whose files are damaged
                        name, version = _name_and_version(folder, entry)
                        if name and version and len(found) < MOST_PACKAGES:
                            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return found


def _name_and_version(folder: str, entry: str) -> tuple[str, str]:
    stem, kind = os.path.splitext(entry)
    if kind == ".dist-info":
        name, _, version = stem.partition("-")
        return name, version
    from importlib import metadata  # an older form, in which names may have hyphens

    old = metadata.Distribution.at(os.path.join(folder, entry))
    return old.metadata["Name"], old.version


def _of_torch(torch: Any) -> dict[str, str]:
    """Nothing here may start a GPU that the program does not use."""
    found = {name: str(value) for name in ("cuda", "hip") if (value := getattr(torch.version, name, None))}
    if not torch.cuda.is_initialized():
        return found
    with suppress(Exception):
        found["cudnn"] = str(torch.backends.cudnn.version())
    with suppress(Exception):
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found

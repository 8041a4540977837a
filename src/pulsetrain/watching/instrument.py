"""How a command's training loop is seen without a change to it: the environment it is started with."""

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pulsetrain import training
from pulsetrain.runs.folder import RunFolder, host_name
from pulsetrain.training import process

AUTOLOAD = Path(training.__file__).parent / "autoload"
"""First in PYTHONPATH, its sitecustomize is run by every Python of the command, in whatever environment."""


def environment(
    run: RunFolder, start: datetime, started: float, instrumented: bool, *, private: bool = False
) -> dict[str, str]:
    """The command's environment: where its processes record, and, unless unwanted, what instruments them."""
    folder = run.host_folder(host_name())
    recording = process.environment(str(folder), f"{start:%Y%m%d_%H%M%S}", started, private=private)
    changed = {**os.environ, "PULSETRAIN_RUN_ID": run.path.name, **recording}
    if instrumented:
        changed["PYTHONPATH"] = os.pathsep.join(filter(None, (str(AUTOLOAD), os.environ.get("PYTHONPATH"))))
    return changed


def why_nothing(command: Sequence[str], instrument: bool) -> str:
    """Why no training loop was seen, as far as the command tells."""
    if not instrument:
        return "instrumentation is off (--no-instrument), and nothing called pulsetrain.log"
    if re.match(r"(python|pypy)[\d.]*$", Path(command[0]).name):
        for word in command[1:]:
            if not re.match(r"-[^-]", word) or word in ("-c", "-m"):
                break
            if set(word) & set("EIS"):
                return (
                    f"`{word}` makes Python ignore PYTHONPATH or sitecustomize, which pulsetrain needs to see the loop"
                )
    return "no PyTorch, Lightning, Transformers or Keras steps were seen, and nothing called pulsetrain.log"

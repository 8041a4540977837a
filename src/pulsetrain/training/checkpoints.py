"""Where a program saves checkpoints, and how long that and loading take: most savers end up in these functions."""

from __future__ import annotations

import sys
from typing import Any

from pulsetrain.training.files import watch_savers
from pulsetrain.training.spans import Spans, note_phase

SAVING, LOADING = "checkpoint", "loading"

_spans = Spans("The watch on checkpoints")


def watch_checkpoints(torch: Any) -> None:
    """`torch.save` and `torch.load`."""
    watch_savers(torch, ("save",))
    _spans.wrap(torch, ("save",), note_phase, SAVING)
    _spans.wrap(torch, ("load",), note_phase, LOADING)
    torch.serialization.save, torch.serialization.load = torch.save, torch.load


def install(module: Any) -> None:
    """Watch the functions that save and load in `torch.distributed.checkpoint`, `safetensors.torch` or Keras.

    Of a save in the background, this is the part that the program waits for.
    """
    saving = ["async_save", "save_file", "save_model", "save_weights"]
    loading = ["load_file", "load_model", "load_weights"]
    if module.__name__ != "safetensors.torch":  # `save` and `load` there make bytes of a model
        saving.append("save")
        loading.append("load")
    originals = {name: getattr(module, name, None) for name in (*saving, *loading)}
    watch_savers(module, saving)
    _spans.wrap(module, saving, note_phase, SAVING)
    _spans.wrap(module, loading, note_phase, LOADING)
    for part in ("state_dict_saver", "state_dict_loader"):  # where others import them from
        owner = sys.modules.get("%s.%s" % (module.__name__, part))
        for name, original in originals.items():
            if owner is not None and original is not None and getattr(owner, name, None) is original:
                setattr(owner, name, getattr(module, name))

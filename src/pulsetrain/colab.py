"""`pulsetrain.colab.init()`: watch a notebook of Google Colab, and leave the run in its Drive for home."""

from __future__ import annotations

from typing import Any

from pulsetrain.training import api, colab


def init(name: str | None = None, *, to: str = colab.DEFAULT, **options: Any) -> api.CurrentRun | None:
    """`pulsetrain.init`, with the run sent to `MyDrive/pulsetrain`. At home: `pulsetrain.control.start()`.

    `options` are those of `pulsetrain.init`. The run is tagged as Colab's, with the release and the accelerator.
    """
    tags = {**(colab.runtime() if colab.is_colab() else {}), **(options.pop("tags", None) or {})}
    return api.init(name, to=to, tags=tags, **options)

"""How long calls of experiment trackers take."""

from __future__ import annotations

from typing import Any

from pulsetrain.training.spans import Spans, note_part

_WRITER = (
    "add_scalar",
    "add_scalars",
    "add_histogram",
    "add_image",
    "add_images",
    "add_figure",
    "add_text",
    "add_tensor",
    "flush",
)
CALLS = {
    "wandb.sdk.wandb_run": ("Run", ("_log",)),
    "mlflow.tracking._tracking_service.client": ("TrackingServiceClient", ("log_metric", "log_batch", "log_artifact")),
    "torch.utils.tensorboard.writer": ("SummaryWriter", _WRITER),
    "tensorboardX.writer": ("SummaryWriter", _WRITER),
    "trackio.run": ("Run", ("log",)),
}
"""By module: the class that all calls of the tracker come to, and its methods."""

_spans = Spans("The watch on experiment trackers")


def install(module: Any) -> None:
    """Watch the tracker that this module belongs to."""
    name, methods = CALLS[module.__name__]
    _spans.wrap(getattr(module, name), methods, note_part, "logging")

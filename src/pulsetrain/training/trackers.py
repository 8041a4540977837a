"""Experiment trackers that a program uses itself: how long their calls take, and what they are given.

The time is logging in the time ledger. Figures, settings and the run of the tracker are taken into our run, as
`tracked.py` says. Nothing here waits for a device.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Callable

from pulsetrain.training import process
from pulsetrain.training.config import record
from pulsetrain.training.guard import guarded
from pulsetrain.training.spans import Spans, note_part
from pulsetrain.training.tracked import note_metrics, note_run

_WRITER = (
    "add_scalar",
    "add_scalars",
    "add_hparams",
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
    "mlflow.tracking._tracking_service.client": (
        "TrackingServiceClient",
        ("log_metric", "log_batch", "log_param", "log_artifact"),
    ),
    "torch.utils.tensorboard.writer": ("SummaryWriter", _WRITER),
    "tensorboardX.writer": ("SummaryWriter", _WRITER),
    "trackio.run": ("Run", ("log",)),
}
"""By module: the class that all calls of the tracker come to, and its methods."""

_spans = Spans("The watch on experiment trackers")
_settings: dict[tuple[str, int], dict[str, Any]] = {}
"""By tracker and its run: the settings that were recorded last."""


def install(module: Any) -> None:
    """Watch the tracker that this module belongs to."""
    name, methods = CALLS[module.__name__]
    owner = getattr(module, name)
    _spans.wrap(owner, methods, note_part, "logging")
    for method, take in _TAKEN[module.__name__].items():
        _listen(owner, method, guarded(take))


def _listen(owner: Any, method: str, take: Callable[..., None]) -> None:
    """Have `take` called with whatever the method is called with, before it."""
    original = getattr(owner, method, None)
    if original is None or hasattr(original, "pulsetrain_listens"):
        return

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if process.current() is not None:
            take(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    call.pulsetrain_listens = True  # type: ignore[attr-defined]
    setattr(owner, method, call)


def _settings_of(tracker: str, owner: Any, config: Any) -> None:
    """The settings that a run of a tracker was given, each time they have changed."""
    settings = dict(config or {})
    if settings and settings != _settings.get((tracker, id(owner))):
        _settings[tracker, id(owner)] = settings
        record(settings, tracker)


def _wandb_log(run: Any, data: Mapping[str, Any], step: Any = None, *args: Any, **kwargs: Any) -> None:
    project = "/".join(filter(None, (getattr(run, "entity", ""), getattr(run, "project", ""))))
    note_run("wandb", str(run.id), project=project, url=getattr(run, "url", None))
    _settings_of("wandb", run, {name: value for name, value in dict(run.config).items() if not name.startswith("_")})
    note_metrics("wandb", data, step, counted=getattr(run, "_local_step", None))


def _mlflow_log_metric(
    client: Any, run_id: str, key: str, value: Any, timestamp: Any = None, step: Any = None, *args: Any, **kwargs: Any
) -> None:
    _mlflow_metrics(client, run_id, {key: value}, step)


def _mlflow_log_batch(
    client: Any, run_id: str, metrics: Any = (), params: Any = (), tags: Any = (), *args: Any, **kwargs: Any
) -> None:
    steps: dict[Any, dict[str, Any]] = {}
    for metric in metrics or ():
        steps.setdefault(metric.step, {})[metric.key] = metric.value
    for step, found in steps.items():
        _mlflow_metrics(client, run_id, found, step)
    _mlflow_settings(run_id, {param.key: param.value for param in params or ()})


def _mlflow_log_param(client: Any, run_id: str, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
    _mlflow_settings(run_id, {key: value})


def _mlflow_metrics(client: Any, run_id: str, metrics: dict[str, Any], step: Any) -> None:
    """Without the figures of the machine, which mlflow samples itself in a thread of its own."""
    found = {name: value for name, value in metrics.items() if not name.startswith("system/")}
    if found:
        note_run("mlflow", str(run_id), uri=getattr(client, "tracking_uri", None))
        note_metrics("mlflow", found, step)


def _mlflow_settings(run_id: str, settings: dict[str, Any]) -> None:
    if settings:
        note_run("mlflow", str(run_id))
        record(settings, "mlflow")


def _tensorboard_scalar(
    writer: Any, tag: str, scalar_value: Any, global_step: Any = None, *args: Any, **kwargs: Any
) -> None:
    note_run("tensorboard", str(writer.log_dir if hasattr(writer, "log_dir") else writer.logdir))
    note_metrics("tensorboard", {tag: scalar_value}, global_step)


def _tensorboard_scalars(
    writer: Any, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, *args: Any, **kwargs: Any
) -> None:
    found = {"%s/%s" % (main_tag, tag): value for tag, value in tag_scalar_dict.items()}
    note_metrics("tensorboard", found, global_step)


def _tensorboard_settings(writer: Any, hparam_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
    record(dict(hparam_dict), "tensorboard")


def _trackio_log(run: Any, metrics: Mapping[str, Any], step: Any = None, *args: Any, **kwargs: Any) -> None:
    note_run("trackio", str(run.name), project=getattr(run, "project", None))
    settings = {name: value for name, value in dict(run.config or {}).items() if not name.startswith("_")}
    _settings_of("trackio", run, settings)
    note_metrics("trackio", metrics, step, counted=getattr(run, "_next_step", None))


_SUMMARY_WRITER: dict[str, Callable[..., None]] = {
    "add_scalar": _tensorboard_scalar,
    "add_scalars": _tensorboard_scalars,
    "add_hparams": _tensorboard_settings,
}
_TAKEN: dict[str, dict[str, Callable[..., None]]] = {
    "wandb.sdk.wandb_run": {"_log": _wandb_log},
    "mlflow.tracking._tracking_service.client": {
        "log_metric": _mlflow_log_metric,
        "log_batch": _mlflow_log_batch,
        "log_param": _mlflow_log_param,
    },
    "torch.utils.tensorboard.writer": _SUMMARY_WRITER,
    "tensorboardX.writer": _SUMMARY_WRITER,
    "trackio.run": {"log": _trackio_log},
}
"""By module and method: what takes in a call."""

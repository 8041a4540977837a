"""Runs of MLflow: of a server, a database or a folder that MLflow opens."""

import os
from collections.abc import Iterator
from typing import Any

from pulsetrain.errors import PulsetrainError, in_words
from pulsetrain.transfer.trackers.old_run import OldPoint, OldRun

PAGE = 1000
_STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "interrupted"}


def old_runs(place: str) -> Iterator[OldRun]:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    import mlflow

    client: Any = mlflow.MlflowClient(tracking_uri=place)
    try:
        for experiment in _pages(client.search_experiments):
            for run in _pages(client.search_runs, [experiment.experiment_id]):
                yield _old_run(client, run, experiment.name)
    except mlflow.exceptions.MlflowException as error:
        raise PulsetrainError(
            f"MLflow cannot be read: {in_words(error).splitlines()[0][:300]}.",
            hint="Check that the server is running and reachable.",
        ) from None


def _pages(ask: Any, *arguments: Any) -> Iterator[Any]:
    token = None
    while True:
        found = ask(*arguments, max_results=PAGE, page_token=token)
        yield from found
        token = found.token
        if not token:
            return


def _old_run(client: Any, run: Any, experiment: str) -> OldRun:
    info, data = run.info, run.data
    points = [
        OldPoint(metric.timestamp / 1000, int(metric.step), {metric.key: float(metric.value)})
        for key in data.metrics
        if not key.startswith("system/")
        for metric in client.get_metric_history(info.run_id, key)
    ]
    return OldRun(
        "mlflow",
        info.run_id,
        data.tags.get("mlflow.runName") or info.run_name or info.run_id,
        points,
        project=experiment,
        config=dict(data.params),
        tags={name: value for name, value in data.tags.items() if not name.startswith("mlflow.")},
        start=info.start_time / 1000 if info.start_time else None,
        end=info.end_time / 1000 if info.end_time else None,
        status=_STATUS.get(info.status, ""),
        command=data.tags.get("mlflow.source.name", ""),
        user=data.tags.get("mlflow.user", ""),
    )

"""MLflow: a tracking server, or a database or folder that MLflow opens itself."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pulsetrain.outputs.trackers.tracker import Ending, Memory, Row, flat_config
from pulsetrain.runs.folder import Run

EXPERIMENT = "pulsetrain"
"""Of runs that belong to no project."""
RUN_TAG = "pulsetrain.run_id"
MOST_METRICS = 1000
MOST_PARAMS = 100
LONGEST_VALUE = 500
LONGEST_KEY = 250
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "detached": "FINISHED"}
_NOT_ALLOWED = re.compile(r"[^\w./ :-]")
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
"""A server that is away is tried again by us, not for minutes inside of one call."""


def open_tracker(place: str, memory: Memory) -> "MlflowTracker":
    return MlflowTracker(place, memory)


class MlflowTracker:
    """A run of MLflow, found again by its id, or by the tag that names ours."""

    def __init__(self, uri: str, memory: Memory) -> None:
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        import mlflow

        self._entities: Any = mlflow.entities
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        self._memory = memory
        self._run_id = ""

    def open(self, run: Run) -> None:
        known = self._memory.get("run_id")
        self._run_id = known or self._find_or_create(run)
        self._memory["run_id"] = self._run_id
        if known and run.status == "running":
            self._client.update_run(self._run_id, status="RUNNING")

    def describe(self, run: Run) -> None:
        there = self._client.get_run(self._run_id).data.params
        settings = {_name(name): str(value)[:LONGEST_VALUE] for name, value in flat_config(run.config).items()}
        params = [self._entities.Param(name, value) for name, value in settings.items() if name not in there]
        for batch in _batches(params, MOST_PARAMS):
            self._client.log_batch(self._run_id, params=batch)
        # A param of MLflow cannot change: what has is a tag.
        changed = {f"config.{name}": value for name, value in settings.items() if there.get(name, value) != value}
        tags = {"mlflow.runName": run.name, "project": run.project, "mlflow.note.content": run.note}
        self._tag({name: value for name, value in {**tags, **run.tags, **changed}.items() if value})

    def send(self, rows: Sequence[Row], *, again: bool) -> None:
        metrics = self._metrics(rows)
        if again:
            there = {key: self._history(key) for key in {metric.key for metric in metrics}}
            metrics = [metric for metric in metrics if _identity(metric) not in there[metric.key]]
        for batch in _batches(metrics, MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=batch)

    def finish(self, ending: Ending) -> None:
        run = ending.run
        end = _milliseconds(run.end or datetime.now(UTC))
        figures = [self._entities.Metric(_name(name), value, end, 0) for name, value in ending.figures.items()]
        there = {figure.key: self._history(figure.key) for figure in figures} if figures else {}
        if missing := [figure for figure in figures if not there[figure.key]]:
            self._client.log_batch(self._run_id, metrics=missing)
        self._tag({f"pulsetrain.{name}": word for name, word in ending.words.items()})
        for file in ending.files:
            self._client.log_artifact(self._run_id, str(file), "pulsetrain")
        self._client.set_terminated(self._run_id, _STATUS.get(run.status, "FAILED"), end)

    def close(self) -> None:
        pass  # it asks anew each time

    def _find_or_create(self, run: Run) -> str:
        experiment = self._experiment(run.project or EXPERIMENT)
        found = self._client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
        if found:
            return str(found[0].info.run_id)
        tags = {
            RUN_TAG: run.id,
            "mlflow.runName": run.name,
            "mlflow.user": run.user,
            "mlflow.source.name": " ".join(run.command)[:LONGEST_VALUE],
        }
        made = self._client.create_run(
            experiment, start_time=_milliseconds(run.start), tags={name: value for name, value in tags.items() if value}
        )
        return str(made.info.run_id)

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def _metrics(self, rows: Iterable[Row]) -> list[Any]:
        return [
            self._entities.Metric(_name(name), value, round(row.time * 1000), row.step)
            for row in rows
            for name, value in row.values.items()
        ]

    def _history(self, key: str) -> set[tuple[Any, ...]]:
        return {_identity(metric) for metric in self._client.get_metric_history(self._run_id, key)}

    def _tag(self, tags: Mapping[str, str]) -> None:
        found = [self._entities.RunTag(_name(name), value[:LONGEST_VALUE]) for name, value in tags.items()]
        for batch in _batches(found, MOST_PARAMS):
            self._client.log_batch(self._run_id, tags=batch)


def _identity(metric: Any) -> tuple[Any, ...]:
    return metric.timestamp, metric.step, str(metric.value)


def _batches(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def _name(name: str) -> str:
    return _NOT_ALLOWED.sub("_", name)[:LONGEST_KEY]


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)

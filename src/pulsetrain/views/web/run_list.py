"""The figures of runs in a list, read for those in view: steps, loss and its course, utilization, energy, cost."""

import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from pulsetrain.insight.digest import RunDigest, load_digest
from pulsetrain.runs.folder import RunFolder
from pulsetrain.units import JOULES_PER_WH
from pulsetrain.views.text import energy, money, number, short_duration

SHAPE_POINTS = 40
MOST_RUNS = 60
"""In one question."""
STEP_UNIT_SECONDS, ENERGY_UNIT_JOULES = 1e-3, JOULES_PER_WH
"""Rows come in portions, and a column has one unit: milliseconds, watt-hours."""
Document = dict[str, Any]


class ListFigures:
    """Of a run that has ended, those of its digest; without one, read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, Document] = {}

    def read(self, folders: Sequence[RunFolder]) -> dict[str, Document]:
        """By the name of the run's folder. Figures that a run does not have are absent."""
        folders = folders[:MOST_RUNS]
        with self._lock:
            runs = {folder.path.name: folder.load() for folder in folders if folder.path.name not in self._ended}
            missing = [folder for folder in folders if folder.path.name in runs]
            digests = {folder.path.name: load_digest(folder, runs[folder.path.name]) for folder in missing}
            read = _read([folder for folder in missing if digests[folder.path.name] is None])
            found = {name: _document(digest or read.get(name, RunDigest())) for name, digest in digests.items()}
            self._ended |= {name: document for name, document in found.items() if runs[name].status != "running"}
            return {
                folder.path.name: found.get(folder.path.name) or self._ended[folder.path.name] for folder in folders
            }

    def forget(self, id: str) -> None:
        """A run that was deleted."""
        with self._lock:
            self._ended.pop(id, None)


def _read(folders: Sequence[RunFolder]) -> dict[str, RunDigest]:
    if not folders:
        return {}
    from pulsetrain.runs.database import Database

    with closing(Database(folders)) as database:
        rows: dict[str, Document] = {folder.path.name: {} for folder in folders}
        for query in (_TRAINING, _SHAPE, _GPUS, _USED):
            for row in database.raw_rows(query):
                rows[row.pop("run")] |= {name: value for name, value in row.items() if value is not None}
    return {name: RunDigest(**row) for name, row in rows.items()}


def _document(digest: RunDigest) -> Document:
    loss, best, joules = digest.loss, digest.loss_best, digest.joules
    values: dict[str, tuple[str | float | None, str]] = {
        "steps": (digest.steps or None, number(digest.steps or None)),
        "loss": (loss, "" if loss is None else f"{loss:.4g}"),
        "best": (best, "" if best is None else f"{best:.4g}"),
        "step_seconds": (digest.step_seconds, short_duration(digest.step_seconds, STEP_UNIT_SECONDS)),
        "utilization": (digest.utilization_percent, number(digest.utilization_percent, "%")),
        "joules": (joules, energy(joules, ENERGY_UNIT_JOULES)),
        "cost": (digest.cost, money(digest.cost, digest.currency)),
        "verdict": (digest.finding or None, digest.finding),
    }
    document: Document = {
        name: {"value": value, "text": text} for name, (value, text) in values.items() if value is not None
    }
    if "verdict" in document:
        document["verdict"]["title"] = digest.verdict
    if len(digest.loss_shape) > 2:
        document["shape"] = digest.loss_shape
    return document


_TRAINING = """
    SELECT run, count(step_seconds) AS steps, arg_max(loss, elapsed_seconds) AS loss, min(loss) AS loss_best,
        median(step_seconds) AS step_seconds FROM first_rank.training GROUP BY run"""
_SHAPE = f"""
    SELECT run, list(mean ORDER BY place) AS loss_shape FROM (
        SELECT run, place, avg(loss) AS mean FROM (
            SELECT run, loss, least({SHAPE_POINTS - 1}, floor({SHAPE_POINTS} * (elapsed_seconds - first)
                / greatest(last - first, 1e-9))) AS place
            FROM first_rank.training JOIN (
                SELECT run, min(elapsed_seconds) AS first, max(elapsed_seconds) AS last
                FROM first_rank.training GROUP BY run
            ) USING (run) WHERE loss IS NOT NULL
        ) GROUP BY run, place
    ) GROUP BY run"""
_GPUS = "SELECT run, avg(utilization_percent) AS utilization_percent FROM gpu GROUP BY run"
_USED = """
    SELECT run, sum(joules) AS joules, any_value(map_values(cost)[1]) AS cost,
        any_value(map_keys(cost)[1]) AS currency FROM (
        SELECT run, host, list_sum(map_values(arg_max(energy_joules, elapsed_seconds))) AS joules,
            arg_max(cost, elapsed_seconds) AS cost FROM account GROUP BY run, host
    ) GROUP BY run"""

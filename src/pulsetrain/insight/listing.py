"""Recorded runs side by side in a list: the few figures by which one finds a run again, and conditions on them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import msgspec

from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.insight.digest import RunDigest, load_digest
from pulsetrain.insight.own_metrics import own_names
from pulsetrain.runs.database import Database, flat_values
from pulsetrain.runs.folder import Run, RunFolder
from pulsetrain.runs.line_columns import identifier

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"<=": le, ">=": ge, "!=": ne, "=": eq, "<": lt, ">": gt}
BEST = "best/"
"""Before the name of what a program logs: its best value, not its last."""
_CONDITION = re.compile(r"\s*(.+?)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*")


class ListedRun(msgspec.Struct, kw_only=True):
    """A run in a list."""

    run: Run
    digest: RunDigest

    def value(self, field: str) -> str | float | None:
        """A figure, a tag, a setting such as `lr` or `model.depth`, what the program logged so, a version."""
        digest = self.digest
        about: dict[str, str | float | None] = {
            "id": self.run.id,
            "name": self.run.name,
            "project": self.run.project or None,
            "user": self.run.user or None,
            "status": self.run.status,
            "note": self.run.note,
            "started": self.run.start.timestamp(),
            "took": self.run.seconds,
            "size": float(digest.size_bytes),
            "steps": float(digest.steps),
            "loss": digest.loss,
            "step_seconds": digest.step_seconds,
            "energy": digest.joules,
            "carbon": digest.grams,
            "cost": digest.cost,
            "goodput": digest.goodput,
            "finding": digest.finding or None,
            "utilization": digest.utilization_percent,
        }
        if field in about:
            return about[field]
        if field in self.run.tags:
            return self.run.tags[field]
        if field == BEST + "loss":
            return digest.loss_best
        logged = digest.best if field.startswith(BEST) else digest.logged
        name = field.removeprefix(BEST)
        if name in logged:
            return logged[name]
        return flat_settings(self.run.config).get(field, _was(self.run).get(field))


def _was(run: Run) -> dict[str, str | float]:
    """What else a run was: `commit`, `branch`, `torch`, `parameters`, `seeds.torch`, `machine_type`, `region`."""
    found: dict[str, str | float] = {}
    for host in run.hosts.values():
        if host.place:
            said = {
                name: getattr(host.place, name) for name in ("cloud", "machine_type", "region", "zone", "container")
            }
            found.update({name: text for name, text in said.items() if text})
    if run.code:
        found.update(commit=run.code.commit, branch=run.code.branch, dirty="yes" if run.code.dirty else "no")
    return {**found, **run.versions, **flat_settings(run.training)}


def flat_settings(config: Mapping[str, Any]) -> dict[str, str | float]:
    """The settings of a training by dotted name: `{"model": {"depth": 12}}` is `model.depth`."""
    return {
        name: str(value) if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
        for name, value in flat_values(config)
    }


def list_runs(found: Sequence[tuple[RunFolder, Run]]) -> list[ListedRun]:
    """The runs in their order, by their digests; those that have none are read, for the figures of their training."""
    digests = {folder.path: load_digest(folder, run) for folder, run in found}
    figures = _figures([folder for folder, _ in found if digests[folder.path] is None])
    return [
        ListedRun(run=run, digest=digests[folder.path] or _digest(folder, figures.get(folder.path.name, {})))
        for folder, run in found
    ]


def _figures(folders: Sequence[RunFolder]) -> dict[str, dict[str, Any]]:
    """By the names of the folders. One that is damaged has none, and keeps those of no other away."""
    if not folders:
        return {}
    try:
        with closing(Database(folders)) as database:
            names = own_names(database)
            own = "".join(f", arg_max({identifier(name)}, elapsed_seconds) AS {identifier(name)}" for name in names)
            rows = database.rows(
                "SELECT run, count(step_seconds) AS steps, arg_max(loss, elapsed_seconds) AS loss, "
                f"median(step_seconds) AS step_seconds{own} FROM first_rank.training GROUP BY run"
            )
    except PulsetrainError:
        middle = len(folders) // 2
        return _figures(folders[:middle]) | _figures(folders[middle:]) if middle else {}
    return {row.pop("run"): row for row in rows}


def _digest(folder: RunFolder, figures: dict[str, Any]) -> RunDigest:
    return RunDigest(
        size_bytes=folder.size_bytes(),
        steps=figures.pop("steps", 0),
        loss=figures.pop("loss", None),
        step_seconds=figures.pop("step_seconds", None),
        logged={name: value for name, value in figures.items() if value is not None},
    )


def condition(text: str) -> Callable[[ListedRun], bool]:
    """Whether a run meets `loss<0.1`, `status=failed` or `lr!=0.1`. One without the value meets none of them."""
    found = _CONDITION.fullmatch(text)
    if not found:
        raise UsageError(
            f"{text!r} is not a condition.", hint="Write 'loss<0.1', status=failed, or a tag such as lr=0.1."
        )
    field, sign, wanted = found.groups()

    def meets(run: ListedRun) -> bool:
        value = run.value(field)
        if value is None:
            return False
        pair = _as_numbers(value, wanted)
        return _COMPARISONS[sign](*pair) if pair else _COMPARISONS[sign](str(value), wanted)

    return meets


def sort_key(field: str) -> Callable[[ListedRun], tuple[bool, bool, float, str]]:
    """By one figure: numbers first, then text, then runs without it."""

    def key(run: ListedRun) -> tuple[bool, bool, float, str]:
        value = run.value(field)
        pair = None if value is None else _as_numbers(value, "0")
        return value is None, pair is None, pair[0] if pair else math.inf, str(value)

    return key


def _as_numbers(value: str | float, wanted: str) -> tuple[float, float] | None:
    try:
        return float(value), float(wanted)
    except ValueError:
        return None

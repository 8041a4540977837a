"""What a program logs under names of its own: validation loss, accuracy, anything. Last, best, course."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from pulsetrain.insight.metric_names import Better, better, in_order_of_interest
from pulsetrain.runs.line_columns import identifier
from pulsetrain.runs.tables import columns

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

Floats = npt.NDArray[np.float64]

MOST_NAMES = 64
SHAPE_POINTS = 24
CURVE_POINTS = 400


class OwnMetric(msgspec.Struct, kw_only=True):
    """One figure that the program logged, over the whole run, on the first rank that has steps."""

    name: str
    count: int
    last: float
    lowest: float
    highest: float
    better: Better
    """Whether lower or higher values are the better ones; empty where the name does not tell."""
    shape: list[float]
    """Its course in few values, each a mean."""

    @property
    def best(self) -> float | None:
        return {"lower": self.lowest, "higher": self.highest}.get(self.better)


@dataclass(frozen=True)
class OwnCurve:
    """Values over elapsed seconds, thinned to what a chart can show."""

    seconds: Floats
    values: Floats


def own_names(database: "Database") -> list[str]:
    """The names that the program made up: first what says how good the model is, figures of single layers last."""
    return made_up([name for name, kind in database.columns("training").items() if kind == "DOUBLE"])


def made_up(names: Iterable[str]) -> list[str]:
    """Those of the training's columns that are not declared, in that order."""
    declared = {column.name for column in columns("training")}
    return in_order_of_interest([name for name in names if name not in declared])


def read_own_metrics(database: "Database") -> list[OwnMetric]:
    """Those that ever had a value, MOST_NAMES of them at most: a program can make up names without end."""
    return courses(database, own_names(database)[:MOST_NAMES])


def courses(database: "Database", names: Sequence[str]) -> list[OwnMetric]:
    """Those of these fields of the training that ever had a value."""
    if not names:
        return []
    figures = _figures(database, names)
    shapes = _shapes(database, names)
    return [
        OwnMetric(name=name, better=better(name), shape=shapes[name], **figures[name])
        for name in names
        if figures[name]["count"]
    ]


def _figures(database: "Database", names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """All in one query: each would have to look at all columns there are."""
    wanted = {
        "count": "count({0})",
        "last": "arg_max({0}, elapsed_seconds)",
        "lowest": "min({0})",
        "highest": "max({0})",
    }
    chosen = ", ".join(
        f"{sql.format(identifier(name))} AS {figure}_{number}"
        for number, name in enumerate(names)
        for figure, sql in wanted.items()
    )
    (row,) = database.rows(f"SELECT {chosen} FROM first_rank.training")
    return {name: {figure: row[f"{figure}_{number}"] for figure in wanted} for number, name in enumerate(names)}


def _shapes(database: "Database", names: Sequence[str]) -> dict[str, list[float]]:
    """The means over stretches of time of equal length, of those stretches that have values."""
    means = ", ".join(f"avg({identifier(name)}) AS mean_{number}" for number, name in enumerate(names))
    rows = database.rows(
        f"""
        WITH span AS (SELECT min(elapsed_seconds) AS first, max(elapsed_seconds) AS last FROM first_rank.training)
        SELECT {means} FROM first_rank.training, span
        GROUP BY least({SHAPE_POINTS - 1},
            floor({SHAPE_POINTS} * (elapsed_seconds - first) / greatest(last - first, 1e-9)))
        ORDER BY min(elapsed_seconds)"""
    )
    return {
        name: [float(f"{mean:.6g}") for row in rows if (mean := row[f"mean_{number}"]) is not None]
        for number, name in enumerate(names)
    }


def read_curve(database: "Database", name: str) -> OwnCurve:
    """The course of one field of the training."""
    lines = database.arrays(
        f"SELECT elapsed_seconds AS seconds, {identifier(name)} AS value FROM first_rank.training "
        f"WHERE {identifier(name)} IS NOT NULL ORDER BY elapsed_seconds"
    )
    return OwnCurve(_thinned(lines["seconds"], CURVE_POINTS), _thinned(lines["value"], CURVE_POINTS))


def read_curves(database: "Database", names: Sequence[str]) -> dict[str, OwnCurve]:
    """The courses of those fields that have at least two values."""
    curves = {name: read_curve(database, name) for name in names}
    return {name: curve for name, curve in curves.items() if len(curve.values) > 1}


def _thinned(values: Floats, points: int) -> Floats:
    """The means of at most `points` stretches of equal length."""
    if len(values) <= points:
        return values
    return np.array([part.mean() for part in np.array_split(values, points)])

"""Series in promtool's notation, for Python's evaluator."""

import re
from collections.abc import Mapping

from pulsetrain import catalog
from pulsetrain.alerts.promql import series_name
from pulsetrain.rules.present import RecordedSeries

_METRICS = {series_name(metric): metric for metric in (*catalog.METRICS, *catalog.EXPORTED)}
_RUN_OF_VALUES = re.compile(r"(-?[\d.e]+?)(?:([+-][\d.]+(?:e\d+)?))?x(\d+)")


def values_of(notation: str) -> list[float | None]:
    """`1+2x3` is 1 3 5 7, `5x2` is 5 5 5; `_` and `stale` are no values."""
    found: list[float | None] = []
    for word in notation.split():
        if word in ("_", "stale"):
            found.append(None)
        elif run := _RUN_OF_VALUES.fullmatch(word):
            start, step = float(run[1]), float(run[2] or 0)
            found += [start + step * number for number in range(int(run[3]) + 1)]
        else:
            found.append(float(word))
    return found


def labels_of(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def recorded(series: Mapping[str, str], interval: float) -> RecordedSeries:
    """What these series showed; those of others than pulsetrain are left out."""
    found = RecordedSeries(hold_seconds=interval / 2)
    for text, notation in series.items():
        name, _, labels = text.partition("{")
        if name in _METRICS:
            samples = [(n * interval, v) for n, v in enumerate(values_of(notation)) if v is not None]
            found.add(_METRICS[name], labels_of(labels), [time for time, _ in samples], [v for _, v in samples])
    return found

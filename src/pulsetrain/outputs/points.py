"""Series and their values, as Prometheus knows them."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]
Kind = Literal["gauge", "counter", "histogram", "info"]


class Point(NamedTuple):
    """One series and its value."""

    labels: Labels
    """Sorted by name."""
    value: float
    suffix: str = ""
    """Of a histogram: `_bucket`, `_sum` or `_count`."""


class Family(NamedTuple):
    """All series of one name."""

    name: str
    """A counter's ends in `_total`, that of mere information in `_info`."""
    kind: Kind
    unit: str
    help: str
    points: list[Point]


def make_labels(*parts: Mapping[str, str]) -> Labels:
    """Labels sorted by name. A later part wins, and an empty value is no label."""
    merged: dict[str, str] = {}
    for part in parts:
        merged.update(part)
    return tuple(sorted(item for item in merged.items() if item[1]))


def with_label(labels: Labels, name: str, value: str) -> Labels:
    """The same labels and one more, in its place."""
    place = bisect_left(labels, (name,))
    return (*labels[:place], (name, value), *labels[place:])

"""What a group of runs used together: GPU hours, energy, carbon, money, and how much of it was held and idle."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from pulsetrain.insight.digest import HostUse, RunDigest
from pulsetrain.runs.folder import Run

Grouping = Literal["user", "project", "host"]


class UsageRow(msgspec.Struct, kw_only=True):
    """The runs of one user, project or host. Sums are over the runs that know the figure; None where none does."""

    group: str
    """Empty for runs that name none."""
    runs: int = 0
    gpu_seconds: float = 0.0
    gpu_idle_seconds: float | None = None
    """Held and idle."""
    joules: float | None = None
    grams: float | None = None
    cost: dict[str, float] = {}
    """By currency."""
    goodput: float | None = None
    """Of the runs that train, each weighted by its time."""


def usage_by(grouping: Grouping, runs: Iterable[tuple[Run, RunDigest]]) -> list[UsageRow]:
    """One row for each group, the largest holder of GPUs first. A run on several hosts is divided among them."""
    rows: dict[str, _Sums] = {}
    for run, digest in runs:
        for group, share, use in _parts(grouping, run, digest):
            rows.setdefault(group, _Sums(group)).add(run, digest, share, use)
    return sorted((sums.row() for sums in rows.values()), key=lambda row: (-row.gpu_seconds, -row.runs, row.group))


def _parts(grouping: Grouping, run: Run, digest: RunDigest) -> Iterator[tuple[str, float, list[HostUse]]]:
    """The groups that a run belongs to, with the share of it that falls to each."""
    uses = digest.hosts
    if grouping != "host" or not uses:
        yield {"user": run.user, "project": run.project, "host": ""}[grouping], 1.0, list(uses.values())
        return
    weights = {host: use.gpu_seconds or use.joules or 0.0 for host, use in uses.items()}
    whole = sum(weights.values())
    for host, use in uses.items():
        yield host, weights[host] / whole if whole else 1 / len(uses), [use]


class _Sums:
    def __init__(self, group: str) -> None:
        self._row = UsageRow(group=group)
        self._good = self._trained = 0.0

    def add(self, run: Run, digest: RunDigest, share: float, uses: list[HostUse]) -> None:
        row = self._row
        row.runs += 1
        for use in uses:
            row.gpu_seconds += use.gpu_seconds
            row.gpu_idle_seconds = _plus(row.gpu_idle_seconds, use.gpu_idle_seconds)
            row.joules = _plus(row.joules, use.joules)
        row.grams = _plus(row.grams, None if digest.grams is None else share * digest.grams)
        if digest.cost is not None:
            row.cost = row.cost | {digest.currency: row.cost.get(digest.currency, 0.0) + share * digest.cost}
        if digest.goodput is not None and run.seconds:
            self._good += share * run.seconds * digest.goodput
            self._trained += share * run.seconds

    def row(self) -> UsageRow:
        self._row.goodput = self._good / self._trained if self._trained else None
        return self._row


def _plus(total: float | None, more: float | None) -> float | None:
    return total if more is None else (total or 0.0) + more

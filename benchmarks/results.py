"""What a benchmark returns, as a table for people and as JSON for scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any, Literal

ALIGN = "<>><>><<"
PACKAGES = (
    *("pulsetrain", "nvidia-ml-py", "nvitop", "gpustat", "psutil", "msgspec", "pandas"),
    *("codecarbon", "zeus", "carbontracker", "tensorboard", "trackio", "wandb", "aim", "mlflow-skinny"),
)


@dataclass(frozen=True)
class Limit:
    """A target: the value itself, or its ratio to the peer's, is to stay at or below this."""

    most: float
    of: Literal["value", "ratio"] = "value"


@dataclass(frozen=True)
class Result:
    """One figure of ours, beside that of a peer where there is one. Less is better in all of them."""

    benchmark: str
    name: str
    ours: float | None
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    target: Limit | None = None
    spread: float | None = None
    """How far the rounds of our figure lie apart: (highest - lowest) / lowest."""
    failure: str | None = None
    """Why a figure is missing: the peer's where there is a peer, else ours."""

    @property
    def ratio(self) -> float | None:
        """Ours, of the peer's."""
        return self.ours / self.peer_value if self.peer_value and self.ours is not None else None

    @property
    def met(self) -> bool | None:
        if self.target is None or self.failure is not None:
            return None
        measured = self.ours if self.target.of == "value" else self.ratio
        return measured is not None and measured <= self.target.most

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


@dataclass(frozen=True)
class Report:
    """The results of one benchmark, and what there is to say about them."""

    results: Sequence[Result]
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """What lies behind the results, for scripts alone."""


def beside(
    ours: Result, peers: Mapping[str, float], failed: Mapping[str, str], targets: Mapping[str, Limit] | None = None
) -> list[Result]:
    """Our figure beside that of each peer, and beside those that failed with their reasons."""
    targets = targets or {}
    measured = [replace(ours, peer=peer, peer_value=value, target=targets.get(peer)) for peer, value in peers.items()]
    return [*measured, *(replace(ours, peer=peer, failure=reason) for peer, reason in failed.items())]


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    return {
        "packages": packages(),
        "results": [result.as_json() for report in reports for result in report.results],
        "notes": [note for report in reports for note in report.notes],
        "details": {key: value for report in reports for key, value in report.details.items()},
    }


def packages() -> dict[str, str | None]:
    """The versions of what was compared; None for what is not installed."""
    return {package: _version(package) for package in PACKAGES}


def table(results: Sequence[Result]) -> str:
    head = ("", "pulsetrain", "spread", "beside", "", "ratio", "target", "")
    rows = [head, *map(_row, results)]
    # A figure beside several peers is shown once.
    lines = [head, *(("", "", "", *row[3:]) if row[:3] == above[:3] else row for above, row in pairwise(rows))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("".join(map(_cell, ALIGN, line, widths)).rstrip() for line in lines)


def _cell(align: str, text: str, width: int) -> str:
    return f"{text:{align}{width}}  "


def _row(result: Result) -> tuple[str, ...]:
    target = ""
    if result.target is not None:
        most = f"{result.target.most:g}"
        target = f"<= {most} {result.unit}" if result.target.of == "value" else f"ratio <= {most}"
    return (
        f"{result.benchmark}: {result.name}",
        "" if result.ours is None else _figure(result.ours, result.unit),
        "" if result.spread is None else f"+{100 * result.spread:.0f} %",
        result.peer or "",
        "" if result.peer_value is None else _figure(result.peer_value, result.unit),
        "" if result.ratio is None else f"{result.ratio:.3g}",
        target,
        f"failed: {result.failure}" if result.failure else {None: "", True: "met", False: "MISSED"}[result.met],
    )


def _figure(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f} {unit}".rstrip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

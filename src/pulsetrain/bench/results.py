"""What is kept of benchmarks: the figures of each run, their statistics, and on what they were obtained."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from pulsetrain import __version__
from pulsetrain.bench.declaration import Benchmark
from pulsetrain.bench.statistics import Statistics, describe
from pulsetrain.errors import PulsetrainError, UsageError
from pulsetrain.insight.metric_names import Better
from pulsetrain.insight.report import Report
from pulsetrain.insight.summary import Summary
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.units import MIB
from pulsetrain.untrusted import showable_json

FILE = "results.json"
MOST_BYTES = 64 * MIB
RepeatStatus = Literal["finished", "failed", "timed out", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class BenchFigure:
    """A figure of a run of a benchmark, declared once."""

    key: str
    name: str
    unit: str
    better: Better = "lower"
    gated: bool = False
    value: Callable[[Report], float | None] | None = None
    """None for those that are not in a report."""


def _joules(report: Report) -> float | None:
    return report.energy.total.joules if report.energy.total else None


def _gpu_joules(report: Report) -> float | None:
    energy = report.energy.of_kind("gpu")
    return energy.joules if energy else None


FIGURES = (
    BenchFigure(key="seconds", name="time", unit="seconds", gated=True),
    BenchFigure(key="score", name="score", unit="number", better="higher", gated=True),
    BenchFigure(key="joules", name="energy", unit="joules", gated=True, value=_joules),
    BenchFigure(key="gpu_joules", name="GPU energy", unit="joules", value=_gpu_joules),
    BenchFigure(
        key="carbon_grams",
        name="carbon",
        unit="grams",
        value=lambda report: report.carbon.grams if report.carbon else None,
    ),
    BenchFigure(
        key="memory_bytes",
        name="memory",
        unit="bytes",
        gated=True,
        value=lambda report: report.summary.job_memory_bytes_peak,
    ),
    BenchFigure(key="gpu_memory_bytes", name="GPU memory", unit="bytes", gated=True),
    BenchFigure(
        key="cpu_seconds", name="CPU time", unit="seconds", value=lambda report: report.summary.job_cpu_seconds
    ),
)
"""Time, energy and memory of one run always come from the same run: the best of each would be nobody's."""


class RepeatResult(msgspec.Struct, kw_only=True):
    """One run of a benchmark."""

    number: int
    warm_up: bool
    folder: str
    """Below that of the benchmark."""
    run: str
    path: str
    """The run folder."""
    status: RepeatStatus
    exit_code: int | None
    reason: str = ""
    """Why it did not finish."""
    start: datetime
    end: datetime
    """Of the measured window: the life of the command's or container's own process."""
    figures: dict[str, float]
    """By the keys of `FIGURES`; what is not known is left out."""
    energy_source: str = ""
    """`measured (counter)`, `estimated (counter + load)`."""
    stages: dict[str, float] = {}
    """Seconds to pull the image, to create the container and to start it: not part of its time."""
    image_id: str = ""
    image_digest: str = ""
    """Where the image came from a registry; one that was built here has an id alone."""
    output_bytes: int = 0
    notes: list[str] = []

    @property
    def counts(self) -> bool:
        return not self.warm_up and self.status == "finished"


class Surroundings(msgspec.Struct, kw_only=True):
    """On what a benchmark was run: figures from different ones cannot be compared."""

    host: str = ""
    cpu_cores: int = 0
    gpus: list[str] = []
    simulated: bool = False
    driver: str = ""
    power_limit_watts: list[float] = []
    clock_sm_max_hertz: list[float] = []
    clock_memory_max_hertz: list[float] = []


class BenchmarkResult(msgspec.Struct, kw_only=True):
    """All runs of one benchmark, and what they tell together."""

    benchmark: Benchmark
    surroundings: Surroundings
    repeats: list[RepeatResult]
    figures: dict[str, Statistics] = {}
    """Over the runs that count."""

    @property
    def name(self) -> str:
        return self.benchmark.name

    @property
    def counted(self) -> list[RepeatResult]:
        return [repeat for repeat in self.repeats if repeat.counts]

    @property
    def failed(self) -> list[RepeatResult]:
        return [repeat for repeat in self.repeats if repeat.status != "finished"]

    @property
    def complete(self) -> bool:
        return not self.failed and len(self.counted) == self.benchmark.repeat

    @property
    def typical(self) -> RepeatResult | None:
        """The run whose time is in the middle; of none that finished, the last one."""
        counted = sorted(self.counted, key=lambda repeat: repeat.figures.get("seconds", 0.0))
        return counted[(len(counted) - 1) // 2] if counted else next(iter(self.repeats[-1:]), None)

    @property
    def first_is_slow(self) -> bool:
        """Whether the first run took longer than all others: caches were cold, and a warm-up run would help."""
        seconds = self.figures.get("seconds")
        return bool(seconds and 0 in seconds.outliers and seconds.values[0] > seconds.median)


class Results(msgspec.Struct, kw_only=True):
    """What `results.json` holds."""

    pulsetrain: str = __version__
    start: datetime
    benchmarks: list[BenchmarkResult]


def figures_of(folder: RunFolder, report: Report) -> dict[str, float]:
    """What the record of a run tells."""
    found = {figure.key: figure.value(report) for figure in FIGURES if figure.value}
    found["gpu_memory_bytes"] = _gpu_memory(folder, report.summary)
    return {key: value for key, value in found.items() if value is not None}


def _gpu_memory(folder: RunFolder, summary: Summary) -> float | None:
    """The most that its own processes held on all GPUs; where the driver lists none of them, on the fullest GPU."""
    with closing(Database([folder])) as database:
        (own,) = database.rows("""
            SELECT max(held) AS peak FROM (
                SELECT sum(gpu_memory_mb) AS held FROM process
                WHERE gpu_memory_mb IS NOT NULL AND pid IN (SELECT pid FROM process WHERE uuid IS NULL)
                GROUP BY timestamp
            )
        """)
    peaks = [own["peak"]] if own["peak"] is not None else [gpu.memory_mb_peak for gpu in summary.gpus]
    known = [peak for peak in peaks if peak is not None]
    return max(known) * MIB if known else None


def energy_source(report: Report) -> str:
    """How the energy was obtained."""
    total = report.energy.total
    return f"{'simulated, ' if report.run.simulated else ''}{total.origin} ({total.method})" if total else ""


def surroundings_of(folder: RunFolder, report: Report) -> Surroundings:
    """On what a run was run."""
    host = next(iter(report.run.hosts), "")
    facts = report.run.hosts.get(host)
    with closing(Database([folder])) as database:
        rows = database.rows(
            "SELECT max(power_limit_watts) AS power, max(clock_sm_max_hertz) AS sm, "
            "max(clock_memory_max_hertz) AS memory FROM boards.gpu GROUP BY board ORDER BY any_value(gpu_index)"
        )
        drivers = database.rows("SELECT any_value(gpu_driver_versions) AS driver FROM host")

    def known(column: str) -> list[float]:
        return [row[column] for row in rows if row[column] is not None]

    driver: Any = drivers[0]["driver"] if drivers else None
    return Surroundings(
        host=host,
        cpu_cores=facts.cpu_cores if facts else 0,
        gpus=[gpu.name for gpu in report.summary.gpus],
        simulated=report.run.simulated,
        driver=max(driver) if isinstance(driver, dict) and driver else "",
        power_limit_watts=known("power"),
        clock_sm_max_hertz=known("sm"),
        clock_memory_max_hertz=known("memory"),
    )


def summarize_figures(repeats: Sequence[RepeatResult]) -> dict[str, Statistics]:
    """Statistics of every figure that all runs have that count."""
    counted = [repeat for repeat in repeats if repeat.counts]
    return {
        figure.key: describe([repeat.figures[figure.key] for repeat in counted])
        for figure in FIGURES
        if counted and all(figure.key in repeat.figures for repeat in counted)
    }


def save(results: Results, folder: Path) -> Path:
    """Write results.json, whole or not at all."""
    path = folder / FILE
    temporary = folder / f".{FILE}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
        temporary.replace(path)
    except OSError as error:
        raise PulsetrainError(
            f"the results cannot be written to {path}: {error.strerror}.", hint="Choose another folder: --results DIR"
        ) from None
    return path


def load(path: Path) -> Results:
    """Results by their folder or their file. All text in them is fit to be shown."""
    file = path / FILE if path.is_dir() else path
    try:
        with file.open("rb") as stream:
            return showable_json(stream.read(MOST_BYTES), Results)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.",
            hint="Create one: pulsetrain bench --repeat 5 --results DIR ...",
        ) from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file} is not a benchmark results file: {error}.") from None

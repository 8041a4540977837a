"""The files of a benchmark's results: those of the run in the middle, with what is known of the benchmark."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from pulsetrain.bench.results import BenchmarkResult, RepeatResult
from pulsetrain.insight.report import study
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder
from pulsetrain.views.report.files import write_files, write_plot


def write_result_files(result: BenchmarkResult, folder: Path, *, plot: bool = True) -> list[Path]:
    """metrics.yml, formatted_metrics.txt, metrics_plot.png and report.html of the typical run."""
    typical = result.typical
    if typical is None or not typical.path:
        return []
    run = RunFolder(Path(typical.path))
    with closing(Database([run])) as database:
        return write_files(study(database, run), database, folder, more=_about(result, typical), plot=plot)


def write_present_plot(run: RunFolder, folder: Path) -> None:
    """metrics_plot.png of a run in progress."""
    with closing(Database([run])) as database:
        write_plot(study(database, run).report, database, folder)


def _about(result: BenchmarkResult, typical: RepeatResult) -> dict[str, Any]:
    """What makes the figures worth comparing: from which window and which source they are, and on what."""
    about = {
        "repeat": typical,
        "surroundings": result.surroundings,
        "statistics": result.figures,
        "declaration": result.benchmark,
    }
    built: dict[str, Any] = msgspec.to_builtins(about)
    return {"status": typical.status, "exit_code": typical.exit_code, "benchmark": built}

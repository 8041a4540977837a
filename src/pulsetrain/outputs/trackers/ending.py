"""What a tracker learns at the end of a run: energy, carbon, cost, verdict, and the report as files."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from pulsetrain.insight.digest import digest_of
from pulsetrain.insight.report import Study, study
from pulsetrain.outputs.trackers.tracker import Ending
from pulsetrain.runs.database import Database
from pulsetrain.runs.folder import RunFolder

Render = Callable[[Study, Database, Path], Sequence[Path]]
"""Writes the report of a run into a folder."""


def conclude(folder: RunFolder, render: Render | None, place: Path) -> Ending:
    """The end of a run. Files are written into `place`."""
    with closing(Database([folder])) as database:
        found = study(database, folder)
        report = found.report
        digest = digest_of(report, folder.size_bytes())
        figures = {
            "seconds": report.seconds,
            "steps": digest.steps,
            "step_seconds_median": digest.step_seconds,
            "gpu_utilization_percent_mean": digest.utilization_percent,
            "energy_joules": digest.joules,
            "carbon_grams": digest.grams,
            "cost": digest.cost,
            "goodput_ratio": digest.goodput,
        }
        words = {
            "verdict": digest.verdict,
            "main_finding": digest.finding,
            "currency": digest.currency,
            "status": report.run.status,
        }
        return Ending(
            report.run,
            {f"run/{name}": float(value) for name, value in figures.items() if value is not None},
            {name: word for name, word in words.items() if word},
            list(render(found, database, place)) if render else [],
        )

"""The verdict about a run in view, by its files: the same as in its report."""

from typing import TYPE_CHECKING

from pulsetrain.rules.finding import Verdict
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.runs.folder import Run, RunFolder
from pulsetrain.views.live.reading import RunReader

if TYPE_CHECKING:
    from pulsetrain.runs.database import Database

PERIOD_SECONDS = 30.0
SHARE = 0.01
"""A run of an hour takes 0.6 to 1.2 s of a core to judge: it is judged every one to two minutes."""


class RunVerdict(RunReader):
    """Judges a run."""

    def __init__(self, folder: RunFolder, thresholds: Thresholds, period_seconds: float = PERIOD_SECONDS) -> None:
        super().__init__(folder, period_seconds=period_seconds, share=SHARE)
        self._thresholds = thresholds
        self.verdict: Verdict | None = None
        """As of the last reading; None before the first."""

    def _read(self, run: Run, database: "Database") -> None:
        from pulsetrain.insight.report import study

        self.verdict = study(database, self._folder, thresholds=self._thresholds).report.verdict

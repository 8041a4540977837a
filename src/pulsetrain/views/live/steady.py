"""The steady steps and the time ledger of a run in view, by its files: the same figures as in its report."""

from typing import TYPE_CHECKING

from pulsetrain.runs.folder import Run, RunFolder
from pulsetrain.views.live.reading import RunReader

if TYPE_CHECKING:
    from pulsetrain.insight.steps import StepFacts
    from pulsetrain.insight.time_ledger import TimeLedger
    from pulsetrain.runs.database import Database

PERIOD_SECONDS = 5.0
SHARE = 1 / 30


class SteadySteps(RunReader):
    """Reads the steps of a run."""

    def __init__(self, folder: RunFolder, period_seconds: float = PERIOD_SECONDS) -> None:
        super().__init__(folder, period_seconds=period_seconds, share=SHARE)
        self.facts: StepFacts | None = None
        """As of the last reading; None before the first, and of a run without steps."""
        self.ledger: TimeLedger | None = None
        """What the time of its ranks went into, without energy and money; as of the same reading."""

    def _read(self, run: Run, database: "Database") -> None:
        from pulsetrain.insight.steps import read_steps
        from pulsetrain.insight.time_ledger import Rates, read_timelines, time_ledger

        self.facts = read_steps(database)
        (host,) = database.rows("SELECT coalesce(max(elapsed_seconds), 0) AS seconds FROM host")
        seconds = host["seconds"] if run.seconds is None else run.seconds
        self.ledger = time_ledger(read_timelines(database, run, seconds), Rates())

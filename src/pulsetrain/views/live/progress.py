"""How a run in progress is doing: its training, what it has used, and how much is left."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pulsetrain.insight.projection import TrainingProgress
from pulsetrain.live import SubjectState
from pulsetrain.rules.finding import Verdict
from pulsetrain.views.live.machines import WatchedMachine

if TYPE_CHECKING:
    from pulsetrain.insight.steps import StepFacts
    from pulsetrain.insight.time_ledger import TimeLedger


class RunProgress:
    """One run over all its machines, at one moment: its first rank, and the accounts of all hosts."""

    def __init__(self, machines: Sequence[WatchedMachine], moment: float | None = None) -> None:
        """`moment` is a time that has passed; None is now."""
        states = [(machine, machine.history.at(moment)) for machine in machines]
        trainings = [(machine, state) for machine, live in states for state in live.table("training")]
        trainings.sort(key=lambda found: int(found[1].subject.labels.get("rank") or 0))
        self.machine: WatchedMachine | None = trainings[0][0] if trainings else None
        """Where the first rank runs."""
        self.training: SubjectState | None = trainings[0][1] if trainings else None
        """What the first rank reports."""
        steady = self.machine.steady if self.machine and moment is None else None
        self.steps: StepFacts | None = steady.facts if steady else None
        """Its steady steps so far, as a report has them; None at a moment that has passed, and where unknown."""
        self.ledger: TimeLedger | None = steady.ledger if steady else None
        """What its time so far went into; None likewise."""
        judged = (machine.verdict for machine in machines if moment is None)
        self.verdict: Verdict | None = next(filter(None, judged), None)
        """What holds it back, as a report has it; None likewise."""
        self.elapsed_seconds = max((live.elapsed for _, live in states), default=0.0)
        self._accounts = [account for _, live in states for account in live.table("account")]

    def number(self, field: str) -> float | None:
        """A value of the training."""
        return self.training.number(field) if self.training else None

    @property
    def ratio(self) -> float | None:
        """Steps done, of those planned: 0 to 1."""
        return self._training_progress().ratio

    @property
    def remaining_seconds(self) -> float | None:
        """As the accounts have it; before the first entry, by the pace of now."""
        if self.ratio is None:
            return None
        entered = [left for account in self._accounts if (left := account.number("remaining_seconds")) is not None]
        return max(entered) if entered else self._training_progress().remaining_seconds

    def used(self, field: str) -> dict[str, float]:
        """A field of the accounts, added up over all hosts: by device or currency, where it has these."""
        found: dict[str, float] = {}
        for account in self._accounts:
            value = account.values.get(field)
            for name, amount in (value if isinstance(value, dict) else {"": account.number(field)}).items():
                if amount is not None:
                    found[name] = found.get(name, 0.0) + amount
        return found

    def total(self, field: str) -> float | None:
        """The same in one figure; None where no account has it."""
        amounts = self.used(field)
        return sum(amounts.values()) if amounts else None

    def projected(self, field: str) -> dict[str, float]:
        """The same of a projection; nothing where a host has none, or once the planned steps are done.

        The last entry of an account is held, so that of a run that is done still has its projections.
        """
        ahead = self.ratio is not None and self.ratio < 1
        known = all(account.values.get(field) is not None for account in self._accounts)
        return self.used(field) if ahead and known else {}

    def _training_progress(self) -> TrainingProgress:
        step = self.number("step")
        pace = self.training.rates.get("step") if self.training else None
        return TrainingProgress(
            steps=int(step or 0),
            last_step=step,
            total_steps=self.number("total_steps"),
            step_seconds=1 / pace if pace and pace > 0 else None,
        )

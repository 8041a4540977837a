"""What a rule is: data that every engine reads."""

from dataclasses import dataclass
from typing import Literal

from pulsetrain.rules.expression import Expression, Threshold, loosened, walk
from pulsetrain.rules.thresholds import Thresholds
from pulsetrain.snapshot import Severity

CLEAR = "1m"
"""An alert is resolved when its condition has not been true for so long: one that flickers stays one alert."""
Topic = Literal["machine", "waste", "training", "budget", "watching"]


@dataclass(frozen=True, slots=True)
class RecordTest:
    """How a rule is judged on a recorded run: `insight/verdict` has a function of the rule's name that does it."""

    summary: str
    """One sentence with the evidence in braces, by its signal: `{data_wait_share:share} of each step waits`."""
    computed: str
    """How, in words, with thresholds in braces."""
    thresholds: tuple[str, ...] = ()
    """The names of those it compares with."""
    severity: Severity | None = None
    """Of a finding, where it is not that of the alert."""
    holds_back: bool = False
    """Whether it says what takes the run's time: a warning needs enough steps and a cost that matters."""
    explains: tuple[str, ...] = ()
    """Rules that are an effect of this one where both are found: they come after it, as `info`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRule:
    """What every rule has. One with nothing else is judged on recorded runs alone."""

    name: str
    topic: Topic
    severity: Severity
    """Of a finding, at most: small or doubtful ones are `info`. `on_record` may have its own."""
    description: str
    """What it means."""
    advice: str
    """What to do."""
    on_record: RecordTest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(DeclaredRule):
    """A rule that is evaluated live. Two of one name differ in severity, and the graver one silences the other.

    Texts name labels, the value and thresholds in braces, with a format of `text.py`: `GPU {gpu} is at {value:.0f} °C`.
    """

    when: Expression
    """The rule is true of the subjects that have a value here."""
    hold: str = ""
    """How long it must be true before it fires, such as 5m; at once if empty."""
    margin: float = 0.0
    """Once it fires, it is true until the value is beyond its thresholds by this share of them."""
    summary: str
    """What, where and how much, in one line."""

    @property
    def stays(self) -> Expression:
        """What keeps it firing: true wherever `when` is, and a little further."""
        return loosened(self.when, self.margin) if self.margin else self.when

    @property
    def thresholds(self) -> list[str]:
        """The names of the thresholds that it compares with."""
        return list(dict.fromkeys(part.name for part in walk(self.when) if isinstance(part, Threshold)))

    def wanted(self, thresholds: Thresholds) -> bool:
        """Whether it is not switched off and its limits are set."""
        return self.name not in thresholds.off and None not in (getattr(thresholds, name) for name in self.thresholds)

    def hold_in(self, thresholds: Thresholds) -> str:
        """How long it must be true, as the user says."""
        return thresholds.hold.get(self.name, self.hold)

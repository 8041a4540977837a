"""Which alert keeps which other quiet, when both are about the same: for Alertmanager and for the live engine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')


class Matcher(NamedTuple):
    """A label and what it must be, as Alertmanager writes it: `severity=~"warning|info"`."""

    label: str
    operator: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Matcher":
        found = _MATCHER.fullmatch(text)
        if not found:
            raise ValueError(f"no matcher: {text}")
        return cls(*found.groups())

    def matches(self, labels: Mapping[str, str]) -> bool:
        """A label that is not there counts as empty."""
        value = labels.get(self.label, "")
        same = value == self.value if "~" not in self.operator else re.fullmatch(self.value, value) is not None
        return same is (self.operator[0] == "=")

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'


@dataclass(frozen=True)
class Inhibition:
    """Alerts that match `target` are quiet while one that matches `source` fires and agrees in the labels `equal`."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def quiets(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """As in Alertmanager: two alerts that both match source and target do not quiet each other."""
        if not (_all_match(self.source, source) and _all_match(self.target, target)):
            return False
        if any(source.get(label, "") != target.get(label, "") for label in self.equal):
            return False
        return not (_all_match(self.target, source) and _all_match(self.source, target))

    def as_alertmanager(self) -> dict[str, list[str]]:
        return {
            "source_matchers": [*map(str, self.source)],
            "target_matchers": [*map(str, self.target)],
            "equal": [*self.equal],
        }


def _all_match(matchers: Sequence[Matcher], labels: Mapping[str, str]) -> bool:
    return all(matcher.matches(labels) for matcher in matchers)


def _inhibition(source: Sequence[str], target: Sequence[str], equal: Sequence[str]) -> Inhibition:
    return Inhibition(tuple(map(Matcher.parse, source)), tuple(map(Matcher.parse, target)), tuple(equal))


_SUBJECT = ("host", "run", "gpu", "uuid", "rank")

INHIBITIONS = (
    # the graver of two alerts of one name
    _inhibition(['severity="critical"'], ['severity=~"warning|info"'], ("alertname", *_SUBJECT)),
    # what is said of a GPU by its run, and by the agent of its machine
    _inhibition(['uuid!=""', 'run!=""'], ['uuid!=""', 'run=""'], ("alertname", "severity", "host", "uuid")),
    # a GPU that is gone; what the driver said of it (XID) is why
    _inhibition(['alertname="GpuLost"'], ['alertname!~"GpuLost|GpuXidError"'], ("host", "uuid")),
    # idle is underused
    _inhibition(['alertname="IdleGpu"'], ['alertname="LowGpuUtilization"'], ("host", "run", "uuid")),
    # a stalled run neither uses its GPUs nor learns
    _inhibition(
        ['alertname="Stalled"'],
        ['alertname=~"IdleGpu|LowGpuUtilization|SlowedDown|LossNotDecreasing"'],
        ("run",),
    ),
    *(
        _inhibition([f'alertname="{budget}AboveLimit"'], [f'alertname="{budget}ProjectedAboveLimit"'], equal)
        for budget, equal in {
            "Cost": ("run", "currency"),
            "Energy": ("run",),
            "Carbon": ("run",),
            "Time": ("run",),
        }.items()
    ),
)

_Key = TypeVar("_Key")


def inhibited(alerts: Mapping[_Key, Mapping[str, str]]) -> dict[_Key, _Key]:
    """Of alerts that fire, by their labels: those that are quiet, each with the one that quiets it."""
    found: dict[_Key, _Key] = {}
    for inhibition in INHIBITIONS:
        sources = {key: labels for key, labels in alerts.items() if _all_match(inhibition.source, labels)}
        for target, labels in alerts.items() if sources else ():
            by = next((key for key, other in sources.items() if inhibition.quiets(other, labels)), None)
            if by is not None:
                found.setdefault(target, by)
    return found

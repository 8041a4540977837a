"""The alerts of a run, read back from its events: what fired, when, and for how long."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pulsetrain.rules.alert import FIRING, GRAVITY, KINDS, SILENCED
from pulsetrain.runs.codec import elapsed_of, time_of
from pulsetrain.runs.folder import RunFolder
from pulsetrain.runs.line_file import LineFile
from pulsetrain.snapshot import Severity, severity_of

MOST_ALERTS = 10_000
"""Of one run; an engine that runs for a year makes fewer."""
_NOT_LABELS = frozenset(
    {
        *("timestamp", "elapsed_seconds", "kind", "severity", "message", "run", "host", "other"),
        *("rule", "alert", "value", "advice", "seconds", "silenced_by"),
    }
)


class RunAlert(msgspec.Struct, kw_only=True):
    """One alert of a run, from its beginning to its end."""

    rule: str
    severity: Severity
    message: str
    advice: str = ""
    value: float | None = None
    """What the rule found when it began to fire."""
    host: str
    labels: dict[str, str | int | float] = {}
    """Of its subject: gpu_index, uuid, rank, ..."""
    time: float | None = None
    """When it began to fire, in seconds since the epoch."""
    elapsed_seconds: float | None = None
    """The same, since the start of the run."""
    seconds: float | None = None
    """For how long it fired; None while it does, or if it did when the run ended."""
    silenced: bool = False
    """Whether it ended because it was silenced, by the user or by another alert."""

    @property
    def ended(self) -> bool:
        return self.seconds is not None


def alerts_of(events: Iterable[Mapping[str, Any]], host: str = "") -> list[RunAlert]:
    """What fired, in the order in which it began. Events come in the order of their times; damaged ones are skipped."""
    found: list[RunAlert] = []
    firing: dict[tuple[str, str], RunAlert] = {}
    for event in events:
        rule, key = event.get("rule"), event.get("alert")
        if event.get("kind") not in KINDS or not isinstance(rule, str) or not isinstance(key, str):
            continue
        where = str(event.get("host", host))
        if event["kind"] != FIRING:
            ended = firing.pop((where, key), None)
            if ended:
                ended.seconds = _seconds(ended, event)
                ended.silenced = event["kind"] == SILENCED
        elif (where, key) not in firing and len(found) < MOST_ALERTS:
            firing[where, key] = _begun(event, rule, where)
            found.append(firing[where, key])
    return found


def gravest_first(alerts: Iterable[RunAlert]) -> list[RunAlert]:
    """Those that fire first; then by severity, then the latest."""
    return sorted(alerts, key=lambda alert: (alert.ended, GRAVITY[alert.severity], -(alert.time or 0.0)))


def _begun(event: Mapping[str, Any], rule: str, host: str) -> RunAlert:
    value = event.get("value")
    return RunAlert(
        rule=rule,
        severity=severity_of(event.get("severity")),
        message=str(event.get("message", "")),
        advice=str(event.get("advice") or ""),
        value=float(value) if isinstance(value, int | float) else None,
        host=host,
        labels={name: label for name, label in event.items() if name not in _NOT_LABELS and _is_label(label)},
        time=time_of(event),
        elapsed_seconds=elapsed_of(event),
    )


def _is_label(label: object) -> bool:
    return isinstance(label, str | int | float) and not isinstance(label, bool)


def _seconds(alert: RunAlert, end: Mapping[str, Any]) -> float:
    began, ended = alert.elapsed_seconds, elapsed_of(end)
    return max(0.0, ended - began) if began is not None and ended is not None else 0.0


def read_alerts(folder: RunFolder) -> list[RunAlert]:
    """The alerts of a run on all its hosts, from the files of its events."""
    found: list[RunAlert] = []
    for path in folder.files("events"):
        with LineFile(path) as lines:
            found += alerts_of(lines.all_lines(), path.parent.name)
    return found

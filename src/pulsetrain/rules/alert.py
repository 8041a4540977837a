"""What a rule says live, as events of a run: the engine in `alerts/` writes them, views and exporters read them."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pulsetrain.rules.labels import LabelSet
from pulsetrain.rules.rule import Rule
from pulsetrain.snapshot import Event, Label, Severity

FIRING, RESOLVED, SILENCED = "alert_firing", "alert_resolved", "alert_silenced"
KINDS = (FIRING, RESOLVED, SILENCED)
LABELS = ("gpu", "uuid", "rank", "mig", "device", "source", "part", "path", "currency", "xid")
"""What an alert says of its subject, beside host and run. They are few, so that series stay few."""
MOST_ALERTS = 500
"""More are never firing at once; a run folder from elsewhere may claim otherwise."""
GRAVITY: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}
"""The gravest first."""

Noted = TypeVar("Noted")

_FIELDS = {"gpu": "gpu_index"}
"""Labels that lines call otherwise."""
_NUMBERS = frozenset({"gpu", "rank", "xid"})


def alert_key(rule: Rule, labels: LabelSet) -> str:
    """What tells an alert apart from the others of its run and host: `GpuHot/warning/gpu=0,uuid=GPU-3f`."""
    about = ",".join(f"{name}={value}" for name, value in labels.items if name in LABELS)
    return f"{rule.name}/{rule.severity}/{about}"


def alert_details(rule: Rule, labels: LabelSet) -> dict[str, Label | float]:
    """The fields that all events of an alert have."""
    found: dict[str, Label | float] = {"rule": rule.name, "alert": alert_key(rule, labels)}
    for name, value in labels.items:
        if name in LABELS:
            number = name in _NUMBERS and value.isdecimal()
            found[_FIELDS.get(name, name)] = int(value) if number else value
    return found


def series_labels(firing: Event) -> dict[str, str]:
    """The labels of a firing alert's series, beside host and run; as Prometheus labels its own alerts."""
    details: Mapping[str, Label | float] = firing.details
    known = {name: details.get(_FIELDS.get(name, name)) for name in LABELS}
    found = {name: str(value) for name, value in known.items() if value is not None}
    return {"alertname": str(details.get("rule", "")), "severity": firing.severity, **found}


def note_alert(firing: dict[str, Noted], event: Event, noted: Noted) -> None:
    """Keep up which alerts fire, by their keys: `noted` is what is kept of an event that says that one does."""
    key = event.details.get("alert")
    if not isinstance(key, str):
        return
    if event.kind == FIRING and len(firing) < MOST_ALERTS:
        firing[key] = noted
    elif event.kind in (RESOLVED, SILENCED):
        firing.pop(key, None)


def gravest_first(alerts: Iterable[Event]) -> list[Event]:
    """In the order in which people should look at them."""
    return sorted(alerts, key=lambda alert: GRAVITY[alert.severity])

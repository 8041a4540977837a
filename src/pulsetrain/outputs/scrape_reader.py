"""What another pulsetrain shows at /metrics, as samples again: `families`, the other way round."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from pulsetrain import catalog
from pulsetrain.catalog import METRICS, NONFINITE, STEP_COUNTS, TABLES
from pulsetrain.errors import PulsetrainError
from pulsetrain.rules.alert import FIRING, LABELS, RESOLVED
from pulsetrain.snapshot import Event, Label, Metric, Sample, Subject, Value, severity_of

KEPT_LABELS = 8192
"""Labels stay the same from scrape to scrape, and take longest to read."""

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \S+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_METRICS = {metric.name: metric for metric in METRICS}
_INFO = {metric.name: table for table, metric in catalog.DEVICE_INFO.items()}
_STEPS = STEP_COUNTS.name


class ScrapeReading(NamedTuple):
    """One scrape."""

    age_seconds: float
    """How old its figures were."""
    samples: tuple[Sample, ...]
    events: tuple[Event, ...]


class ScrapeReader:
    """Reads the scrapes of one machine, one after the other.

    What counts up is told as what was added since the last one, as the samples of a training have it; what is no longer
    there is None. Of several runs, the one that began last is shown.
    """

    def __init__(self) -> None:
        self._labels: dict[Subject, dict[str, Label]] = {}
        self._fields: dict[Subject, set[str]] = {}
        self._totals: dict[tuple[Subject, str, str], float] = {}
        self._events: Mapping[tuple[str, str], float] | None = None
        self._alerts: Mapping[str, Event] = {}

    def read(self, text: str) -> ScrapeReading:
        """What the page at /metrics says."""
        page = _Page(text)
        if not page.of_pulsetrain:
            raise PulsetrainError("that server is not a pulsetrain exporter.")
        samples = [self._sample(subject, found) for subject, found in page.subjects.items()]
        self._fields = {subject: {*found.values} for subject, found in page.subjects.items()}
        events = (*self._news(page.events), *self._alert_news(page.alerts))
        return ScrapeReading(page.age_seconds, tuple(samples), events)

    def _sample(self, subject: Subject, found: "_Found") -> Sample:
        labels = found.labels
        if subject.table == "gpu":  # a lost one is shown without its name
            labels = self._labels[subject] = {"name": "unknown", **self._labels.get(subject, {}), **labels}
        gone: dict[str, Value] = dict.fromkeys(self._fields.get(subject, set()) - {*found.values})
        return Sample(Subject(subject.table, subject.key, labels), gone | found.values | self._added(subject, found))

    def _added(self, subject: Subject, found: "_Found") -> dict[str, Value]:
        """What the totals have risen by; nothing at the first scrape, nor when they were reset."""
        values: dict[str, Value] = {}
        counts: dict[str, dict[str, float]] = defaultdict(dict)
        for (field, key), total in found.totals.items():
            before = self._totals.get((subject, field, key), total)
            self._totals[subject, field, key] = total
            if total > before and key:
                counts[field][key] = total - before
            elif total > before:
                values[field] = total - before
        return values | counts

    def _news(self, events: Mapping[tuple[str, str], float]) -> Iterator[Event]:
        """An event for each kind that has come since the last scrape; its words stay on that machine."""
        before, self._events = events if self._events is None else self._events, events
        for (kind, severity), count in events.items():
            if count > before.get((kind, severity), 0.0) and kind not in (FIRING, RESOLVED):
                yield Event(kind, kind.replace("_", " "), severity_of(severity))

    def _alert_news(self, alerts: Mapping[str, Event]) -> Iterator[Event]:
        """The alerts that fire there since the last scrape, and those that no longer do."""
        before, self._alerts = self._alerts, alerts
        yield from (alert for key, alert in alerts.items() if key not in before)
        for key, alert in before.items():
            if key not in alerts:
                yield alert._replace(kind=RESOLVED, message=f"Resolved: {alert.message}", severity="info")


class _Found:
    """What one scrape says of a subject."""

    def __init__(self) -> None:
        self.labels: dict[str, Label] = {}
        self.values: dict[str, Value] = {}
        self.totals: dict[tuple[str, str], float] = {}
        """What adds up, by its field; steps by the bound of their length as well, and NaN by which value it was."""


class _Page:
    """One scrape, by subjects."""

    def __init__(self, text: str) -> None:
        self.subjects: dict[Subject, _Found] = defaultdict(_Found)
        self.events: dict[tuple[str, str], float] = {}
        self.alerts: dict[str, Event] = {}
        """Those that fire, by their labels."""
        self.age_seconds = 0.0
        self.of_pulsetrain = False
        points = list(_points(text))
        starts = {labels.get("run"): value for name, labels, value in points if name == catalog.RUN_START.name}
        self._run = max(starts, key=lambda run: starts[run], default=None)
        for point in points:
            self._add(*point)
        for found in self.subjects.values():
            _part(found.totals)

    def _add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        metric = _METRICS.get(name)
        if metric is not None:
            if not TABLES[metric.table].held or self._is_shown(labels):
                self._add_value(metric, labels, value)
        elif name.startswith(_STEPS):
            self._add_steps(name.removeprefix(_STEPS), labels, value)
        elif name == NONFINITE.name and self._is_shown(labels):
            self._found("training", labels).totals[NONFINITE.field, labels.get("value", "")] = value
        elif name in _INFO:
            known = self._found(_INFO[name], labels).labels
            known |= {"name": labels.get("name", "")} | (
                {"simulated": True} if labels.get("simulated") == "true" else {}
            )
        elif name == catalog.TRAINING_VALUE.name and self._is_shown(labels):
            self._found("training", labels).values[labels.get("name", "")] = value
        elif name == catalog.EVENTS.name:
            self.events[labels.get("kind", ""), labels.get("severity", "")] = value
        elif name == catalog.ALERT.name:
            self._add_alert(labels)
        elif name == catalog.DATA_AGE.name:
            self.of_pulsetrain = True
            if labels.get("data") == "machine":
                self.age_seconds = value

    def _add_alert(self, labels: Mapping[str, str]) -> None:
        """What it is about is known; its words stay on that machine."""
        rule = labels.get("alertname", "")
        about = [f"{name} {labels[name]}" for name in ("run", *LABELS) if labels.get(name) and name != "uuid"]
        key = f"{rule}/{labels.get('severity')}/{about}"
        details: dict[str, Label | float] = {"rule": rule, "alert": key}
        message = f"{rule}: {', '.join(about)}" if about else rule
        self.alerts[key] = Event(FIRING, message, severity_of(labels.get("severity")), details)

    def _is_shown(self, labels: Mapping[str, str]) -> bool:
        return self._run is None or labels.get("run") == self._run

    def _found(self, table: str, labels: Mapping[str, str]) -> _Found:
        own: dict[str, Label] = {}
        for label in TABLES[table].labels:
            if text := labels.get(label.exported):
                own[label.name] = int(text) if label.is_number and text.isdecimal() else text
        if table == "process":
            own |= _container(labels) | ({"run": labels["run"]} if "run" in labels else {})
        found = self.subjects[catalog.subject(table, own)]
        found.labels |= own
        return found

    def _add_value(self, metric: Metric, labels: Mapping[str, str], value: float) -> None:
        found = self._found(metric.table, labels)
        if metric.kind == "amount":
            found.totals[metric.field, ""] = value
        elif metric.by is not None:
            several = found.values.setdefault(metric.field, {})
            if isinstance(several, dict):
                several[labels.get(metric.by, "")] = value
        elif metric.kind == "words":
            words = found.values.setdefault(metric.field, [])
            if isinstance(words, list):
                words.append(labels.get("reason", ""))
        else:
            found.values[metric.field] = value

    def _add_steps(self, suffix: str, labels: Mapping[str, str], value: float) -> None:
        if not self._is_shown(labels):
            return
        if suffix == "_sum":
            self._found("training", labels).totals["step_seconds", ""] = value
        elif suffix == "_bucket":
            self._found("training", labels).totals[STEP_COUNTS.field, labels.get("le", "")] = value


def _part(totals: dict[tuple[str, str], float]) -> None:
    """Make of the steps up to each bound those between it and the one below."""
    bounds = sorted((key for key in totals if key[0] == STEP_COUNTS.field), key=lambda key: float(key[1]))
    below = 0.0
    for key in bounds:
        totals[key], below = totals[key] - below, totals[key]


def _points(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of each line; what is none is skipped."""
    for line in text.splitlines():
        if line.startswith("#") or not (match := _LINE.fullmatch(line)):
            continue
        name, labels, value = match.groups()
        try:
            yield name, _labels(labels or ""), float(value)
        except ValueError:
            continue


@lru_cache(KEPT_LABELS)
def _labels(text: str) -> Mapping[str, str]:
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _container(labels: Mapping[str, str]) -> dict[str, Label]:
    """Container and pod as one label, as the sources have it."""
    container, pod = labels.get("container", ""), labels.get("pod", "")
    text = f"pod:{pod}/{container}" if pod else container
    return {"container": text} if text else {}

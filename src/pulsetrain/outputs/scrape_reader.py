"""What another pulsetrain shows at /metrics, as samples again: `families`, the other way round."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from pulsetrain import catalog
from pulsetrain.catalog import METRICS, STEP_COUNTS
from pulsetrain.errors import PulsetrainError
from pulsetrain.outputs.families import LABELS
from pulsetrain.runs.follow import key_of
from pulsetrain.snapshot import Event, Label, Metric, Sample, Severity, Subject, Value

KEPT_LABELS = 8192
"""Labels stay the same from scrape to scrape, and take longest to read."""
NUMBERS = frozenset({"gpu_index", "pid", "rank", "gpu_instance", "compute_instance"})

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \S+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_METRICS = {metric.name: metric for metric in METRICS}
_INFO = {catalog.GPU_INFO.name: "gpu", catalog.MIG_INFO.name: "mig"}
_OF_A_RUN = ("training", "account")
_STEPS = STEP_COUNTS.name


class Reading(NamedTuple):
    """One scrape."""

    age_seconds: float
    """How old its figures were."""
    samples: tuple[Sample, ...]
    events: tuple[Event, ...]


class Reader:
    """Reads the scrapes of one machine, one after the other.

    What counts up is told as what was added since the last one, as the samples of a training have it; what is no longer
    there is None. Of several runs, the one that began last is shown.
    """

    def __init__(self) -> None:
        self._labels: dict[Subject, dict[str, Label]] = {}
        self._fields: dict[Subject, set[str]] = {}
        self._totals: dict[tuple[Subject, str, str], float] = {}
        self._events: Mapping[tuple[str, str], float] | None = None

    def read(self, text: str) -> Reading:
        """What the page at /metrics says."""
        page = _Page(text)
        if not page.of_pulsetrain:
            raise PulsetrainError("what answers there is no pulsetrain.")
        samples = [self._sample(subject, found) for subject, found in page.subjects.items()]
        self._fields = {subject: {*found.values} for subject, found in page.subjects.items()}
        return Reading(page.age_seconds, tuple(samples), tuple(self._news(page.events)))

    def _sample(self, subject: Subject, found: "_Found") -> Sample:
        labels = found.labels
        if subject.table == "gpu":  # a lost one is shown without its name
            labels = self._labels[subject] = {"name": "unknown", **self._labels.get(subject, {}), **labels}
        gone: dict[str, Value] = dict.fromkeys(self._fields.get(subject, set()) - {*found.values})
        return Sample(Subject(subject.table, subject.key, labels), gone | found.values | self._added(subject, found))

    def _added(self, subject: Subject, found: "_Found") -> dict[str, Value]:
        """What the totals have risen by; nothing at the first scrape, nor when they began anew."""
        values: dict[str, Value] = {}
        counts: dict[str, float] = {}
        for (field, bound), total in found.totals.items():
            before = self._totals.get((subject, field, bound), total)
            self._totals[subject, field, bound] = total
            if total > before and bound:
                counts[bound] = total - before
            elif total > before:
                values[field] = total - before
        return values | ({STEP_COUNTS.field: counts} if counts else {})

    def _news(self, events: Mapping[tuple[str, str], float]) -> Iterator[Event]:
        """An event for each kind that has come since the last scrape; its words stay on that machine."""
        before, self._events = events if self._events is None else self._events, events
        for (kind, severity), count in events.items():
            if count > before.get((kind, severity), 0.0):
                yield Event(kind, kind.replace("_", " "), _severity(severity))


class _Found:
    """What one scrape says of a subject."""

    def __init__(self) -> None:
        self.labels: dict[str, Label] = {}
        self.values: dict[str, Value] = {}
        self.totals: dict[tuple[str, str], float] = {}
        """What adds up, by its field; steps by the bound of their length as well."""


class _Page:
    """One scrape, by subjects."""

    def __init__(self, text: str) -> None:
        self.subjects: dict[Subject, _Found] = defaultdict(_Found)
        self.events: dict[tuple[str, str], float] = {}
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
            if metric.table not in _OF_A_RUN or self._is_shown(labels):
                self._add_value(metric, labels, value)
        elif name.startswith(_STEPS):
            self._add_steps(name.removeprefix(_STEPS), labels, value)
        elif name in _INFO:
            known = self._found(_INFO[name], labels).labels
            known |= {"name": labels.get("name", "")} | (
                {"simulated": True} if labels.get("simulated") == "true" else {}
            )
        elif name == catalog.TRAINING_VALUE.name and self._is_shown(labels):
            self._found("training", labels).values[labels.get("name", "")] = value
        elif name == catalog.EVENTS.name:
            self.events[labels.get("kind", ""), labels.get("severity", "")] = value
        elif name == catalog.DATA_AGE.name:
            self.of_pulsetrain = True
            if labels.get("data") == "machine":
                self.age_seconds = value

    def _is_shown(self, labels: Mapping[str, str]) -> bool:
        return self._run is None or labels.get("run") == self._run

    def _found(self, table: str, labels: Mapping[str, str]) -> _Found:
        own: dict[str, Label] = {}
        for label, name in LABELS[table].items():
            if name in labels:
                own[label] = int(labels[name]) if label in NUMBERS and labels[name].isdecimal() else labels[name]
        if table == "process":
            own |= _container(labels) | ({"run": labels["run"]} if "run" in labels else {})
        key = f"rank {own.get('rank', 0)}" if table == "training" else key_of(table, own)
        found = self.subjects[Subject(table, key)]
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
    bounds = sorted((key for key in totals if key[1]), key=lambda key: float(key[1]))
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


def _severity(text: str) -> Severity:
    return "error" if text == "error" else "warning" if text == "warning" else "info"

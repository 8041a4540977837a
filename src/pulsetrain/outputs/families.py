"""The present state as metric families: what exporters show and pushers send.

A value that is not there makes no point. Of a lost GPU only `gpu_up 0` and its XID errors are left: its other series
go stale.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from pulsetrain import __version__, catalog
from pulsetrain.catalog import EXPORTED, METRICS, SAMPLE_TABLES, STEP_BUCKETS
from pulsetrain.catalog.labels import label_text, subject_labels
from pulsetrain.live import Live, SubjectState
from pulsetrain.outputs.gpu_pods import GPU_PODS, pod_of, pods_of_gpus
from pulsetrain.outputs.points import Family, Kind, Labels, Point, make_labels, with_label
from pulsetrain.outputs.spellings import SPELLINGS
from pulsetrain.rules.alert import series_labels
from pulsetrain.runs.folder import Run
from pulsetrain.snapshot import Metric, Subject, Value

__all__ = [
    "Family",
    "Labels",
    "Point",
    "RunInfo",
    "families",
    "info_labels",
    "joined",
    "make_labels",
    "run_info_of",
]

MOST_NAMES = 64
"""So many values that a program logs under names of its own are exported: it can make up names without end."""

_SUMS = [m for m in METRICS if m.kind == "amount" and m.name != catalog.STEP_COUNTS.name]
_BOUNDS = (*map(str, STEP_BUCKETS), "+Inf")

# Asked for each of a thousand series at each scrape: prepared once.
_OF_INFO = {table.name: [label.name for label in table.labels if label.of_info] for table in SAMPLE_TABLES}
_NUMBERS = {
    table: {m.field: m.name for m in catalog.metrics_of(table) if m.kind in ("gauge", "counter") and not m.by}
    for table in _OF_INFO
}
_OTHERS = {table: {m.field: m for m in catalog.metrics_of(table) if m.by or m.kind == "words"} for table in _OF_INFO}
_DECLARED = frozenset(m.field for m in METRICS if m.table == "training")


class RunInfo(NamedTuple):
    """What is known of a run from its beginning."""

    start: float
    """Seconds since the epoch."""
    labels: Mapping[str, str]
    """Those of `run_info`: its name and status, and its tags (`tag_team`)."""


def families(
    live: Live,
    scope: Mapping[str, str],
    names: Collection[str] = ("native",),
    *,
    run_info: RunInfo | None = None,
    now: float | None = None,
) -> list[Family]:
    """Every family that has a point.

    `scope` are labels of every series, such as host and run; `names` are the spellings wanted: native, dcgm,
    nvidia_smi. Ages are as of `now`, or else as of the last snapshot.
    """
    found: list[Family] = []
    if "native" in names:
        found += _native(live, scope, run_info, live.time if now is None else now)
    for name, spell in SPELLINGS.items():
        if name in names:
            found += spell(live, scope)
    return found


def run_info_of(run: Run) -> RunInfo:
    tags = {f"tag_{re.sub('[^a-zA-Z0-9_]', '_', key)}": value for key, value in run.tags.items()}
    return RunInfo(run.start.timestamp(), {**tags, "name": run.name, "status": run.status})


def joined(groups: Iterable[Iterable[Family]]) -> list[Family]:
    """Families of several states as one list, in which each name occurs once."""
    found: dict[str, Family] = {}
    for family in (family for group in groups for family in group):
        if family.name in found:
            found[family.name].points.extend(family.points)
        else:
            found[family.name] = family._replace(points=[*family.points])
    return list(found.values())


def _native(live: Live, scope: Mapping[str, str], run_info: RunInfo | None, now: float) -> Iterator[Family]:
    points: dict[str, list[Point]] = defaultdict(list)
    pods = pods_of_gpus(live)
    job = {state.subject.key for state in live.table("process") if "gpu_index" not in state.subject.labels}
    for table in _OF_INFO:
        for state in live.table(table):
            own = {**subject_labels(state.subject, scope, job), **_pod_labels(state, pods)}
            labels = make_labels(own)
            _values(state, labels, points)
            if table == "training":
                _training(state, labels, points)
            elif table in catalog.DEVICE_INFO and state.values.get("up") != 0:
                points[catalog.DEVICE_INFO[table].name].append(Point(info_labels(state.subject, own), 1))
    _of_pulsetrain(live, scope, now, points)
    if run_info is not None:
        points[catalog.RUN_INFO.name].append(Point(make_labels(run_info.labels, scope), 1))
        points[catalog.RUN_START.name].append(Point(make_labels(scope), run_info.start))
    for name, empty in _EMPTY.items():
        if points.get(name):
            yield Family(name, empty.kind, empty.unit, empty.help, points[name])


def _empty(metric: Metric) -> Family:
    """A metric's family, without points."""
    kind: Kind = "counter" if metric.kind in ("counter", "amount") else "gauge"
    if metric.name == catalog.STEP_COUNTS.name:
        kind = "histogram"
    elif metric.name.endswith("_info"):
        kind = "info"
    help = f"{metric.help} Added up over all reports." if metric in _SUMS else metric.help
    return Family(metric.name, kind, metric.unit, help, [])


_EMPTY = {m.name: _empty(m) for m in (*METRICS, *EXPORTED)}
"""In the order in which they are shown."""


def _values(state: SubjectState, labels: Labels, points: dict[str, list[Point]]) -> None:
    """The values of a subject as they are."""
    numbers, others = _NUMBERS[state.subject.table], _OTHERS[state.subject.table]
    for field, value in state.values.items():
        if field in numbers:
            if isinstance(value, (int, float)):
                points[numbers[field]].append(Point(labels, value))
        elif field in others:
            points[others[field].name] += _several(others[field], value, labels)


def _pod_labels(state: SubjectState, pods: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """Namespace, pod and container that hold a GPU or an instance."""
    return pods.get(state.subject.key, {}) if state.subject.table in ("gpu", "mig") else {}


def _several(metric: Metric, value: Value, labels: Labels) -> Iterator[Point]:
    """A value for each device, core or source; or a 1 for each word."""
    if metric.name == GPU_PODS and isinstance(value, dict):
        for key in value:
            yield Point(make_labels(dict(labels), pod_of(key)), 1)
    elif metric.by and isinstance(value, dict):
        for key, number in value.items():
            yield Point(with_label(labels, metric.by, key), number)
    elif metric.kind == "words" and isinstance(value, list):
        for word in value:
            yield Point(with_label(labels, "reason", word), 1)


def _training(state: SubjectState, labels: Labels, points: dict[str, list[Point]]) -> None:
    """What reports add up to, how long steps took, and what the program logs under names of its own."""
    for metric in _SUMS:
        if metric.field in state.totals:
            points[metric.name].append(Point(labels, state.totals[metric.field]))
    if state.step_counts:
        counts = list(accumulate(state.step_counts[bound] for bound in _BOUNDS))
        points[catalog.STEP_COUNTS.name] += [
            *(Point(with_label(labels, "le", b), n, "_bucket") for b, n in zip(_BOUNDS, counts, strict=True)),
            Point(labels, state.totals["step_seconds"], "_sum"),
            Point(labels, counts[-1], "_count"),
        ]
    points[catalog.NONFINITE.name] += [
        Point(with_label(labels, "value", which), count) for which, count in state.nonfinite_counts.items()
    ]
    points[catalog.TRAINING_TIME.name] += _several(
        catalog.TRAINING_TIME, state.values.get(catalog.TRAINING_TIME.field), labels
    )
    others = [(f, v) for f, v in state.values.items() if f not in _DECLARED and isinstance(v, int | float)]
    for field, value in others[:MOST_NAMES]:
        points[catalog.TRAINING_VALUE.name].append(Point(with_label(labels, "name", field), value))


def info_labels(subject: Subject, own: Mapping[str, str]) -> Labels:
    """The labels of the series that says which GPU or instance this is."""
    return make_labels(own, {name: label_text(subject.labels.get(name)) for name in _OF_INFO[subject.table]})


def _of_pulsetrain(live: Live, scope: Mapping[str, str], now: float, points: dict[str, list[Point]]) -> None:
    """How the watching itself goes."""
    since = now - live.time
    for data, tables in catalog.DATA_TABLES.items():
        seen = [state.seen for table in tables for state in live.table(table)]
        if seen:
            age = max(0.0, since + live.elapsed - max(seen))
            points[catalog.DATA_AGE.name].append(Point(make_labels(scope, {"data": data}), age))
    if any(live.table("host")):
        points[catalog.BUILD_INFO.name].append(Point(make_labels(scope, {"version": __version__}), 1))
    points[catalog.ALERT.name] += [Point(make_labels(scope, series_labels(alert)), 1) for alert in live.alerts.values()]
    for (kind, severity), count in live.events.items():
        labels = make_labels(scope, {"kind": kind, "severity": severity})
        points[catalog.EVENTS.name].append(Point(labels, count))

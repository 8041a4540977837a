"""Every metric and every table, declared once. Files, exporters, database, charts and docs are derived from them."""

from collections.abc import Iterator

from pulsetrain.catalog.metrics import (
    ALERT,
    BUILD_INFO,
    CACHE_DISK,
    CACHE_DISK_LIMIT,
    CACHE_FETCHED,
    CACHE_LOOKUPS,
    CACHE_REQUESTS,
    CACHE_SENT,
    CACHE_UP,
    DATA_AGE,
    DATA_TABLES,
    DEVICE_INFO,
    EVENTS,
    EXPORTED,
    METRICS,
    NONFINITE,
    RUN_INFO,
    RUN_START,
    STEP_BUCKETS,
    STEP_COUNTS,
    TRAINING_TIME,
    TRAINING_VALUE,
    WEB_OPEN_BYTES,
    WEB_RUNS,
    WEB_VIEWERS,
)
from pulsetrain.catalog.tables import (
    ACCOUNT,
    CORE_GPU_FIELDS,
    EVENT_TABLE,
    HOST,
    SAMPLE_TABLES,
    TABLES,
    TICK_TABLES,
    Column,
    LabelColumn,
    Table,
    subject,
)
from pulsetrain.snapshot import Metric, Sample

__all__ = [
    "ACCOUNT",
    "ALERT",
    "BUILD_INFO",
    "CACHE_DISK",
    "CACHE_DISK_LIMIT",
    "CACHE_FETCHED",
    "CACHE_LOOKUPS",
    "CACHE_REQUESTS",
    "CACHE_SENT",
    "CACHE_UP",
    "CORE_GPU_FIELDS",
    "DATA_AGE",
    "DATA_TABLES",
    "DEVICE_INFO",
    "EVENTS",
    "EVENT_TABLE",
    "EXPORTED",
    "HOST",
    "METRICS",
    "NONFINITE",
    "RUN_INFO",
    "RUN_START",
    "SAMPLE_TABLES",
    "STEP_BUCKETS",
    "STEP_COUNTS",
    "TABLES",
    "TICK_TABLES",
    "TRAINING_TIME",
    "TRAINING_VALUE",
    "WEB_OPEN_BYTES",
    "WEB_RUNS",
    "WEB_VIEWERS",
    "Column",
    "LabelColumn",
    "Table",
    "metric",
    "metrics_of",
    "subject",
    "undeclared",
]

_BY_FIELD = {(metric.table, metric.field): metric for metric in (*METRICS, STEP_COUNTS, NONFINITE, TRAINING_TIME)}


def metric(table: str, field: str) -> Metric:
    """The metric in this field of this table's lines."""
    return _BY_FIELD[table, field]


def metrics_of(table: str) -> list[Metric]:
    """The metrics in a table's lines, in the order of their declaration."""
    return [metric for metric in METRICS if metric.table == table]


def undeclared(sample: Sample) -> Iterator[str]:
    """What a sample carries that this catalog does not know: nothing, or the source has a mistake."""
    table = sample.subject.table
    labels = {label.name for label in TABLES[table].labels}
    yield from (f"{table}.{label}" for label in sample.subject.labels if label not in labels)
    for field, value in sample.values.items():
        declared = _BY_FIELD.get((table, field))
        if declared is None:
            yield f"{table}.{field}"
        elif isinstance(value, dict) is not (declared.by is not None) and value is not None:
            yield f"{table}.{field} (by {declared.by})"

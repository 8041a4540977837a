"""The tables that runs are read as, and what each of their columns is. The catalogue declares most of them."""

from typing import NamedTuple

from pulsetrain.catalog import LABELS, METRICS
from pulsetrain.snapshot import Metric

LINE_TABLES = ("gpu", "mig", "host", "process", "training", "account", "events")
"""Those made of the lines of a run."""
TABLES = (*LINE_TABLES, "runs")


class Column(NamedTuple):
    """A column that a table always has, whatever the runs hold."""

    name: str
    type: str
    """As DuckDB calls it."""
    unit: str
    help: str


_TIMES = (
    Column("timestamp", "TIMESTAMP", "UTC", "When, by the machine's clock."),
    Column("elapsed_seconds", "DOUBLE", "seconds", "Since the run began on this host, by a clock that nobody sets."),
)
_WHERE = (
    Column("run", "VARCHAR", "", "The run: the name of its folder."),
    Column("host", "VARCHAR", "", "The machine that wrote the line."),
)
OTHER = Column("other", "JSON", "", "What a line has beyond the columns of its table.")
EVENT = "event"
"""Marks a line in a training file as a note of the recorder. Such lines are kept, and are no rows of `training`."""

_LABELS = {
    "gpu_index": ("INTEGER", "The GPU's number on its host."),
    "uuid": ("VARCHAR", "The GPU's own name, the same in every run."),
    "name": ("VARCHAR", "The GPU's model."),
    "simulated": ("BOOLEAN", "True when there is no such GPU."),
    "mig_uuid": ("VARCHAR", "The instance's own name."),
    "gpu_instance": ("INTEGER", "Number of the GPU instance."),
    "compute_instance": ("INTEGER", "Number of the compute instance in it."),
    "pid": ("BIGINT", "Process id."),
    "parent_pid": ("BIGINT", "Process id of its parent."),
    "user": ("VARCHAR", "Whose process it is."),
    "command": ("VARCHAR", "Its command line."),
    "container": ("VARCHAR", "The container it runs in."),
    "rank": ("INTEGER", "Rank of the training process."),
    "training": ("VARCHAR", "The name the program gave to this training."),
}


def _label(name: str) -> Column:
    type, help = _LABELS[name]
    return Column(name, type, "", help)


_EVENTS = (
    Column("kind", "VARCHAR", "", "What happened: gap, xid, gpu_lost, phase_end, ..."),
    Column("severity", "VARCHAR", "", "info, warning or error."),
    Column("message", "VARCHAR", "", "The same in words."),
    *(_label(name) for name in ("gpu_index", "uuid", "rank", "training")),
    Column("phase", "VARCHAR", "", "The phase that began or ended."),
    Column("seconds", "DOUBLE", "seconds", "How long it took, or what is missing."),
    Column("source", "VARCHAR", "", "The source that missed ticks, failed or came back."),
    Column("ticks", "DOUBLE", "ticks", "How many readings were missed."),
    Column("xid", "DOUBLE", "", "Number of the driver's XID error."),
    Column("counter", "VARCHAR", "", "The energy counter concerned."),
    Column("pci_bus_id", "VARCHAR", "", "Address of a GPU that has no other name."),
    Column("lost_samples", "DOUBLE", "samples", "Lines that could not be written."),
    Column("dropped_reports", "DOUBLE", "reports", "Reports of the training that were dropped."),
)
_RUNS = (
    _WHERE[0],
    Column("id", "VARCHAR", "", "What run.json calls it; the same, unless the folder was renamed."),
    Column("name", "VARCHAR", "", "What you called it."),
    Column("command", "VARCHAR", "", "What was run."),
    Column("directory", "VARCHAR", "", "Where it was run."),
    Column("tags", "MAP(VARCHAR, VARCHAR)", "", "Its marks: tags['lr'] is one of them."),
    Column("start_time", "TIMESTAMP", "UTC", "When it began."),
    Column("end_time", "TIMESTAMP", "UTC", "When it ended; null while it goes on, and when it died."),
    Column("seconds", "DOUBLE", "seconds", "From start to end."),
    Column("status", "VARCHAR", "", "running, finished, failed, interrupted or died; null when run.json is damaged."),
    Column("exit_code", "INTEGER", "", "Of the command."),
    Column("hosts", "VARCHAR[]", "", "The machines of the run."),
    Column("gpus", "INTEGER", "", "How many GPUs were watched."),
    Column("gpu_names", "VARCHAR[]", "", "Their models."),
    Column("simulated", "BOOLEAN", "", "True when its GPUs are simulated."),
    Column("interval_seconds", "DOUBLE", "seconds", "Time between readings."),
    Column("lost_samples", "BIGINT", "samples", "Lines that could not be written."),
)


def columns(table: str) -> tuple[Column, ...]:
    """Every column of a table that is declared, as a query sees them."""
    return _RUNS if table == "runs" else (*_WHERE, *line_columns(table), OTHER)


def line_columns(table: str) -> tuple[Column, ...]:
    """The declared columns that come from the lines themselves."""
    if table == "events":
        return (*_TIMES, *_EVENTS)
    found = [*_TIMES, *(_label(name) for name in LABELS[table])]
    found += [_column(metric) for metric in METRICS if metric.table == table and metric.field not in LABELS[table]]
    if table == "training":
        found.append(Column("nonfinite", "MAP(VARCHAR, VARCHAR)", "", "Fields that were nan, inf or -inf."))
    return tuple(found)


def _column(metric: Metric) -> Column:
    plain = {"text": "VARCHAR", "words": "VARCHAR[]"}.get(metric.kind, "DOUBLE")
    help = f"{metric.help} One value for each {metric.by}." if metric.by else metric.help
    return Column(metric.field, "MAP(VARCHAR, DOUBLE)" if metric.by else plain, metric.unit, help)
